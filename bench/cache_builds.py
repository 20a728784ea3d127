"""Builds with a shared cache against the same builds without one, for `bench.shared_cache`.

The projects have chains of ten stages, listed in two orders, one chain, no chain, or all of that. In each round, each
of them is built in new checkouts: without a cache, then for each cache one build that stores all results, and one that
restores them. Between rounds, the caches are emptied.
"""

import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.cache_server import Served, Server, serving
from bench.figures import milliseconds, spread, times
from bench.measure import Run, Runner, Stopwatch
from bench.table import markdown

_ROOT = Path(__file__).resolve().parents[1]
_CHAIN = 10
_WORK_S = 0.1
_LIMIT_S = 1_800.0
_PROGRAM = "from orch23.entry import run; run()"
PROJECTS = (
    *((order, 0.0) for order in ("by chain", "by layer", "one chain", "wide", "mixed")),
    ("by chain", _WORK_S),
)
"""The order of the stages, and the time in seconds that each waits."""
HEAD = ("stages", "build", "wall s", "ratio", "CPU s", "ratio", "requests", "per stage", "load")


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a project. `served` is of the server, if there is one."""

    project: str
    name: str
    run: Run
    served: Served
    load: float


def write_project(folder: Path, stages: int, order: str, work_s: float) -> None:
    """Write a project with chains of ten stages, each of which waits and writes another file.

    They are listed `by chain`, so that each is after the one that it needs, or `by layer`, all first ones first. `one
    chain` has all stages in one, `wide` has no chain, and `mixed` is one chain, then chains of ten, then half without.
    """
    folder.mkdir(parents=True)
    (folder / "in.txt").write_text("in\n")
    lines = ["version: 1", "name: bench", "cache: {platform: bench}", "defaults: {sandbox: off}", "stages:"]
    wait = f"sleep {work_s:g} && " if work_s else ""
    for number in range(stages):
        needed = _needed(number, stages, order)
        source = "in.txt" if needed < 0 else f"out/{needed:05}.txt"
        out = f"out/{number:05}.txt"
        command = f"{wait}cp {source} {out} && echo {number} >> {out}"
        lines += [f"  s{number:05}:", f"    inputs: [{source}]", f"    outputs: [{out}]", f"    shell: {command}"]
    (folder / "pipeline.yaml").write_text("\n".join(lines) + "\n")


def _needed(number: int, stages: int, order: str) -> int:
    """Return the number of the stage that a stage needs, negative if it needs none."""
    if order == "mixed":
        order = ("one chain", "by chain", "wide", "wide")[number * 4 // stages]
    if order == "by layer":
        return number - math.ceil(stages / _CHAIN)
    is_first = order == "wide" or (order == "by chain" and number % _CHAIN == 0)
    return -1 if is_first else number - 1


def builds(stages: int, project: tuple[str, float], delay_s: float, root: Path, stopwatch: Runner) -> Iterator[Build]:
    """Yield the builds of one round, in new folders below `root`.

    Raises:
        RuntimeError: a build failed, or restored or stored another number of results than the number of stages.
    """
    order, work_s = project
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "PYTHONPATH": str(_ROOT),
        "ORCH23_TRUST": "1",
        "ORCH23_ALLOW_UNSANDBOXED": "1",
    }

    def build(name: str, expected: str, server: Server | None, *options: str) -> Build:
        checkout = root / re.sub(r"\W+", "-", name)
        write_project(checkout, stages, *project)
        if server is not None:
            server.served()
        load = os.getloadavg()[0]
        argv = (sys.executable, "-c", _PROGRAM, "-C", str(checkout), "build", *options)
        run = stopwatch.run(argv, checkout, environ, _LIMIT_S)
        said = stopwatch.said()
        is_complete = len(list((checkout / "out").glob("*.txt"))) == stages
        if run.code or not is_complete or (expected and f"{stages} {expected}" not in said):
            message = f"{name}: exit status {run.code}: {said}"
            raise RuntimeError(message)
        return Build(
            f"{order}, {milliseconds(work_s)} ms",
            name,
            run,
            server.served() if server is not None else Served({}, 0.0),
            load,
        )

    yield build("no cache", "", None)
    with ExitStack() as stack:
        caches: dict[str, Server | str] = {"directory": str(root / "cache")}
        for delay in (0.0, delay_s):
            caches[f"http, {milliseconds(delay)} ms"] = stack.enter_context(serving("http", delay))
        for name, cache in caches.items():
            server = None if isinstance(cache, str) else cache
            options = ("--cache", cache if isinstance(cache, str) else cache.url)
            yield build(f"{name}: stored", "stored", server, *options, "--cache-write")
            yield build(f"{name}: restored", "restored", server, *options)


def measure_builds(stages: int, rounds: int, delay_s: float, say: Callable[[str], None]) -> None:
    """Measure the builds of all projects, and print a table of the medians."""
    found: list[Build] = []
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name, Stopwatch(Path(name, "output")) as stopwatch:
        for number in range(rounds):
            for place, project in enumerate(PROJECTS):
                root = Path(name, f"{number}-{place}")
                root.mkdir()
                found += builds(stages, project, delay_s, root, stopwatch)
                shutil.rmtree(root)
    say(f"\n{stages} stages, {rounds} rounds\n")
    say(markdown(HEAD, list(rows(found, stages))))


def rows(found: list[Build], stages: int) -> Iterator[list[str]]:
    """Yield the rows of the table: medians, and their ratios to the build without a cache."""
    groups: dict[tuple[str, str], list[Build]] = {}
    for one in found:
        groups.setdefault((one.project, one.name), []).append(one)
    for (project, name), same in groups.items():
        bare = groups[project, "no cache"]
        wall_s, bare_s = (spread([one.run.wall_s for one in some]).middle for some in (same, bare))
        cpu, bare_cpu = (spread([one.run.cpu_s for one in some]).middle for some in (same, bare))
        requests = same[0].served.requests
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(requests.items()))
        yield [
            project,
            name,
            f"{wall_s:.2f}",
            times(wall_s / bare_s),
            f"{cpu:.2f}",
            times(cpu / bare_cpu),
            kinds or "-",
            f"{sum(requests.values()) / stages:.1f}" if requests else "-",
            f"{min(one.load for one in same):.1f} to {max(one.load for one in same):.1f}",
        ]
