"""Pools: so many stages of a kind or name at once, and nothing else changes."""

import pytest

from tests.e2e.pipelines import ends, green, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

NAP = "shell: 'sleep 0.2; echo {0} > {0}.txt', outputs: [{0}.txt]"


def stages(**pools: str) -> str:
    """Return stages that take a moment, each with the pools it names."""
    lines = [
        f"  {name}: {{{NAP.format(name)}{f', pools: {given}' if given else ''}}}\n" for name, given in pools.items()
    ]
    return "".join(lines)


def most_at_once(project: Project, *names: str) -> int:
    """Return how many of these stages ran at the same time, at most, in the newest run."""
    now = most = 0
    for event in project.events():
        if event["role"] in names:
            now += {"attempt_started": 1, "attempt_finished": -1}.get(event["type"], 0)
            most = max(most, now)
    return most


def test_so_many_stages_of_a_kind_run_at_once(project: Project) -> None:
    project.write(shell(stages(a="", b="", c="", d=""), head="pools: {shell: 2}\n"))
    green(project.build("-j8"))
    assert most_at_once(project, "a", "b", "c", "d") == 2


def test_a_kind_without_a_pool_has_the_jobs_alone_as_its_limit(project: Project) -> None:
    project.write(shell(stages(a="", b="", c=""), head="pools: {llm: 1}\n"))
    green(project.build("-j3"))
    assert most_at_once(project, "a", "b", "c") == 3
    green(project.build("-j2", *(word for name in "abc" for word in ("--force", name))))
    assert most_at_once(project, "a", "b", "c") == 2


def test_a_stage_that_waits_for_its_pool_blocks_no_one(project: Project) -> None:
    project.write(shell(stages(a="[gpu]", b="[gpu]", c="[gpu]", z=""), head="pools: {gpu: 1}\n"))
    green(project.build("-j2"))
    assert project.ran().index("z") == 1, "b and c came first, and wait"
    assert most_at_once(project, "a", "b", "c") == 1
    assert most_at_once(project, "a", "b", "c", "z") == 2


def test_a_stage_takes_a_place_in_every_pool_that_it_names(project: Project) -> None:
    given = stages(a="[gpu, disk]", b="[gpu]", c="[disk]")
    project.write(shell(given, head="pools: {gpu: 1, disk: 1, shell: 3}\n"))
    green(project.build("-j8"))
    assert most_at_once(project, "a", "b") == 1
    assert most_at_once(project, "a", "c") == 1
    assert most_at_once(project, "b", "c") == 2


def test_the_items_of_a_foreach_share_its_pools_and_jobs_one_is_no_deadlock(project: Project) -> None:
    each = "  each: {foreach: {in: [1, 2, 3], as: n}, pools: [gpu], outputs: ['${{ n }}.txt'], "
    each += "shell: 'sleep 0.1; echo > ${{ n }}.txt'}\n"
    project.write(shell(each, head="pools: {gpu: 1}\n"))
    green(project.build("-j4"))
    assert most_at_once(project, "each@1", "each@2", "each@3") == 1
    green(project.build("-j1", "--force", "each"))
    assert len(project.ran()) == 3


def test_pools_are_no_part_of_the_key(project: Project) -> None:
    project.write(shell(stages(a="", b=""), head="pools: {gpu: 1}\n"))
    green(project.build())
    project.replace("pipeline.yaml", "outputs: [a.txt]", "outputs: [a.txt], pools: [gpu]")
    project.replace("pipeline.yaml", "pools: {gpu: 1}", "pools: {gpu: 2, shell: 1}")
    assert project.plan() == {"a": "fresh", "b": "fresh"}


def test_where_a_stage_runs_and_what_it_takes_are_no_part_of_the_key(project: Project) -> None:
    project.write(shell(stages(a="", b="[gpu]"), head="pools: {gpu: 1}\n"))
    green(project.build())
    project.replace("pipeline.yaml", "pools: {gpu: 1}", "pools: {gpu: {executor: dask, resources: {gpu: 1}}}")
    assert project.plan() == {"a": "fresh", "b": "fresh"}


def test_all_errors_of_pools_are_reported_at_once(project: Project) -> None:
    pools = "pools: {a: {executor: dask, resources: {gpu: -1}}, b: {executor: locl}, c: {}, d: {executor: reapi}}\n"
    project.write(shell("  s: {shell: [touch, s], pools: [a, d]}\n  t: {shell: [touch, t], pools: [e]}\n", head=pools))
    refused = project.run("validate")
    assert refused.code == 65
    for code in ("E812", "E846", "E816", "E817"):
        assert refused.err.count(f"error[{code}]") == (2 if code == "E812" else 1), refused.err


def test_a_model_that_is_waited_for_takes_no_job_where_calls_have_a_pool(project: Project) -> None:
    waiting = f"cat > /dev/null; while [ ! -e {project.root}/s.txt ]; do sleep 0.02; done; echo x"
    llm = f"provider: command, model: m, command: [sh, -c, '{waiting}'], prompt: p.md.j2, returns: text, timeout: 30"
    given = f"  ask: {{llm: {{{llm}}}, outputs: [said.txt]}}\n  s: {{shell: echo > s.txt, outputs: [s.txt]}}\n"
    project.write(shell(given, {"p.md.j2": "Wait for it."}, head="pools: {llm: 1}\n"))
    green(project.build("-j1"))
    assert [event["role"] for event in project.events_of("stage_finished")] == ["s", "ask"]


def test_what_is_fresh_needs_no_place(project: Project) -> None:
    project.write(shell(stages(a="[gpu]", b="[gpu]", c="[gpu]"), head="pools: {gpu: 1}\n"))
    green(project.build())
    green(project.build("-j8", "--force", "a"))
    reported = [event["role"] for event in project.events_of("stage_finished")]
    assert reported == ["b", "c", "a"], "b and c did not wait for a"


def test_what_waits_for_its_pool_is_not_begun_after_a_failure(project: Project) -> None:
    given = "  a: {shell: 'sleep 0.1; exit 3', pools: [gpu]}\n" + stages(b="[gpu]", c="[gpu]")
    project.write(shell(given, head="pools: {gpu: 1}\n"))
    assert project.build("-j8").code == 1
    assert project.ran() == ["a"]
    assert ends(project) == {"a": "failed", "b": "blocked", "c": "blocked"}
    assert project.build("-j8", "-k").code == 1
    assert project.ran() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("stage", "top", "words"),
    [
        ("pools: [gpo]", "pools: {gpu: 1}", "did you mean `gpu`?"),
        ("pools: [gpu]", "jobs: 1", "write `pools: {gpu: 1}` at the top of the file"),
        ("pools: [gpu]", "pools: {gpu: 0}", "the minimum is 1"),
        ("foreach: {in: [x], as: t}, pools: ['${{ t }}']", "pools: {x: 1}", "an item may not decide `pools`"),
        ("foreach: {in: [x], as: t}, pools: [gpo]", "pools: {gpu: 1}", "did you mean `gpu`?"),
        ("pools: [gpu]", "pools: {gpu: {siz: 1}}", "did you mean `size`?"),
        ("pools: [gpu]", "pools: {gpu: {executor: daks}}", "did you mean `dask`?"),
        ("pools: [gpu]", "pools: {gpu: {executor: slurm}}", "the executors are: local, dask, reapi"),
        ("pools: [gpu]", "pools: {gpu: {resources: {memory: 8 GB/s}}}", "or a size such as 512MiB or 8GiB"),
        ("pools: [a, b]", "pools: {a: {executor: dask}, b: {executor: local}}", "`b` runs steps with `local`"),
        (
            "foreach: {in: [x], as: t}, pools: [a, b]",
            "pools: {a: {executor: dask}, b: {executor: local}}",
            "the pool `b` runs steps with `local`, and `a` with `dask`",
        ),
    ],
)
def test_a_pool_that_cannot_be_is_found_before_anything_runs(
    project: Project, stage: str, top: str, words: str
) -> None:
    project.write(shell(f"  a: {{shell: [touch, a], {stage}}}\n", head=f"{top}\n"))
    refused = project.build()
    assert (refused.code, words in refused.err) == (65, True)
    assert not (project.root / "logs").exists()
