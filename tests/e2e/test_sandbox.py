"""The sandbox in whole builds: what is confined, what is refused, what may be allowed, and what is told of it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.execute.sandbox.tier_selection import best_tier_once
from tests.project import Project, scripted
from tests.sandbox.users import need

SELF_TEST = "orch23.cli.build_run._best_tier"
NONE = TierChoice(None, (("bubblewrap", "it is not installed"), ("Landlock", "the kernel has none")))
ALLOWED = "--allow-unsandboxed"


def pipeline(**stages: Any) -> dict[str, str]:
    return scripted({name: {"outputs": [name], **stage} for name, stage in stages.items()}, {})


@contextmanager
def tier(choice: TierChoice) -> Iterator[None]:
    with patch(SELF_TEST, return_value=choice):
        yield


def chosen(name: str) -> TierChoice:
    if name == UNCONFINED:
        return NONE
    need(name)
    if name == "landlock":
        return TierChoice(LandlockLauncher())
    return TierChoice(BubblewrapLauncher(Path("/usr/bin/bwrap")) if name == "bubblewrap" else NamespacesLauncher())


def sent_to(listener: socket.socket) -> list[bytes]:
    """Return what each connection sent that waits for a listener: all of them ended with the build."""
    listener.setblocking(False)
    found: list[bytes] = []
    while True:
        try:
            connection = listener.accept()[0]
        except BlockingIOError:
            return found
        with connection:
            connection.settimeout(10)
            found.append(connection.recv(100))


LESS = "Landlock, which isolates less than bubblewrap"
TIERS = ["bubblewrap", "namespaces", "landlock"]
UNCONFINED = "none"


@pytest.mark.parametrize("name", TIERS)
def test_a_stage_cannot_write_beside_its_sandbox_dir(project: Project, name: str) -> None:
    (project.root / "precious").write_text("kept")
    script = f"echo a > a; echo taken > {project.root}/precious"
    with tier(chosen(name)):
        assert project.write(pipeline(a={"shell": script})).build().code == 1
    assert project.read("precious") == "kept"
    assert not project.exists("a")


@pytest.mark.parametrize("name", TIERS)
def test_verification_is_confined_too(project: Project, name: str) -> None:
    (project.root / "precious").write_text("kept")
    verify = [{"shell": ["bash", "-c", f"echo taken > {project.root}/precious"]}]
    files = scripted({"a": {"outputs": ["a"], "llm": {"returns": "text"}, "verify": verify}}, {"a": ["text"]})
    with tier(chosen(name)):
        assert project.write(files).build().code == 1
    assert project.read("precious") == "kept"


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", [*TIERS, UNCONFINED])
def test_a_pytest_that_a_step_runs_does_not_find_the_settings_of_the_project(project: Project, name: str) -> None:
    settings = "[tool.pytest.ini_options]\nrequired_plugins = ['pytest-that-nobody-has']\n"
    stage = {"inputs": ["test_a.py"], "shell": f"{sys.executable} -m pytest -q test_a.py && echo a > a"}
    files = {**pipeline(a=stage), "test_a.py": "def test_a():\n    pass\n", "pyproject.toml": settings}
    with tier(chosen(name)):
        outcome = project.write(files).build(ALLOWED)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("name", [*TIERS, UNCONFINED])
def test_git_in_a_step_does_not_find_the_repository_of_the_project(project: Project, name: str) -> None:
    project.write(pipeline(a={"shell": "git rev-parse --git-dir > /dev/null 2>&1 && exit 7; echo a > a"}))
    subprocess.run(["git", "init", "--quiet", project.root], check=True)
    with tier(chosen(name)):
        outcome = project.build(ALLOWED)
    assert outcome.code == 0, outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_tests_report_across_the_sandbox(project: Project, name: str) -> None:
    test = "import app\n\n\ndef test_a(tmp_path):\n    (tmp_path / 'x').write_text('x')\n    assert app.X == 1\n"
    stage = {"inputs": ["test_a.py", "app.py"], "pytest": {"paths": ["test_a.py"], "report": "r.json"}}
    files = {**scripted({"check": stage}, {}), "test_a.py": test, "app.py": "X = 1\n"}
    with tier(chosen(name)):
        outcome = project.write(files).build()
    assert outcome.code == 0, outcome.err
    assert json.loads(project.read("r.json"))


def test_in_bubblewrap_every_process_sees_one_path_and_only_its_inputs(project: Project) -> None:
    script = "{ pwd; echo $HOME $TMPDIR; ls -A; ls /; } > a"
    files = {**pipeline(a={"inputs": ["in"], "shell": script}), "in": "x", "other": "y"}
    with tier(chosen("bubblewrap")):
        outcome = project.write(files).build()
        assert outcome.code == 0, outcome.err
        first = project.read("a")
        assert project.build("-f", "a").code == 0
    assert first.startswith("/room/work\n/room/home /room/tmp\na\nin\nbin\n")
    assert "orch23" not in first
    assert project.read("a") == first


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_the_network_is_there_only_for_a_stage_that_says_so(project: Project, name: str) -> None:
    choice = chosen(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}; echo -n $0 >&3; echo a > "
        stages = {"a": {"shell": f"{script} a"}, "b": {"shell": f"{script} b", "network": True}}
        with tier(choice):
            project.write(pipeline(**stages)).build("-k")
        heard = sent_to(listener)
    assert heard == [b"bash"]
    assert (project.exists("a"), project.exists("b")) == (False, True)


def test_names_are_looked_up_by_the_machines_own_settings_only_with_network(project: Project) -> None:
    with tier(chosen("bubblewrap")):
        stages = {n: {"shell": f"(ls /etc/resolv.conf || true) > {n}", "network": n == "b"} for n in ("a", "b")}
        assert project.write(pipeline(**stages)).build().code == 0
    assert (project.read("a"), project.read("b")) == ("", "/etc/resolv.conf\n")


@pytest.mark.parametrize("name", TIERS)
def test_a_program_that_is_not_there_is_reported_as_ever(project: Project, name: str) -> None:
    with tier(chosen(name)):
        outcome = project.write(pipeline(a={"shell": ["no-such-program"]})).build()
    assert outcome.code == 1
    assert "E309" in outcome.err
    assert "no-such-program: not found" in outcome.err


def test_a_script_without_its_interpreter_is_not_found_in_bubblewrap(project: Project) -> None:
    files = {**pipeline(a={"inputs": ["run"], "shell": ["./run"]}), "run": "#!/opt/nowhere/interpreter\n"}
    project.write(files)
    (project.root / "run").chmod(0o755)
    with tier(chosen("bubblewrap")):
        project.build()
    assert project.events_of("attempt_finished")[-1]["data"]["exit_code"] == 127


# ---- an interpreter wherever it is --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_the_interpreter_of_a_virtual_environment_in_the_project_is_seen(project: Project, name: str) -> None:
    with_an_environment(project)
    with tier(chosen(name)):
        outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("a") == str(project.root / ".venv")


def with_an_environment(project: Project) -> None:
    """Write a pipeline whose step says which environment its interpreter is of, and give the project one."""
    base = Path(os.path.realpath(sys.executable))
    config = f"home = {base.parent}\nversion = {sys.version.split()[0]}\n"
    project.write({**pipeline(a={"shell": ["python", "-c", "import sys; open('a', 'w').write(sys.prefix)"]})})
    project.write({".venv/pyvenv.cfg": config, "secret": "x"})
    (project.root / ".venv/bin").mkdir()
    (project.root / ".venv/bin/python").symlink_to(base)


@pytest.fixture
def below_usr() -> Iterator[Project]:
    """Give a project where images have one."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="orch23-test-", dir="/usr/src"))
    except OSError as refused:
        pytest.skip(f"nothing can be made in /usr/src: {refused}")
    try:
        yield Project(folder / "app")
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_a_project_below_usr_is_as_closed_as_any_other(below_usr: Project, name: str) -> None:
    project = below_usr
    looking = f"cat {project.root}/.env {project.root}/in; ls {project.root}"
    script = "{ (" + looking + ") 2> /dev/null || true; ls -d /usr/src /usr/bin; } > a"
    project.write({**pipeline(a={"inputs": ["in"], "shell": script}), "in": "input", ".env": "KEY=canary"})
    with tier(chosen(name)):
        outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("a") == "/usr/bin\n/usr/src\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", TIERS)
def test_an_interpreter_in_a_project_below_usr_is_seen(below_usr: Project, name: str) -> None:
    with_an_environment(below_usr)
    with tier(chosen(name)):
        outcome = below_usr.build()
    assert outcome.code == 0, outcome.err
    assert below_usr.read("a") == str(below_usr.root / ".venv")


# ---- off, and allowed ---------------------------------------------------------------------------------------------


def test_a_stage_without_a_sandbox_is_refused_before_the_first_stage(project: Project) -> None:
    off = {"shell": "echo b > b", "sandbox": "off"}
    project.write(pipeline(a={"shell": "echo a > a"}, b=off, c={**off, "shell": "echo c > c"}))
    outcome = project.build()
    assert outcome.code == 78
    assert "E484" in outcome.err
    assert "b: it says `sandbox: off`" in re.sub(r"\s+", " ", outcome.err)
    assert "`c` too" in outcome.err
    assert ALLOWED in outcome.err
    assert not any(project.exists(name) for name in "abc")
    assert set(project.plan().values()) == {"run"}


def test_a_stage_without_a_sandbox_runs_where_that_is_allowed(project: Project) -> None:
    target = project.root.parent / "beside"
    project.write(pipeline(b={"shell": f"echo b > b; echo b > {target}", "sandbox": "off"}))
    with tier(chosen("bubblewrap")):
        outcome = project.build(ALLOWED)
    assert outcome.code == 0, outcome.err
    assert target.read_text() == "b\n"


def test_allowing_leaves_the_other_stages_confined(project: Project) -> None:
    target = project.root.parent / "beside"
    project.write(pipeline(a={"shell": f"echo a > a; echo a > {target}"}))
    with tier(chosen("bubblewrap")):
        assert project.build(ALLOWED).code == 1
    assert not target.exists()


def test_the_variable_allows_as_the_flag_does(project: Project) -> None:
    project.write(pipeline(b={"shell": "echo b > b", "sandbox": "off"}))
    assert project.build(env={"ORCH23_ALLOW_UNSANDBOXED": "1"}).code == 0


def test_a_fresh_stage_without_a_sandbox_needs_no_ones_leave(project: Project) -> None:
    project.write(pipeline(b={"shell": "echo b > b", "sandbox": "off"}))
    assert project.build(ALLOWED).code == 0
    assert project.build().code == 0


def test_the_sandbox_is_no_part_of_the_key(project: Project) -> None:
    project.write(pipeline(b={"shell": "echo b > b"}))
    assert project.build().code == 0
    project.write(pipeline(b={"shell": "echo b > b", "sandbox": "off"}))
    assert project.plan() == {"b": "fresh"}


def test_defaults_switch_it_off_for_all_stages(project: Project) -> None:
    files = pipeline(a={"shell": "echo a > a"})
    document = json.loads(files["pipeline.yaml"])
    document["defaults"]["sandbox"] = "off"
    project.write({**files, "pipeline.yaml": json.dumps(document)})
    assert "E484" in project.build().err


def test_a_stage_that_first_turns_out_to_run_later_is_refused_then(project: Project) -> None:
    """Nothing is known of it before the first stage: it is not started even so."""
    project.write(pipeline(a={"shell": "date +%N > a"}))
    files = pipeline(a={"shell": "date +%N > a"}, b={"inputs": ["a"], "shell": "cp a b", "sandbox": "off"})
    project.write(files)
    assert project.build(ALLOWED).code == 0
    project.write({"pipeline.yaml": files["pipeline.yaml"].replace("+%N", "+%s%N")})
    outcome = project.build()
    assert outcome.code == 78
    assert "E484" in outcome.err


@pytest.mark.parametrize("value", ["true", "no", "maybe"])
def test_other_words_are_refused(project: Project, value: str) -> None:
    text = f"version: 1\nstages:\n  a: {{outputs: [a], shell: echo, sandbox: {value}}}\n"
    assert project.write({"pipeline.yaml": text}).build().code == 65


# ---- a machine without any ----------------------------------------------------------------------------------------


def test_without_any_tier_nothing_runs_and_the_way_out_is_reported(project: Project) -> None:
    project.write(pipeline(a={"shell": "echo a > a"}))
    with tier(NONE):
        outcome = project.build()
        assert outcome.code == 78
        for reported in ("E483", "it is not installed", "the kernel has none", "apt-get install bubblewrap", ALLOWED):
            assert reported in re.sub(r"\s+", " ", outcome.err)
        assert project.plan() == {"a": "run"}
        assert not project.exists("a")
        allowed = project.build(ALLOWED)
    assert allowed.code == 0
    assert "sandbox: none" in allowed.err
    assert "steps run without a sandbox" in allowed.err
    assert project.events_of("run_started")[-1]["data"]["sandbox"] == "none"


def test_without_any_tier_nothing_runs_before_a_stage_that_may_run_a_process(project: Project) -> None:
    """Whether it will is known only when others have run, and a model was paid for by then."""
    files = scripted(
        {
            "list": {"outputs": ["list.json"], "llm": {"returns": "text"}},
            "each": {
                "foreach": {"from": "list.json", "as": "x"},
                "outputs": ["${{ x }}"],
                "llm": {"returns": "text"},
                "verify": [{"shell": ["true"]}],
            },
        },
        {"list": ['["x"]'], "each@x": ["text"]},
    )
    with tier(NONE):
        outcome = project.write(files).build()
        assert (outcome.code, project.exists("list.json")) == (78, False)
        assert "E483" in outcome.err
        assert "each: no sandbox works" in re.sub(r"\s+", " ", outcome.err)
        assert project.build(ALLOWED).code == 0
        assert project.build().code == 0, "all is fresh"


def test_without_any_tier_nothing_runs_before_a_stage_that_depends_on_what_comes(project: Project) -> None:
    files = scripted(
        {
            "said": {"outputs": ["said"], "llm": {"returns": "text"}},
            "used": {"inputs": ["said"], "outputs": ["used"], "shell": "cp said used"},
        },
        {"said": ["text"]},
    )
    with tier(NONE):
        first = project.write(files).build()
        assert (first.code, project.exists("said"), project.journals()) == (78, False, [])
        assert "used: no sandbox works" in re.sub(r"\s+", " ", first.err)
        assert project.build(ALLOWED).code == 0
        project.edit("pipeline.md.j2", "say it otherwise")
        assert project.plan() == {"said": "run", "used": "maybe"}
        runs = len(project.journals())
        outcome = project.build()
        assert (outcome.code, len(project.journals())) == (78, runs)
    assert "used: no sandbox works" in re.sub(r"\s+", " ", outcome.err)


def test_without_any_tier_a_pipeline_without_processes_is_built(project: Project) -> None:
    project.write(scripted({"a": {"outputs": ["a"], "llm": {"returns": "text"}}}, {"a": ["text"]}))
    with patch(SELF_TEST, side_effect=AssertionError("nobody has to know")):
        outcome = project.build()
    assert outcome.code == 0
    assert "sandbox: unused" in outcome.err


def test_a_pipeline_whose_processes_are_all_allowed_to_run_without_tries_no_sandbox(project: Project) -> None:
    off = {"outputs": ["b"], "shell": "echo b > b", "sandbox": "off"}
    each = {"foreach": {"in": ["x"]}, "outputs": ["${{ item }}"], "shell": "echo > ${{ item }}", "sandbox": "off"}
    project.write(pipeline(b=off, each=each))
    with patch(SELF_TEST, side_effect=AssertionError("nobody has to know")):
        outcome = project.build(ALLOWED)
    assert (outcome.code, project.exists("b"), project.exists("x")) == (0, True, True)
    assert "sandbox: unused" in outcome.err
    project.write(pipeline(b=off, each=each, c={"outputs": ["c"], "shell": "echo c > c"}))
    outcome = project.build(ALLOWED)
    assert outcome.code == 0
    assert "sandbox: unused" not in outcome.err


def test_without_any_tier_what_is_fresh_stays_fresh(project: Project) -> None:
    project.write(pipeline(a={"shell": "echo a > a"}))
    assert project.build().code == 0
    with tier(NONE):
        assert project.build().code == 0


# ---- told before ----------------------------------------------------------------------------------------------


def opened(project: Project) -> Project:
    """Write a pipeline in which some stages ask for the network, or for no sandbox."""
    item = {
        "foreach": {"in": ["x", "y"], "as": "one"},
        "outputs": ["${{ one }}"],
        "shell": "echo ${{ one }} > ${{ one }}",
    }
    stages = {
        "a": {"shell": "echo a > a", "network": True},
        "b": {"shell": "echo b > b", "sandbox": "off"},
        "c": {"shell": "echo c > c"},
        "each": {**item, "network": True},
    }
    return project.write(pipeline(**stages))


def test_a_plan_names_the_stages_with_the_network_and_those_without_a_sandbox(project: Project) -> None:
    reported = opened(project).run("plan").out
    assert " would run with the network: a each@x each@y\n would run without a sandbox: b\n" in reported
    assert reported == project.build("-n").out
    shown = project.run("plan", "--json").json()["stages"]
    assert {one["stage"] for one in shown if one["network"]} == {"a", "each@x", "each@y"}
    assert {one["stage"]: one["sandbox"] for one in shown if not one["network"]} == {"b": "off", "c": "on"}


def test_of_stages_that_are_fresh_a_plan_says_so_to_programs_alone(project: Project) -> None:
    files = pipeline(
        a={"shell": "echo a > a", "network": True, "cache": True}, b={"shell": "echo b > b", "sandbox": "off"}
    )
    assert project.write(files).build(ALLOWED).code == 0
    plan = project.run("plan").out
    assert "would run" not in plan
    assert " to run" not in plan
    reported = project.run("plan", "--json").json()["stages"]
    assert [(one["action"], one["network"], one["sandbox"]) for one in reported] == [
        ("fresh", True, "on"),
        ("fresh", False, "off"),
    ]


@pytest.mark.needs("inspecting")
def test_explain_says_what_a_stage_may_reach(project: Project) -> None:
    opened(project)
    assert "it uses the network" in project.run("explain", "a").out
    assert "its processes run without a sandbox" in project.run("explain", "b").out
    confined = project.run("explain", "c").out
    assert "network" not in confined
    assert "sandbox" not in confined
    assert project.run("explain", "a", "--json").json()["network"] is True


# ---- told ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TIERS)
def test_the_tier_is_on_the_screen_and_in_the_journal(project: Project, name: str) -> None:
    with tier(chosen(name)):
        outcome = project.write(pipeline(a={"shell": "echo a > a"})).build()
        assert project.events_of("run_started")[-1]["data"]["sandbox"] == name
        again = project.build()
    assert f"sandbox: {name}" in outcome.err
    assert (LESS in outcome.err) == (name == "landlock")
    assert again.err == "pipeline: up to date (1 stage)\n"


@pytest.mark.slow
def test_the_warning_about_landlock_is_shown_once_for_a_project(project: Project) -> None:
    with tier(chosen("landlock")):
        project.write({**pipeline(a={"shell": "cat in > a", "inputs": ["in"]}), "in": "1"})
        assert LESS in project.build("a").err
        project.write({"in": "2"})
        second = project.build("a")
        assert "built" in second.err
        assert LESS not in second.err
        (project.root / ".orch23/sandbox").write_bytes(b"\xff")
        project.write({"in": "3"})
        assert LESS in project.build("a").err
    with tier(NONE):  # without any sandbox each build shows it
        for text in ("4", "5"):
            project.write({"in": text})
            assert "steps run without a sandbox" in project.build("a", ALLOWED).err
    with tier(chosen("landlock")):
        project.write({"in": "6"})
        assert LESS not in project.build("a").err


def found(project: Project) -> dict[str, Any]:
    facts = project.run("doctor", "--json").json()["facts"]
    return next(fact for fact in facts if fact["name"] == "sandbox")


@pytest.mark.needs("doctor")
def test_the_doctor_tries_the_sandbox(project: Project) -> None:
    need("namespaces")
    assert best_tier_once().tier == "namespaces"
    assert found(project)["ok"]
    assert found(project)["value"].startswith("namespaces: own namespaces, no network")
    with patch("orch23.features.doctor.checks.best_tier_once", return_value=chosen("bubblewrap")):
        assert found(project)["ok"]
        assert "bubblewrap (/usr/bin/bwrap)" in found(project)["value"]


@pytest.mark.needs("doctor")
def test_the_doctor_says_why_it_is_no_better_one(project: Project) -> None:
    missing = (("bubblewrap", "it is not installed"),)
    with patch("orch23.features.doctor.checks.best_tier_once", return_value=TierChoice(LandlockLauncher(), missing)):
        fact = found(project)
    assert not fact["ok"]
    assert fact["value"].startswith("Landlock")
    assert "it is not installed; install bubblewrap" in fact["hint"]
    with patch("orch23.features.doctor.checks.best_tier_once", return_value=NONE):
        fact = found(project)
    assert fact["value"] == "none: steps do not run"
    assert ALLOWED in fact["hint"]


# ---- a minimum ----------------------------------------------------------------------------------------------------

STRICT = {"shell": "echo b > b", "sandbox": "namespaces"}


@pytest.mark.parametrize("name", ["landlock", UNCONFINED])
@pytest.mark.parametrize("flags", [(), (ALLOWED,)])
def test_a_stage_that_requires_namespaces_is_refused_before_the_first_stage(
    project: Project, name: str, flags: tuple[str, ...]
) -> None:
    project.write(pipeline(a={"shell": "echo a > a"}, b=STRICT))
    with tier(chosen(name)):
        outcome = project.build(*flags)
    assert outcome.code == 78
    assert "E483" in outcome.err
    assert not any(project.exists(name) for name in "ab")


def test_the_items_of_a_foreach_can_require_namespaces(project: Project) -> None:
    items = {"foreach": {"in": ["x", "y"], "as": "i"}, "shell": "echo b > ${{ i }}", "outputs": ["${{ i }}"]}
    project.write(pipeline(b={**items, "sandbox": "namespaces"}))
    with tier(chosen("landlock")):
        outcome = project.build()
    assert (outcome.code, project.exists("x")) == (78, False)
    assert "needs at least `namespaces`" in re.sub(r"\s+", " ", outcome.err)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bubblewrap", "namespaces"])
def test_a_stage_that_requires_namespaces_runs_in_them_and_is_then_fresh_anywhere(project: Project, name: str) -> None:
    project.write(pipeline(b=STRICT))
    with tier(chosen(name)):
        assert project.build().code == 0
    with tier(chosen("landlock")):
        assert project.build().code == 0
    assert project.read("b") == "b\n"
