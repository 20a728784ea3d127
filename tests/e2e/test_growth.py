"""A command makes as many function calls for each added stage with many stages as with few: nothing is quadratic.

Calls are counted, not time, so a slow machine changes nothing. The memory of a first build is measured as what Python
allocates, for the same reason.
"""

import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.decide.decisions import StageDecider
from orch23.decide.dry_run import DryRun
from orch23.engine import result_writer
from orch23.model.plan import Decision
from tests.calls import counted_calls
from tests.project import Project

SIZES = (20, 50, 110)
MOST = 1.03
"""A few calls more are normal: the numbers of stages get longer, and tables bigger."""


GENERATED = """\
  list: {shell: [cp, list.json, made.json], inputs: [list.json], outputs: [made.json]}
  each:
    foreach: {from: made.json, as: item}
    shell: [cp, in/100.txt, "each/${{ item }}.txt"]
    inputs: [in/100.txt]
    outputs: ["each/${{ item }}.txt"]
"""


def stages(count: int) -> str:
    """Return the text of a pipeline in which each stage copies a file."""
    lines = (
        f"  s{i}: {{shell: [cp, in/{i}.txt, out/{i}.txt], inputs: [in/{i}.txt], outputs: [out/{i}.txt]}}\n"
        for i in range(100, 100 + count)
    )
    return "version: 1\ndefaults: {sandbox: off}\nstages:\n" + "".join(lines)


def calls_of(root: Path, count: int, prepare: Callable[[Project], None], argv: tuple[str, ...]) -> int:
    """Return how many calls a command makes, after a build and a change."""
    project = Project(root)
    project.write({f"in/{i}.txt": f"{i}\n" for i in range(100, 100 + count)})
    project.write({"pipeline.yaml": stages(count)})
    assert project.build().code == 0
    prepare(project)
    with counted_calls() as calls:
        outcome = project.run(*argv)
    assert outcome.code == 0, outcome.err
    return calls[0]


def leave(project: Project) -> None:
    """Change nothing."""


@pytest.mark.slow
@pytest.mark.usefixtures("steps_reach_outside")
@pytest.mark.parametrize(
    ("prepare", "argv"),
    [
        pytest.param(leave, ("clean", "--force"), id="clean"),
    ],
)
def test_calls_per_stage_do_not_grow(tmp_path: Path, prepare: Callable[[Project], None], argv: tuple[str, ...]) -> None:
    # The first run imports modules.
    _, few, more, many = (calls_of(tmp_path / str(count), count, prepare, argv) for count in (1, *SIZES))
    before, after = (more - few) / (SIZES[1] - SIZES[0]), (many - more) / (SIZES[2] - SIZES[1])
    assert after < before * MOST, f"each added stage takes {after:.0f} calls instead of {before:.0f}"


MOST_CALLS = 520
"""Python calls to decide that a stage with one input and one output is fresh; 2,064 on 2026-11-26."""


@pytest.mark.slow
@pytest.mark.usefixtures("steps_reach_outside")
def test_a_fresh_stage_is_decided_with_few_calls(tmp_path: Path) -> None:
    decide = DryRun.run

    def calls(count: int) -> int:
        project = Project(tmp_path / str(count))
        project.write({f"in/{i}.txt": f"{i}\n" for i in range(100, 100 + count)})
        project.write({"pipeline.yaml": stages(count)})
        assert project.build().code == 0
        found: list[int] = []

        def counted(dry_run: DryRun) -> Mapping[str, Decision]:
            with counted_calls("call") as calls:
                decisions = decide(dry_run)
            found.append(calls[0])
            return decisions

        with patch.object(DryRun, "run", counted):
            assert project.run("plan", "--force", "s100").code == 0  # with this option all stages are decided
        return found[0]

    _, few, many = map(calls, (1, 12, 32))
    assert (many - few) / 20 < MOST_CALLS


@pytest.mark.needs("authoring")
@pytest.mark.usefixtures("steps_reach_outside")
def test_a_graph_of_known_stages_needs_no_decision(project: Project) -> None:
    project.write({f"in/{i}.txt": "" for i in (100, 101)})
    project.write({"pipeline.yaml": stages(2), "list.json": '["a"]'})
    with patch.object(StageDecider, "decide", autospec=True, side_effect=StageDecider.decide) as decided:
        assert "s101" in project.run("graph").out
        assert decided.call_count == 0
        project.edit("pipeline.yaml", stages(2) + GENERATED)
        assert project.build("--only", "list").code == 0
        decided.reset_mock()
        assert "each@a" in project.run("graph").out
        assert decided.call_count > 0


MOST_BYTES = 10_800
"""Allocated per added stage at the peak of a first build: 9,800 on 2026-11-25, and 11,700 before."""


@pytest.mark.slow
@pytest.mark.usefixtures("steps_reach_outside")
def test_a_first_build_needs_little_memory_for_each_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How many results wait for the disk together, and need memory until then, depends on the speed of the machine.
    monkeypatch.setattr(result_writer, "_PATIENCE_S", 0)
    monkeypatch.setattr(result_writer, "_SHARE", 0)
    peak_of_first_build(tmp_path / "imports", 2)
    # What threads do at the moment of the peak can only add to it: the least of some builds is what is needed.
    found = (growth_of_first_builds(tmp_path / f"{number}") for number in range(4))
    assert any(growth < MOST_BYTES for growth in found)


def growth_of_first_builds(root: Path) -> float:
    """Return how many bytes each of 60 more stages adds to the peak of a first build."""
    few, many = (peak_of_first_build(root / str(count), count) for count in (20, 80))
    return (many - few) / 60


def peak_of_first_build(root: Path, count: int) -> int:
    """Return the peak of the memory, in bytes, that Python allocates in a first build."""
    project = Project(root)
    project.write({f"in/{i}.txt": f"{i}\n" for i in range(100, 100 + count)})
    project.write({"pipeline.yaml": stages(count)})
    tracemalloc.start()
    try:
        outcome = project.run("build", "-j1")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.code == 0, outcome.err
    return peak
