"""What the sandbox costs a stage: the same process with no sandbox, in tier B and in tier A, in turns in one run.

`python bench/stage_cost.py [ROUNDS] [--json]` prints medians and ratios, or all times as JSON. Each round starts each
kind once, in a new order, so that what else the machine does meanwhile falls on all of them alike.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from orch23.execute.launch import Launcher, PlainLauncher
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.bubblewrap import BWRAP_PATHS, BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.execute.sandbox.tier_selection import tier_fault
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry
from orch23.store.content_store import DiskContentStore

WORK = {"true": ("true",), "python -c pass": ("python", "-I", "-c", "pass")}
ROUNDS = 100


class Nothing:
    """No inputs."""

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        """Have nothing."""
        del path, entry, target
        return False


def kinds() -> dict[str, Launcher]:
    """Return the launchers that work here."""
    found: dict[str, Launcher] = {"no sandbox": PlainLauncher()}
    candidates: list[tuple[str, Launcher]] = [("tier B, Landlock", LandlockLauncher())]
    candidates += [
        ("tier A, bubblewrap", BubblewrapLauncher(Path(name))) for name in BWRAP_PATHS if Path(name).exists()
    ][:1]
    candidates += [("tier A, namespaces", NamespacesLauncher())]
    for name, launcher in candidates:
        reason = tier_fault(launcher)
        if reason is None:
            found[name] = launcher
        else:
            print(f"{name}: not here: {reason}", file=sys.stderr)
    return found


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each round, by piece of work and kind of sandbox."""
    measured: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as folder:
        sandbox_dirs, contents = SandboxDirs(Path(folder, "rooms"), Nothing()), DiskContentStore(Path(folder, "cas"))
        executors = {
            name: LocalExecutor(sandbox_dirs=sandbox_dirs, contents=contents, workers=1, launcher=launcher)
            for name, launcher in kinds().items()
        }
        for work, argv in WORK.items():
            action = Action(argv=argv, inputs={})
            times: dict[str, list[float]] = {name: [] for name in executors}
            for _ in range(rounds):
                for name in random.sample(sorted(executors), len(executors)):
                    began = time.perf_counter()
                    outcome = executors[name].run(action)
                    times[name].append(time.perf_counter() - began)
                    if not isinstance(outcome, Completed) or outcome.result.exit_code != 0:
                        sys.exit(f"{work} in {name}: {outcome}")
            measured[work] = times
        for executor in executors.values():
            executor.close()
    return measured


def show(measured: dict[str, dict[str, list[float]]], rounds: int) -> None:
    """Print a table for each piece of work."""
    for work, times in measured.items():
        plain = statistics.median(times["no sandbox"])
        print(f"\n{work}: {rounds} rounds, sandbox directory and result included")
        for name, each in times.items():
            middle = statistics.median(each)
            low, high = statistics.quantiles(each, n=10)[0], statistics.quantiles(each, n=10)[-1]
            spread = f"{low * 1000:6.1f} to {high * 1000:6.1f}"
            print(f"  {name:<20} {middle * 1000:6.1f} ms   (8 of 10: {spread})   x{middle / plain:.1f}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    measured = measure(given.rounds)
    if given.json:
        rows = [
            {"work": work, "kind": name, "wall_s": [round(one, 6) for one in each]}
            for work, times in measured.items()
            for name, each in times.items()
        ]
        print(json.dumps(rows))
    else:
        show(measured, given.rounds)


if __name__ == "__main__":
    main()
