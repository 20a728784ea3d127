"""Measure how long `orch23 watch` takes from a save to the decision, and to the result.

`python -m bench.watch [--sizes 10,1000,10000] [--edits 20]` measures the orch23 of this tree and prints the table: in
milliseconds from the save, the median and the maximum of when the edit was noticed (its line on stderr), decided (the
event `stage_decided` in the journal) and done (the output has the new text).
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import median

PROGRAM = "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())"
LIMIT_S = 600.0
PAUSE_S = 0.5
LOOK_S = 0.002
IDLE = b"press Ctrl-C to stop"


def write_project(root: Path, size: int) -> None:
    """Write a pipeline of stages that copy one file each."""
    for folder in ("in", "out"):
        (root / folder).mkdir(parents=True)
    lines = ["version: 1", "name: watched", "stages:"]
    for number in range(size):
        (root / f"in/{number}").write_text(f"{number}\n", encoding="utf-8")
        lines += [f"  s{number}:", f"    inputs: [in/{number}]", f"    outputs: [out/{number}]"]
        lines += [f"    shell: cat in/{number} > out/{number}"]
    (root / "pipeline.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")


def measure(root: Path, size: int, edits: int) -> list[tuple[float, float, float]]:
    """Return for each of some edits the seconds until it was noticed, decided and done.

    Raises:
        TimeoutError: one was not built.

    """
    log = root.parent / "watch.log"
    environ = {**os.environ, "ORCH23_ALLOW_UNSANDBOXED": "1", "HOME": str(root.parent)}
    command = [sys.executable, "-c", PROGRAM]
    subprocess.run([*command, "build", "-q"], cwd=root, env=environ, check=True)
    chosen, found = random.Random(23), []  # noqa: S311 - not a secret
    with log.open("wb") as stream, subprocess.Popen([*command, "watch"], cwd=root, env=environ, stderr=stream) as watch:
        try:
            _wait(lambda: IDLE in log.read_bytes())
            for count in range(edits):
                time.sleep(PAUSE_S)
                number = chosen.randrange(size)
                found.append(_edit(root, log, number, f"edit {count}\n"))
        finally:
            watch.send_signal(signal.SIGINT)
    return found


def _edit(root: Path, log: Path, number: int, text: str) -> tuple[float, float, float]:
    size = log.stat().st_size
    # Written elsewhere before: the rename is the save, and its moment is known.
    new = root.parent / "new"
    new.write_text(text, encoding="utf-8")
    saved = time.time()
    new.rename(root / f"in/{number}")
    _wait(lambda: b"changed" in log.read_bytes()[size:])
    noticed = time.time()
    _wait(lambda: (root / f"out/{number}").read_text(encoding="utf-8") == text)
    done = time.time()
    _wait(lambda: IDLE in log.read_bytes()[size:])
    newest = max((root / "logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    events = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    decided = next(one["ts"] for one in events if one["type"] == "stage_decided")
    return noticed - saved, datetime.fromisoformat(decided).timestamp() - saved, done - saved


def _wait(is_met: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not is_met():
        if time.monotonic() > until:
            message = "the edit was not built"
            raise TimeoutError(message)
        time.sleep(LOOK_S)


def main() -> None:
    """Measure all sizes and print the table."""
    parser = argparse.ArgumentParser(description="Measure orch23 watch.")
    parser.add_argument("--sizes", default="10,1000,10000")
    parser.add_argument("--edits", type=int, default=20)
    given = parser.parse_args()
    rows = []
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "project"
            write_project(root, size)
            columns = zip(*measure(root, size, given.edits), strict=True)
            shown = [f"{1000 * median(one):.0f}, {1000 * max(one):.0f}" for one in columns]
        rows.append((f"{size:,}", *shown, f"{os.getloadavg()[0]:.1f}"))
    print("| stages | noticed | decided | done | load |\n|---|---|---|---|---|")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))


if __name__ == "__main__":
    main()
