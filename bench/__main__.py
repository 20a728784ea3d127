"""Run the bench: `python -m bench short`, or `long`, which writes bench/results and docs/performance.md.

`python -m bench rates` measures builds under a rate limit (`bench.rates`), and `python -m bench calls` what a call
costs in processor time (`bench.call_cost`).
"""

import argparse
import datetime as dt
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import call_cost, growth, many_inputs, page, rates, table
from bench.course import Course, Limits, elapsed
from bench.environments import TREE, InstallError, cache_folder, full_commit, install
from bench.growth import Growth
from bench.many_inputs import ManyInputs, kinds
from bench.measure import Stopwatch
from bench.missed_edits import play_all
from bench.models import edit_costs, waiting
from bench.results import RESULTS, Results, write
from bench.sandbox_cost import stage_costs
from bench.tool import FromTree, Installed, Missing, Tool
from bench.tools.floor import FLOOR
from bench.tools.orch23 import TRUSTED
from bench.tools.registry import BY_NAME, TOOLS

SHORT_TOOLS = ("orch23", "floor", "ninja", "ninja restat", "make -rR", "make", "doit")
SLOW_TOOLS = frozenset({"DVC", "Snakemake", "SCons", "go-task", "turborepo", "wireit"})
"""These take minutes where the others take seconds."""
GROWTH_TOOLS = ("orch23", "floor", "ninja", "make -rR")
GROWTH_SIZES = frozenset({3_000, 30_000})
_SHOWN = 9


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the bench: which tools at which sizes, how often, and how long the histories may take.

    `growth_sizes` are the sizes of the table of growth, `input_files` the sizes of a stage with many inputs.
    """

    name: str
    tools: tuple[str, ...]
    sizes: tuple[int, ...]
    limits: Limits
    history_s: float
    cost_rounds: int
    model_rounds: int
    growth_sizes: tuple[int, ...] = ()
    input_files: tuple[int, ...] = (1_000,)
    slow_up_to: float = math.inf
    more: tuple[Tool, ...] = ()

    def takes_part(self, tool: str, size: int) -> bool:
        """Say whether a tool is measured at a size."""
        if size in GROWTH_SIZES:
            return tool in GROWTH_TOOLS
        return tool not in SLOW_TOOLS or size <= self.slow_up_to


SHORT = Form("short", SHORT_TOOLS, (100, 1_000), Limits(3, 1, 60, 180), 3, 20, 0)
LONG = Form(
    "long",
    tuple(tool.name for tool in TOOLS),
    (100, 1_000, 3_000, 10_000, 30_000),
    Limits(5, 3, 150),
    90,
    100,
    3,
    growth_sizes=growth.SIZES,
    input_files=many_inputs.SIZES,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write."""
    given = sys.argv[1:] if argv is None else argv
    if list(given) == ["rates"]:
        return rates.main()
    if list(given) == ["calls"]:
        return call_cost.main()
    form, keep = _asked(argv)
    command = "make bench-long" if form == LONG else " ".join(("python -m bench", *given))
    began = time.monotonic()
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    known = {**BY_NAME, **{tool.name: tool for tool in form.more}}
    found = [install(known[name], cache) for name in form.tools]
    tools = [one for one in found if isinstance(one, Installed)]
    players = [one for one in tools if not one.tool.only]
    for one in found:
        reported = f"missing: {one.reason}" if isinstance(one, Missing) else one.version
        print(f"{one.tool.name:<16} {reported}", flush=True)
    results = Results(
        date=dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        form=form.name,
        command=command,
        machine=machine(cache),
        versions={one.tool.name: one.version for one in tools},
        missing={one.tool.name: one.reason for one in found if isinstance(one, Missing)},
        measurements=(),
        remarks={one.tool.name: one.tool.remark for one in found if one.tool.remark},
    )
    stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H%M")
    file = (RESULTS if keep else cache / "results") / f"{stamp}-{form.name}.json"
    with Stopwatch(cache / "output") as stopwatch:
        course = Course(tools, cache, stopwatch, form.limits, _say)
        ours = next((one for one in tools if one.tool == TRUSTED), None)
        python = ours.program.with_name("python") if ours is not None else Path(sys.executable)
        results = replace(results, measurements=tuple(course.starts(python)))
        results = replace(results, histories=tuple(play_all(players, cache, stopwatch, form.history_s)))
        results = replace(results, stage_costs=tuple(stage_costs(tools, form.cost_rounds)))
        results = replace(results, waiting=waiting(tools, form.model_rounds))
        results = replace(results, edit_costs=edit_costs(tools) if form.model_rounds else ())
        write(results, file)  # a fault in writing shows before the long part
        for size in form.sizes:
            print(f"{size:,} stages, after {elapsed(began)}", flush=True)
            names = [name for name in form.tools if form.takes_part(name, size)]
            results = replace(results, measurements=(*results.measurements, *course.at(size, names)))
            write(results, file)  # what was measured is kept, whatever happens at the next size
        for size in form.input_files:
            if ours is not None:
                beside = next((one for one in tools if one.tool == FLOOR), None)
                many = ManyInputs(tuple(kinds(ours, beside)), cache, stopwatch, _say)
                results = replace(
                    results, measurements=(*results.measurements, *many.at(size, form.limits.first_rounds))
                )
                write(results, file)
        for size in form.growth_sizes:
            if ours is not None:
                _say(f"growth to {size:,} stages, after {elapsed(began)}")
                grown = Growth(ours, cache, stopwatch, _say).at(size)
                results = replace(results, growth=(*results.growth, *grown))
                write(results, file)
    shutil.rmtree(cache / "work", ignore_errors=True)
    print("\n".join(table.lines(results)))
    print(f"\n{file}, {elapsed(began)}")
    if keep:
        page.publish(file, TREE)
        print("docs/performance.md and the figures of README.md are written from it")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _asked(argv: Sequence[str] | None) -> tuple[Form, bool]:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("form", choices=("short", "long"))
    parser.add_argument("--sizes", help="numbers of stages, such as 100,1000")
    parser.add_argument("--tools", help="names of tools, with commas between them")
    parser.add_argument("--against", metavar="COMMIT", help="orch23 as of this commit takes part too")
    parser.add_argument("--rounds", type=int, help="rounds of each scenario")
    parser.add_argument("--history-seconds", type=float, help="how long each peer's random history may take")
    parser.add_argument("--slow-up-to", type=int, help=f"most stages for {', '.join(sorted(SLOW_TOOLS))}")
    parser.add_argument("--keep", action="store_true", help="write bench/results and the page, as the long form does")
    given = parser.parse_args(argv)
    form = SHORT if given.form == "short" else LONG
    if given.sizes:
        form = replace(form, sizes=tuple(int(size) for size in given.sizes.split(",")))
        form = replace(form, growth_sizes=tuple(size for size in form.growth_sizes if size <= max(form.sizes)))
        form = replace(form, input_files=tuple(size for size in form.input_files if size <= 2 * max(form.sizes)))
        form = replace(form, limits=replace(form.limits, cap_s=LONG.limits.cap_s, budget_s=math.inf))
    if given.tools:
        names = tuple(given.tools.split(","))
        if unknown := [name for name in names if name not in BY_NAME]:
            parser.error(f"no such tool: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
        form = replace(form, tools=names)
    if given.against:
        try:
            commit = full_commit(given.against)
        except InstallError:
            parser.error(f"no such commit: {given.against}")
        before = replace(TRUSTED, name=f"{TRUSTED.name} {commit[:_SHOWN]}", source=FromTree(commit))
        form = replace(form, tools=(*form.tools, before.name), more=(before,))
    if given.rounds:
        form = replace(form, limits=replace(form.limits, rounds=given.rounds, first_rounds=min(given.rounds, 3)))
    if given.history_seconds:
        form = replace(form, history_s=given.history_seconds)
    if given.slow_up_to:
        form = replace(form, slow_up_to=given.slow_up_to)
    return form, given.keep or form.name == "long"


def machine(folder: Path) -> Mapping[str, str]:
    """Return what the figures depend on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    over = [(len(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "file system": max(over)[1] if over else "unknown",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


if __name__ == "__main__":
    raise SystemExit(main())
