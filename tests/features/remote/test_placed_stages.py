"""Pools that name executors and resources: which machine runs a stage, and how many stages run at once."""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orch23.features.remote import dask_engine
from orch23.features.remote.executor import RemoteExecutor
from tests.features.remote.clusters import Cluster, dask_cluster
from tests.features.remote.engines import QUICK
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow

GPU = {"executor": "dask", "resources": {"gpu": 1, "memory": "8GiB"}}
HERE = {"executor": "local"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """A worker with two GPUs, and one without. Each has its own folder, which shows who ran a step."""
    with dask_cluster(folder / "plain", options=("--allow-unsandboxed",)) as made:
        options = ("--slots", "4", "--resource", "gpu=2", "--resource", "memory=16GiB", "--allow-unsandboxed")
        made.start_worker(folder / "gpu", *options)
        made.local.wait_for_workers(2, timeout=60)
        yield made


def write(project: Project, pools: Mapping[str, Any], stages: Mapping[str, Any], **top: Any) -> None:
    """Write a pipeline whose steps see the real path of their folder."""
    whole = {"version": 1, "pools": pools, **top, "defaults": {"sandbox": "off"}, "stages": stages}
    project.write({"pipeline.yaml": json.dumps(whole)})


def where(name: str, *pools: str) -> dict[str, Any]:
    """Return a stage that writes in which folder it ran."""
    return {"shell": f"pwd > {name}", "outputs": [name], "pools": [*pools]}


def build(project: Project, address: str, *words: str) -> Outcome:
    cache = str(project.root.parent / "cache")
    return project.build("--scheduler", address, "--cache", cache, "--allow-unsandboxed", *words)


def ran_in(project: Project, workers: Path, name: str) -> str:
    """Return who ran a stage: the name of a worker's folder, or `here`."""
    path = Path((project.root / name).read_text().strip())
    return "here" if path.is_relative_to(project.root) else path.relative_to(workers).parts[0]


def test_a_pool_decides_which_machine_runs_a_stage(project: Project, cluster: Cluster, folder: Path) -> None:
    names = ("one", "two", "three")
    remote = {name: where(name, "gpu") for name in names}
    each = {"foreach": {"in": ["x", "y"], "as": "n"}, "shell": "pwd > ${{ n }}", "outputs": ["${{ n }}"]}
    write(project, {"gpu": GPU}, {**remote, "local": where("local"), "items": {**each, "pools": ["gpu"]}})
    done = build(project, cluster.address)
    assert done.code == 0, done.err
    ran = {name: ran_in(project, folder, name) for name in (*names, "local", "x", "y")}
    assert ran == {**dict.fromkeys((*names, "x", "y"), "gpu"), "local": "here"}


def test_a_pool_of_this_machine_wins_over_the_executor_of_the_build(
    project: Project, cluster: Cluster, folder: Path
) -> None:
    write(project, {"here": HERE}, {"a": where("a", "here"), "b": where("b")})
    assert build(project, cluster.address, "--executor", "dask").code == 0
    assert ran_in(project, folder, "a") == "here"
    assert ran_in(project, folder, "b") in {"plain", "gpu"}


def test_the_pool_of_a_step_kind_gives_way_to_one_that_a_stage_names(
    project: Project, cluster: Cluster, folder: Path
) -> None:
    write(project, {"shell": GPU, "here": HERE}, {"a": where("a"), "b": where("b", "here")})
    assert build(project, cluster.address).code == 0
    assert (ran_in(project, folder, "a"), ran_in(project, folder, "b")) == ("gpu", "here")


def test_verification_runs_where_the_stage_does(project: Project, cluster: Cluster, folder: Path) -> None:
    seen = project.root.parent / "seen"
    stage = {**where("a", "gpu"), "verify": [{"shell": f"pwd > {seen}"}]}
    write(project, {"gpu": GPU}, {"a": stage})
    assert build(project, cluster.address).code == 0
    assert Path(seen.read_text().strip()).relative_to(folder).parts[0] == "gpu"


def test_a_model_is_called_here_and_its_result_verified_where_the_pool_says(
    project: Project, cluster: Cluster, folder: Path
) -> None:
    seen = project.root.parent / "seen"
    llm = {"provider": "scripted", "model": "m", "prompt": "p.md", "answers": "answers.yaml", "returns": "text"}
    stage = {"llm": llm, "outputs": ["a"], "pools": ["gpu"], "verify": [{"shell": f"pwd > {seen}"}]}
    write(project, {"gpu": GPU}, {"a": stage})
    # The file with the responses is in the project, which no worker has.
    project.write({"p.md": "Write a.", "answers.yaml": "a: ['hello']\n"})
    done = build(project, cluster.address)
    assert done.code == 0, done.err
    assert Path(seen.read_text().strip()).relative_to(folder).parts[0] == "gpu"


def test_a_stage_without_processes_does_not_need_the_executor_of_the_build(project: Project, cluster: Cluster) -> None:
    page = {"render": "t.j2", "outputs": ["page"]}
    write(project, {"gpu": GPU}, {"a": page, "b": where("b", "gpu")}, executor="reapi")
    project.write({"t.j2": "hello\n"})
    done = build(project, cluster.address)
    assert done.code == 0, done.err


def test_a_plan_file_is_built_with_the_executor_of_the_command_line(
    project: Project, cluster: Cluster, folder: Path
) -> None:
    write(project, {}, {"a": where("a")})
    options = ("--executor", "dask", "--scheduler", cluster.address, "--cache", str(project.root.parent / "cache"))
    assert project.run("plan", *options, "--out", "plan.json").code == 0
    done = project.build("--plan", "plan.json", *options, "--allow-unsandboxed")
    assert done.code == 0, done.err
    assert ran_in(project, folder, "a") in {"plain", "gpu"}


@pytest.mark.needs("doctor")
def test_doctor_names_the_executors_of_pools(project: Project, cluster: Cluster) -> None:
    write(project, {"gpu": GPU}, {"a": where("a", "gpu")})
    env = {"ORCH23_BUILD_SCHEDULER": cluster.address, "ORCH23_BUILD_CACHE": "cache"}
    shown = project.run("doctor", env=env).out
    assert f"`dask`, with the scheduler {cluster.address}" in shown


def meeting(folder: Path, name: str, *others: str) -> str:
    """Return a command that ends once all others have begun too, and notes when it ran."""
    waits = " ".join(f"[ -e {folder}/{other} ] &&" for other in others)
    begin, end = (f"date +%s%N >> {folder}/{name}" for _ in range(2))
    return f"{begin}; until {waits} true; do sleep 0.02; done; sleep 0.1; {end}; touch {name}"


def most_at_once(folder: Path, *names: str) -> int:
    """Return how many of these commands ran at the same time, at most."""
    spans = [tuple(map(int, (folder / name).read_text().split())) for name in names]
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    return max(sum(step for _, step in changes[: number + 1]) for number in range(len(changes)))


def test_without_jobs_all_slots_are_used_and_local_stages_run_beside_up_to_the_cores(
    project: Project, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    remote, local = [f"r{n}" for n in range(6)], ["l0", "l1", "l2"]
    commands = {
        # All slots of the cluster and one stage of this machine, or none of these commands ends.
        **{name: meeting(tmp_path, name, *remote, "l0") for name in remote},
        "l0": meeting(tmp_path, "l0", *remote),
        **{name: meeting(tmp_path, name) for name in local[1:]},
    }
    stages = {name: {"shell": command, "outputs": [name]} for name, command in commands.items()}
    for name in local:
        stages[name]["pools"] = ["here"]
    write(project, {"here": HERE}, stages, executor="dask")
    done = build(project, cluster.address)
    assert done.code == 0, done.err
    assert [event["data"]["jobs"] for event in project.events_of("run_started")] == [0]
    assert most_at_once(tmp_path, *remote) == 6
    assert most_at_once(tmp_path, *local) == 1
    # Not only their processes: a local stage does not start before it has a place.
    places = [
        event["role"] for event in project.events() if event["type"].startswith("attempt_") and event["role"][0] == "l"
    ]
    assert places[::2] == places[1::2]


def test_resources_limit_what_runs_on_a_worker_at_once(project: Project, cluster: Cluster, tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(5)]
    stages = {name: {"shell": meeting(tmp_path, name), "outputs": [name], "pools": ["gpu", "large"]} for name in names}
    # 16 GiB of the worker, 8 and 4 for each step: one at a time, and not two as the GPUs allow.
    write(project, {"gpu": GPU, "large": {"resources": {"memory": "4GiB"}}}, stages)
    assert build(project, cluster.address, "-j", "8").code == 0
    assert most_at_once(tmp_path, *names) == 1


def test_a_resource_that_no_worker_has_ends_the_build_and_costs_no_attempt(
    project: Project, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "RemoteExecutor", partial(RemoteExecutor, limits=QUICK))
    write(project, {"p": {"executor": "dask", "resources": {"gpu": 1, "fpga": 2}}}, {"a": where("a", "p")})
    done = build(project, cluster.address)
    assert done.code == 78
    assert "E487" in done.err
    assert "there has been no worker with the resource fpga=2 for 2 s" in done.err
    assert "orch23 worker --resource NAME=AMOUNT" in done.err
    assert len(project.events_of("attempt_started")) == 1
    write(project, {"p": HERE}, {"a": where("a", "p")})
    assert build(project, cluster.address).code == 0


@pytest.mark.needs("watch")
@pytest.mark.stride(4)
@pytest.mark.parametrize(
    ("head", "option"),
    [("executor: dask\n", None), ("", ("--executor", "dask")), ("pools: {gpu: {executor: dask}}\n", ())],
)
def test_watch_builds_on_a_cluster_again_and_again(
    head: str,
    option: tuple[str, ...] | None,
    tmp_path: Path,
    cluster: Cluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.features.watch.test_watch import Watching  # noqa: PLC0415 - of a feature

    cache = str(tmp_path / "cache")
    options = ("--scheduler", cluster.address, "--cache", cache, *(option or ()))
    if option is None:
        # The variables of `build` hold for it, too.
        monkeypatch.setenv("ORCH23_BUILD_SCHEDULER", cluster.address)
        monkeypatch.setenv("ORCH23_BUILD_CACHE", cache)
        options = ()
    pool = ", pools: [gpu]" if "gpu" in head else ""
    stage = f"  a: {{inputs: [q.md], outputs: [a], sandbox: off, shell: 'pwd > a; cat q.md >> a'{pool}}}\n"
    watching = Watching(tmp_path / "project")
    watching.write("pipeline.yaml", f"version: 1\n{head}stages:\n{stage}")
    watching.write("q.md", "one\n")
    try:
        watching.start(*options)
        for text in ("one", "two", "three"):
            watching.write("q.md", f"{text}\n")
            watching.wait(lambda: watching.read("a").endswith(f"{text}\n"))  # noqa: B023 - called here
            where = Path(watching.read("a").splitlines()[0])
            assert where.relative_to(folder).parts[0] in {"plain", "gpu"}
        assert watching.stop() == 130
    finally:
        watching.close()


@pytest.mark.parametrize("jobs", [(), ("-j", "2")])
def test_a_build_with_nothing_to_do_asks_no_cluster(project: Project, jobs: tuple[str, ...]) -> None:
    write(project, {}, {name: where(name) for name in "abc"})
    assert project.build("--allow-unsandboxed").code == 0
    write(project, {"gpu": GPU}, {name: where(name, "gpu") for name in "abc"})
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        scheduler.settimeout(0)
        done = build(project, f"tcp://127.0.0.1:{scheduler.getsockname()[1]}", "-v", *jobs)
        assert (done.code, project.ran()) == (0, []), done.err
        with pytest.raises(BlockingIOError):
            scheduler.accept()


def test_a_build_of_local_stages_needs_no_scheduler(project: Project) -> None:
    write(project, {"gpu": GPU}, {"a": where("a"), "b": where("b", "gpu")})
    assert project.build("a", "--allow-unsandboxed").code == 0
    refused = project.build("--allow-unsandboxed")
    assert (refused.code, "E488" in refused.err) == (78, True), refused.err


def test_a_local_stage_of_a_build_elsewhere_needs_permission_to_run_without_a_sandbox(project: Project) -> None:
    write(project, {"here": HERE}, {"a": where("a", "here")})
    cache = str(project.root.parent / "cache")
    options = ("--executor", "dask", "--scheduler", "tcp://127.0.0.1:1", "--cache", cache)
    refused = project.build(*options)
    assert (refused.code, "E484" in refused.err) == (78, True), refused.err
    assert "attempt_started" not in journals(project), "it is refused before anything starts"


def journals(project: Project) -> str:
    return "".join(path.read_text() for path in project.root.glob("logs/*.jsonl"))


def test_an_edit_is_accepted_on_this_machine(project: Project, cluster: Cluster) -> None:
    write(project, {"gpu": GPU}, {"a": {**where("a", "gpu"), "verify": [{"shell": "test -s a"}]}})
    assert build(project, cluster.address).code == 0
    project.write({"a": "mine\n"})
    accepted = project.run("accept", "a", "--allow-unsandboxed")
    assert accepted.code == 0, accepted.err


def test_a_plan_says_what_the_build_with_the_same_options_says_of_the_shared_cache(
    project: Project, cluster: Cluster
) -> None:
    write(project, {"here": HERE}, {"a": where("a", "here"), "b": where("b")})
    sandboxed = project.read("pipeline.yaml").replace('"sandbox": "off"', '"sandbox": "on"')
    project.write({"pipeline.yaml": sandboxed})
    cache = str(project.root.parent / "cache")
    options = ("--cache", cache, "--executor", "dask", "--scheduler", cluster.address)
    plan = project.run("plan", *options, "--json")
    assert plan.code == 0, plan.err
    planned = json.loads(plan.out)
    assert planned["would_store"] == ["a"]
    assert "the executor `dask` runs its processes on other machines" in json.dumps(planned["not_shared"]["b"])
    assert json.loads(project.run("plan", "--cache", cache, "--json").out)["would_store"] == ["a", "b"]
    assert project.run("build", "-n", "--json", *options).out == plan.out
    done = build(project, cluster.address, "--executor", "dask")
    assert done.code == 0, done.err
    (project.root / "a").unlink()
    (project.root / "b").unlink()
    second = Project(project.root.parent / "second" / "project").write(
        {"pipeline.yaml": (project.root / "pipeline.yaml").read_text()}
    )
    assert second.plan(*options) == {"a": "restore", "b": "run"}


@pytest.mark.parametrize(
    "words",
    [
        ("--executor", "dask", "--scheduler", "tcp://10.0.0.1:8786"),
        ("--executor", "reapi", "--scheduler", "tcp://127.0.0.1:1"),
        ("--scheduler", "tcp://10.0.0.1:8786"),
    ],
)
def test_a_plan_refuses_a_scheduler_that_the_build_refuses(project: Project, words: tuple[str, ...]) -> None:
    write(project, {"gpu": GPU}, {"a": where("a", *(() if "--executor" in words else ("gpu",)))})
    planned = project.run("plan", *words)
    built = project.build("--cache", str(project.root.parent / "cache"), "--allow-unsandboxed", *words)
    assert (planned.code, planned.err) == (built.code, built.err)
    assert "E488" in planned.err
    # Of stages that run here, neither looks at it.
    write(project, {"here": HERE, "gpu": GPU}, {"a": where("a", "here"), "b": where("b", "gpu")})
    assert project.run("plan", "a", *words).code == 0
    assert project.build("a", "--allow-unsandboxed", *words).code == 0


def test_a_plan_does_not_replace_the_executor_of_a_plugin_either(project: Project) -> None:
    write(project, {}, {"a": where("a")}, executor="acme")
    for command in ("build", "plan"):
        done = project.run(command, "--executor", "dask")
        assert (done.code, "E641" in done.err) == (64, True), done.err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--scheduler", "tls://10.0.0.1:8786", "--cache", "cache"), "--scheduler"),
        (("--scheduler", "tcp://127.0.0.1:1", "--cache", "https://cache.example.org"), "--cache"),
        (("--executor", "reapi", "--scheduler", "grpcs://u:pass@10.0.0.1:1"), "--scheduler"),
        (("--executor", "reapi", "--scheduler", "grpc://127.0.0.1:1", "--cache", "grpcs://10.0.0.1:1"), "--cache"),
    ],
)
def test_an_offline_build_sends_no_step_to_another_machine(
    project: Project, words: tuple[str, ...], option: str
) -> None:
    executor = words if "--executor" in words else ("--executor", "dask", *words)
    write(project, {}, {"a": where("a")})
    refused = project.build("--offline", "--allow-unsandboxed", *executor)
    assert (refused.code, "E489" in refused.err, f"`{option}`" in refused.err) == (78, True, True), refused.err
    assert "pass" not in refused.err
    # It is refused only if something would be sent.
    assert project.build("--allow-unsandboxed").code == 0
    assert project.build("--offline", "--allow-unsandboxed", "-v", *executor).code == 0


def test_an_offline_build_may_use_a_cluster_of_this_machine(project: Project, cluster: Cluster) -> None:
    write(project, {"gpu": GPU}, {"a": where("a", "gpu")})
    assert build(project, cluster.address, "--offline").code == 0


@pytest.mark.parametrize(
    "text", ["gpu", "gpu=", "=1", "gpu=x", "gpu=-1", "gpu=0", "memory=0GiB", "a b=1", "gpu=1 GPUs"]
)
def test_a_resource_of_a_worker_that_cannot_be_read_is_refused(project: Project, text: str) -> None:
    done = project.run("worker", "--scheduler", "tcp://127.0.0.1:1", "--resource", text, "--resource", "cpu=2")
    assert (done.code, done.err.count("E641")) == (64, 1), done.err
    assert f"`--resource {text}`" in done.err


def test_a_resource_that_is_there_twice_is_refused(project: Project) -> None:
    done = project.run("worker", "--scheduler", "tcp://127.0.0.1:1", "--resource", "gpu=1", "--resource", "gpu=2")
    assert (done.code, "`--resource gpu=2`" in done.err) == (64, True), done.err


def test_a_build_with_nothing_to_run_needs_no_cluster(project: Project, cluster: Cluster, folder: Path) -> None:
    stages = {
        "a": {"shell": "echo a > a", "outputs": ["a"]},
        "b": {"shell": "cat a > b", "inputs": ["a"], "outputs": ["b"]},
    }
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "executor": "dask", "stages": stages})})
    refused = project.build()
    assert (refused.code, "E488" in refused.err) == (78, True), refused.err
    assert project.build("--scheduler", cluster.address, "--cache", str(folder / "cache")).code == 0
    # Without the snapshot of the last build, all stages are decided.
    for path in (project.root / ".orch23").glob("*snapshot*"):
        path.unlink()
    again = project.build("--force", "b", "--dry-run")
    assert again.code == 0, again.err
    done = project.build()
    assert (done.code, "up to date" in done.err) == (0, True), done.err
