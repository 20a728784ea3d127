"""The table of growth: the cases run in order, each is checked, and what an added stage costs is computed."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import growth
from bench.growth import Growth
from bench.growth_cases import SHAPES, Case, Shape
from bench.measure import Run, Stopwatch
from bench.results import FAILED, RIGHT, Measurement
from bench.tool import Installed
from bench.tools.orch23 import TRUSTED

ROOT = Path(__file__).parents[3]


class Printer:
    """A stopwatch whose programs print what a file of the project holds."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.text = ""

    def run(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Run:
        """Read the file."""
        del environment, limit_s
        self.calls.append(tuple(argv[1:]))
        self.text = (folder / "file").read_text()
        return Run(0.1, 0.2, 1 << 20, 0, late=False)

    def said(self) -> str:
        """Return what the file held."""
        return self.text


def write(root: Path, count: int) -> None:
    (root / "file").write_text(f"{count} items")


def edit(root: Path, number: int) -> None:
    (root / "file").write_text(f"edit {number}")


def nothing(text: str) -> None:
    del text


def grow(tmp_path: Path, *parts: tuple[Case, ...], size: int = 7) -> tuple[list[Measurement], Printer]:
    printer = Printer()
    tool = Installed(TRUSTED, Path("orch23"), "1")
    found = Growth(tool, tmp_path, printer, nothing, rounds=2).at(size, (Shape("shape", write, parts),))
    return list(found), printer


def test_the_cases_of_a_part_are_repeated_and_those_of_a_first_build_are_not(tmp_path: Path) -> None:
    first = (Case("first", ("first",), expected="7 items", once=True),)
    more = (Case("edit", ("build",), edit, "edit"), Case("again", ("plan",)))
    found, printer = grow(tmp_path, first, more)
    assert [call[0] for call in printer.calls] == ["first", "build", "plan", "build", "plan"]
    assert [(one.scenario, len(one.cpu_s)) for one in found] == [
        ("shape: first", 1),
        ("shape: edit", 2),
        ("shape: again", 2),
    ]
    assert {one.outcome for one in found} == {RIGHT}
    assert not list(tmp_path.glob("work/*"))


def test_large_projects_are_measured_once(tmp_path: Path) -> None:
    _, printer = grow(tmp_path, (Case("plan", ("plan",)),), size=growth.LARGE)
    assert len(printer.calls) == 1


@pytest.mark.parametrize("case", [Case("one", ("plan",), expected="up to date"), Case("one", ("plan",), code=65)])
def test_a_command_that_prints_or_exits_otherwise_has_no_times(tmp_path: Path, case: Case) -> None:
    (one,), _ = grow(tmp_path, (case,))
    assert (one.outcome, one.cpu_s) == (FAILED, ())
    assert one.note == "exit status 0: 7 items"


def test_a_settled_case_waits_and_builds_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("bench.growth.time.sleep", waits.append)
    _, printer = grow(tmp_path, (Case("one", ("plan",), settled=True, once=True),))
    assert [call[0] for call in printer.calls] == ["build", "plan"]
    assert waits == [growth.SETTLED_S]


def test_an_added_stage_is_compared_with_those_of_the_step_before() -> None:
    took = ((100, 0.1), (1_000, 1.0), (10_000, 19.0), (30_000, 59.0))
    measured = [Measurement("orch23", size, "plan", RIGHT, (1.0,), (cpu,), (1,)) for size, cpu in took]
    assert [(size, round(each, 6)) for size, each in growth.steps(measured, "plan")] == [
        (1_000, 0.001),
        (10_000, 0.002),
        (30_000, 0.002),
    ]
    assert {key: round(one, 3) for key, one in growth.factors(measured).items()} == {
        ("plan", 10_000): 2.0,
        ("plan", 30_000): 1.0,
    }
    (row,) = growth.rows(measured)
    assert row == [
        "plan",
        *("100 (1.000)", "1,000 (1.000)", "19,000 (1.900)", "59,000 (1.967)"),
        *("1.000", "2.000", "2.000"),
        *("2.00", "1.00"),
    ]
    assert len(growth.head(measured)) == len(row)


def test_steps_below_the_noise_are_not_compared_with_nothing() -> None:
    took = ((100, 0.010), (1_000, 0.010), (10_000, 0.100))
    measured = [Measurement("orch23", size, "build", RIGHT, (1.0,), (cpu,), (1,)) for size, cpu in took]
    assert growth.factors(measured)["build", 10_000] == pytest.approx(0.5)


def test_names_of_cases_are_unique() -> None:
    names = [(shape.name, case.name) for shape in SHAPES for part in shape.parts for case in part]
    assert len(set(names)) == len(names)


@pytest.mark.thorough
def test_every_case_prints_what_it_is_meant_to_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SETTLED_S", 0)
    program = tmp_path / "orch23"
    program.write_text(f"#!{sys.executable}\nfrom orch23.entry import run\n\nrun()\n")
    program.chmod(0o700)
    tool = replace(TRUSTED, environment={**TRUSTED.environment, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))})
    with Stopwatch(tmp_path / "output") as stopwatch:
        found = list(Growth(Installed(tool, program, "1"), tmp_path, stopwatch, nothing, rounds=1).at(10))
    assert [re.sub(r"\s+", " ", one.note) for one in found if one.outcome != RIGHT] == []
