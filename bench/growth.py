"""Measure how the CPU time of orch23's commands grows with the number of stages.

`python -m bench.growth [--sizes 100,1000] [--shapes TEXT]` measures the orch23 of this tree and prints the table.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.environments import cache_folder, environment, install
from bench.figures import milliseconds, times
from bench.growth_cases import BUILD, SHAPES, Case, Shape, name_of
from bench.measure import Run, Runner, Stopwatch
from bench.results import FAILED, RIGHT, Measurement, measurement
from bench.table import markdown
from bench.tool import Installed, Missing
from bench.tools.orch23 import TRUSTED

SIZES = (100, 1_000, 10_000, 30_000)
ROUNDS = 3
LARGE = 10_000
"""From this size on, each case is measured once."""
SETTLED_S = 2.5
LIMIT_S = 1_800.0
NOISE_S = 20e-6
"""An added stage may always take this much CPU time: less is not distinguished from noise."""

# ---- measuring ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Growth:
    """Runs the cases of all shapes with one orch23."""

    tool: Installed
    cache: Path
    stopwatch: Runner
    say: Callable[[str], None]
    rounds: int = ROUNDS

    def at(self, size: int, shapes: Sequence[Shape] = SHAPES) -> Iterator[Measurement]:
        """Measure shapes at one size."""
        for shape in shapes:
            root = self.cache / "work" / f"growth-{size}"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            shape.write(root, size)
            yield from self._shape(shape, root, size)
            shutil.rmtree(root)

    def _shape(self, shape: Shape, root: Path, size: int) -> Iterator[Measurement]:
        cases = [case for part in shape.parts for case in part]
        runs: dict[Case, list[Run]] = {case: [] for case in cases}
        faults: dict[Case, str] = {}
        for part in shape.parts:
            for number in range(self.rounds if size < LARGE else 1):
                for case in part:
                    if not (number and case.once):
                        self._one(case, root, number, runs[case], faults)
                        cpu = f"{milliseconds(runs[case][-1].cpu_s)} ms" if runs[case] else ""
                        self.say(f"  {size:,}, {name_of(shape.name, case.name)}: {faults.get(case, cpu)}")
        for case in cases:
            name = name_of(shape.name, case.name)
            fault = faults.get(case, "")
            yield measurement(
                tool=self.tool.tool.name,
                size=size,
                scenario=name,
                runs=() if fault else runs[case],
                outcome=FAILED if fault else RIGHT,
                note=fault,
            )

    def _one(self, case: Case, root: Path, number: int, runs: list[Run], faults: dict[Case, str]) -> None:
        try:
            case.prepare(root, number)
        except OSError as error:  # an earlier case failed
            faults[case] = f"{error.strerror}: {error.filename}"
            return
        if case.settled:
            time.sleep(SETTLED_S)
            self._run(BUILD, root)
        run = self._run(case.command, root)
        runs.append(run)
        text = self.stopwatch.said()
        if run.code != case.code or case.expected not in text:
            faults[case] = f"exit status {run.code}: {text[-200:]}"

    def _run(self, command: Sequence[str], root: Path) -> Run:
        variables = environment(self.tool.tool, self.tool.program, self.cache)
        return self.stopwatch.run((str(self.tool.program), *command), root, variables, LIMIT_S)


# ---- the table ------------------------------------------------------------------------------------------


def steps(measured: Sequence[Measurement], scenario: str) -> list[tuple[int, float]]:
    """Return of each size after the first the CPU time, in seconds, that each added stage took."""
    found = sorted((one.size, one.cpu.middle) for one in measured if one.scenario == scenario and one.wall_s)
    return [(size, (took - before) / (size - smaller)) for (smaller, before), (size, took) in pairwise(found)]


def factors(measured: Sequence[Measurement]) -> dict[tuple[str, int], float]:
    """Return by how much each step of each scenario costs more per added stage than the step before, or than noise."""
    return {
        (scenario, size): took / max(before, NOISE_S)
        for scenario in scenarios(measured)
        for (_, before), (size, took) in pairwise(steps(measured, scenario))
    }


def scenarios(measured: Sequence[Measurement]) -> list[str]:
    """Return the names of what was measured, in order."""
    return list(dict.fromkeys(one.scenario for one in measured))


def rows(measured: Sequence[Measurement]) -> Iterator[list[str]]:
    """Give the rows of the table: CPU ms at each size and per stage, per added stage, and the growth of that."""
    sizes = sorted({one.size for one in measured})
    cpu = {(one.scenario, one.size): one.cpu.middle for one in measured if one.wall_s}
    growth = factors(measured)
    for scenario in scenarios(measured):
        added = dict(steps(measured, scenario))
        row = [scenario]
        for size in sizes:
            took = cpu.get((scenario, size))
            row.append("failed" if took is None else f"{milliseconds(took)} ({took * 1000 / size:.3f})")
        row += [f"{added[size] * 1000:.3f}" if size in added else "-" for size in sizes[1:]]
        row += [times(growth[scenario, size]) if (scenario, size) in growth else "-" for size in sizes[2:]]
        yield row


def head(measured: Sequence[Measurement]) -> list[str]:
    """Return the head of the table."""
    sizes = [f"{size:,}" for size in sorted({one.size for one in measured})]
    return ["", *sizes, *(f"to {size}" for size in sizes[1:]), *(f"factor, {size}" for size in sizes[2:])]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of stages, such as 100,1000")
    parser.add_argument("--shapes", default="", help="only shapes with this text in their names")
    given = parser.parse_args(argv)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    tool = install(TRUSTED, cache)
    if isinstance(tool, Missing):
        sys.exit(tool.reason)
    shapes = [shape for shape in SHAPES if given.shapes in shape.name]
    found: list[Measurement] = []
    with Stopwatch(cache / "output") as stopwatch:
        growth = Growth(tool, cache, stopwatch, lambda text: print(text, file=sys.stderr, flush=True))
        for size in map(int, given.sizes.split(",")):
            found += growth.at(size, shapes)
    print(markdown(head(found), list(rows(found))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
