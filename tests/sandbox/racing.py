"""Write and read below a folder that somebody swaps for a link to outside all the while.

`python -m tests.sandbox.racing FOLDER ROUNDS [WEAKENED]` prints, as JSON, what came of each kind of work, and what
outside of the project is not as it was.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orch23.features.templates.changes import ChangeKind, TemplateChange, TemplateFile, apply_changes
from orch23.load.pipeline import load_pipeline
from orch23.model.digest import FileEntry
from orch23.model.errors import NotFoundError, SafetyError
from orch23.model.llm import Exchange
from orch23.model.record import LockFile
from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import Exchanges
from orch23.store.lock_file import write_lock
from orch23.store.promotion import Promoter
from orch23.store.workspace import Workspace
from tests.crash.weakened import WEAKENED
from tests.doubles import file_digest

SWAPPED = "swapped"  # a folder of the project, and every now and then a link to the one outside
PIPELINE = "version: 1\nstages:\n  {name}: {{outputs: [a], shell: echo a > a}}\n"
SECRET = b"of somebody outside\n"

_SWAPPING = """
import ctypes, os, sys
libc, number = ctypes.CDLL(None, use_errno=True), int(sys.argv[3])
one, other = sys.argv[1].encode(), sys.argv[2].encode()
print("ready", flush=True)
while os.getppid() == int(sys.argv[4]):
    for _ in range(1000):
        libc.syscall(number, -100, one, -100, other, 2)  # renameat2, RENAME_EXCHANGE: never is there nothing
"""


class Place:
    """A project, what is outside of it, and what orch23 writes with."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "project", folder / "outside"
        for inside, text in ((self.root / SWAPPED, b"of the project\n"), (self.outside, SECRET)):
            inside.mkdir(parents=True)
            (inside / "read.txt").write_bytes(text)
            (inside / "pipeline.yaml").write_text(PIPELINE.format(name=inside.name))
            (inside / "gone.txt").write_bytes(b"the same in both\n")
        (self.root / "link").symlink_to(self.outside)
        self.contents = DiskContentStore(folder / "cas")
        self.promoter = Promoter(self.root, folder / "promote.json", self.contents, file_digest)
        self.exchanges = Exchanges(folder / "exchanges", self.root)
        self.gone = FileEntry(self.contents.put(b"the same in both\n"))
        self.before = self.seen()

    def seen(self) -> dict[str, bytes]:
        """Return what is outside now."""
        found = {path.relative_to(self.outside).as_posix(): path for path in self.outside.rglob("*")}
        return {name: path.read_bytes() if path.is_file() else b"" for name, path in found.items()}


def promote(place: Place, count: int) -> None:
    entry = FileEntry(place.contents.put(b"%d\n" % count))
    place.promoter.promote({f"{SWAPPED}/new-{count}.txt": entry}, {})


def take_away(place: Place, _count: int) -> None:
    gone = f"{SWAPPED}/gone.txt"
    place.promoter.promote({gone: None}, {gone: place.gone})
    place.promoter.promote({gone: place.gone}, {})


def make_folders(place: Place, count: int) -> None:
    entry = FileEntry(place.contents.put(b"deep\n"))
    place.promoter.promote({f"{SWAPPED}/deep-{count}/er/a.txt": entry}, {})


def place_template(place: Place, count: int) -> None:
    after = TemplateFile(b"%d\n" % count, executable=False)
    apply_changes(place.root, (TemplateChange(path=f"{SWAPPED}/of_template.txt", kind=ChangeKind.UPDATE, after=after),))


def write_a_lock(place: Place, count: int) -> None:
    write_lock(place.root, f"{SWAPPED}/pipeline.lock", LockFile(), f"p{count}")


def record(place: Place, count: int) -> None:
    place.exchanges.put(Exchange(fingerprint=f"{count:064x}", stage="a", request={}, response="text"), SWAPPED)


def read(place: Place, _count: int) -> None:
    if Workspace(place.root, None).read(f"{SWAPPED}/read.txt") == SECRET:
        raise AssertionError


def read_a_pipeline(place: Place, _count: int) -> None:
    loaded = load_pipeline(place.root / SWAPPED / "pipeline.yaml", place.root)
    if loaded.pipeline.stages[0].name == place.outside.name:
        raise AssertionError


WORK: Mapping[str, Callable[[Place, int], None]] = {
    one.__name__: one
    for one in (promote, take_away, make_folders, place_template, write_a_lock, record, read, read_a_pipeline)
}


@contextlib.contextmanager
def swapping(place: Place) -> Iterator[None]:
    """Let another process exchange the folder and the link as fast as it can."""
    number = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
    paths = [str(place.root / SWAPPED), str(place.root / "link")]
    command = [sys.executable, "-c", _SWAPPING, *paths, str(number), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def main() -> None:
    """Race, and tell."""
    folder, rounds, *weakened = sys.argv[1:]
    place = Place(Path(folder))
    for name in weakened:
        WEAKENED[name]()
    reported: dict[str, Counter[str]] = {name: Counter() for name in WORK}
    with swapping(place):
        for count in range(int(rounds)):
            for name, work in WORK.items():
                try:
                    work(place, count)
                except (SafetyError, NotFoundError):
                    reported[name]["refused"] += 1
                except AssertionError:
                    reported[name]["read from outside"] += 1
                except OSError as problem:
                    reported[name][f"OSError {problem.errno}"] += 1
                else:
                    reported[name]["done"] += 1
    after = place.seen()
    escaped = sorted(path for path in place.before.keys() | after.keys() if place.before.get(path) != after.get(path))
    sys.stdout.write(json.dumps({"reported": reported, "escaped": escaped}))


if __name__ == "__main__":
    main()
