"""What the sandbox costs a stage: the same process with no sandbox, in tier B and in tier A, in turns in one run.

`python bench/stage_cost.py [ROUNDS]` prints medians and ratios. Each round starts each kind once, in a new order, so
that what else the machine does meanwhile falls on all of them alike.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from orch23.execute.launch import Launcher, PlainLauncher
from orch23.execute.local import LocalExecutor
from orch23.execute.rooms import Rooms
from orch23.execute.sandbox.bubblewrap import PROGRAMS, Bubblewrap
from orch23.execute.sandbox.restricted import Restricted
from orch23.execute.sandbox.self_test import fault
from orch23.model.action import Action, Completed
from orch23.model.digest import Digest, FileEntry, digest_bytes

WORK = {"true": ("true",), "python -c pass": ("python", "-I", "-c", "pass")}
ROUNDS = 100


class Nothing:
    """No inputs, and a store that forgets."""

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        """Have nothing."""
        del path, entry, target
        return False

    def put_bytes(self, data: bytes) -> Digest:
        """Keep nothing."""
        return digest_bytes(data)

    def put_file(self, path: Path) -> Digest:
        """Keep nothing."""
        return digest_bytes(path.read_bytes())


def kinds() -> dict[str, Launcher]:
    """Return the launchers that work here."""
    found: dict[str, Launcher] = {"no sandbox": PlainLauncher()}
    candidates: list[tuple[str, Launcher]] = [("tier B, Landlock", Restricted())]
    candidates += [("tier A, bubblewrap", Bubblewrap(Path(name))) for name in PROGRAMS if Path(name).exists()][:1]
    for name, launcher in candidates:
        reason = fault(launcher)
        if reason is None:
            found[name] = launcher
        else:
            print(f"{name}: not here: {reason}")
    return found


def measure(rounds: int) -> None:
    """Print a table for each piece of work."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as folder:
        rooms = Rooms(Path(folder), Nothing())
        executors = {
            name: LocalExecutor(rooms=rooms, contents=Nothing(), workers=1, launcher=launcher)
            for name, launcher in kinds().items()
        }
        for work, argv in WORK.items():
            action = Action(argv=argv, inputs={}, interpreter=sys.executable)
            times: dict[str, list[float]] = {name: [] for name in executors}
            for _ in range(rounds):
                for name in random.sample(sorted(executors), len(executors)):
                    began = time.perf_counter()
                    outcome = executors[name].submit(action).result()
                    times[name].append(time.perf_counter() - began)
                    if not isinstance(outcome, Completed) or outcome.result.exit_code != 0:
                        sys.exit(f"{work} in {name}: {outcome}")
            plain = statistics.median(times["no sandbox"])
            print(f"\n{work}: {rounds} rounds, room and result included")
            for name, each in times.items():
                middle = statistics.median(each)
                low, high = statistics.quantiles(each, n=10)[0], statistics.quantiles(each, n=10)[-1]
                spread = f"{low * 1000:6.1f} to {high * 1000:6.1f}"
                print(f"  {name:<20} {middle * 1000:6.1f} ms   (8 of 10: {spread})   x{middle / plain:.1f}")
        for executor in executors.values():
            executor.close()


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
