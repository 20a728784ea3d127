"""Measure how long `orch23 watch` takes from a save to the decision, and to the result.

`python -m bench.watch [--sizes 10,1000,10000] [--edits 20]` measures the orch23 of this tree and prints the table: in
milliseconds, the median and the maximum of the times from the save until the event is delivered to orch23, until the
edit is decided (the event `stage_decided` in the journal) and until it is done (the output has the new text), and of
the time from the delivery to the decision.
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
from typing import BinaryIO

PROGRAM = "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())"
# Writes to stderr when the watcher of files delivers an event.
WATCH = f"""
import sys, time
from orch23.features.watch.watched_files import FolderEvents
wait = FolderEvents.wait
def timed(self, longest_s):
    found = wait(self, longest_s)
    if found:
        sys.stderr.write(f"delivered {{time.time()}}\\n")
    return found
FolderEvents.wait = timed
{PROGRAM}"""
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


def measure(root: Path, size: int, edits: int) -> list[tuple[float, float, float, float]]:
    """Return for each of some edits the seconds until it was delivered, decided and done, and between the first two.

    Raises:
        TimeoutError: one was not built.
    """
    log = root.parent / "watch.log"
    environ = {**os.environ, "ORCH23_ALLOW_UNSANDBOXED": "1", "HOME": str(root.parent)}
    command = [sys.executable, "-c", PROGRAM]
    subprocess.run([*command, "build", "-q"], cwd=root, env=environ, check=True)
    chosen, found = random.Random(23), []  # noqa: S311 - not a secret
    with log.open("wb") as stream, _watching(root, environ, stream) as watch:
        try:
            _wait(lambda: IDLE in log.read_bytes())
            for count in range(edits):
                time.sleep(PAUSE_S)
                number = chosen.randrange(size)
                found.append(_edit(root, log, number, f"edit {count}\n"))
        finally:
            watch.send_signal(signal.SIGINT)
    return found


def _watching(root: Path, environ: dict[str, str], stream: BinaryIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WATCH, "watch"], cwd=root, env=environ, stderr=stream)


def _edit(root: Path, log: Path, number: int, text: str) -> tuple[float, float, float, float]:
    size = log.stat().st_size
    # Written elsewhere before: the rename is the save, and its moment is known.
    new = root.parent / "new"
    new.write_text(text, encoding="utf-8")
    saved = time.time()
    new.rename(root / f"in/{number}")
    _wait(lambda: b" changed" in log.read_bytes()[size:])
    # The last delivery before the edit was shown.
    delivered = float(log.read_bytes()[size:].partition(b" changed")[0].rpartition(b"delivered ")[2].split()[0])
    _wait(lambda: (root / f"out/{number}").read_text(encoding="utf-8") == text)
    done = time.time()
    _wait(lambda: IDLE in log.read_bytes()[size:])
    newest = max((root / "logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    events = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    text = next(one["ts"] for one in events if one["type"] == "stage_decided")
    decided = datetime.fromisoformat(text).timestamp()
    return delivered - saved, decided - saved, done - saved, decided - delivered


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
    print("| stages | delivered | decided | done | delivered to decided | load |\n|---|---|---|---|---|---|")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))


if __name__ == "__main__":
    main()
