"""What a big input costs: hashing beside sha256sum, copies to a sandbox directory beside cp.

`python bench/big_inputs.py [MB [ROUNDS [FOLDER]]]` prints medians and ratios, and the peak of memory. What is
compared runs in turns, in a new order each round, so that what else the machine does falls on all of them alike.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orch23.model.digest import FileEntry
from orch23.store.file_copy import hash_file, no_progress
from orch23.store.project_store import ProjectStore, open_store

SIZE_MB, ROUNDS = 1024, 5


def main(arguments: list[str]) -> None:
    """Measure in a folder that is removed afterwards."""
    given = [int(text) for text in arguments[:2]]
    size_mb, rounds = (*given, *(SIZE_MB, ROUNDS)[len(given) :])
    with tempfile.TemporaryDirectory(prefix="orch23-bench-", dir=next(iter(arguments[2:]), None)) as name:
        _large(Path(name, "large"), size_mb, rounds)


def _large(root: Path, size_mb: int, rounds: int) -> None:
    root.mkdir()
    source, store = root / "in.bin", open_store(root)
    with source.open("wb") as stream:
        for _ in range(size_mb):
            stream.write(os.urandom(1 << 20))
    entry = FileEntry(store.add_file(source.name))
    print(f"one file of {size_mb} MB, {rounds} rounds")
    _compare(
        rounds,
        {
            "sha256sum": lambda: subprocess.run(["sha256sum", source], check=True, stdout=subprocess.DEVNULL),
            "orch23 hashes": lambda: _hash(source),
        },
    )
    _compare(
        rounds,
        {
            "cp": lambda: _copied(root, ["cp", "--reflink=auto", source]),
            "cp, sha256sum": lambda: _copied(root, ["cp", "--reflink=auto", source], summed=True),
            "copy into a sandbox directory": lambda: _placed(store, root, entry),
        },
    )
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB\n")


def _hash(path: Path) -> None:
    with path.open("rb") as stream:
        hash_file(stream.fileno(), no_progress("hashing", "", 0))


def _copied(root: Path, argv: list[str | Path], *, summed: bool = False) -> None:
    target = root / "copy"
    subprocess.run([*argv, target], check=True)
    if summed:
        subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
    target.unlink()


def _placed(store: ProjectStore, root: Path, entry: FileEntry) -> None:
    target = root / "placed"
    assert store.sources.copy_into("in.bin", entry, str(target))
    target.unlink()


def _compare(rounds: int, works: dict[str, Callable[[], object]]) -> None:
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name in random.sample(list(works), len(works)):
            began = time.monotonic()
            works[name]()
            took[name].append(time.monotonic() - began)
    first = statistics.median(next(iter(took.values())))
    for name, times in took.items():
        median = statistics.median(times)
        print(f"  {name:<28}{median:8.3f} s   {median / first:5.2f}   ({min(times):.3f} to {max(times):.3f})")


if __name__ == "__main__":
    main(sys.argv[1:])
