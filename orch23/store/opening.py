"""Open the store of a project: all of its parts, at their places, without writing a byte."""

import contextlib
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.errors import CorruptStateError
from orch23.store.beneath import leaves, read_regular
from orch23.store.build_lock import BuildLock
from orch23.store.codes import E_STORE_VERSION
from orch23.store.contents import Contents
from orch23.store.durable import PRIVATE_FILE, PRIVATE_FOLDER, sweep_temps, write_atomic
from orch23.store.exchanges import Exchanges
from orch23.store.meter import Meter, silent
from orch23.store.promote import Promoter
from orch23.store.records import Records
from orch23.store.sources import Sources
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.store.collection import Collector

STORE_VERSION = b"1\n"
FOLDER = ".orch23"
LOGS = "logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The parts of a project's store. Each makes its folder when it first writes."""

    root: Path
    folder: Path
    logs: Path
    rooms: Path
    contents: Contents
    records: Records
    exchanges: Exchanges
    workspace: Workspace
    sources: Sources
    promoter: Promoter

    def build_lock(self) -> BuildLock:
        """Return the lock that a command must hold to change the project."""
        return BuildLock(self.folder / "lock")

    def collector(self) -> "Collector":
        """Return what chooses and drops what nobody needs."""
        from orch23.store.collection import Collector  # noqa: PLC0415 - few commands want it

        return Collector(
            self.folder,
            contents=self.contents,
            records=self.records,
            exchanges=self.exchanges,
            on_disk=self.workspace.entry,
        )

    def sweep(self) -> None:
        """Mark the store as ours and remove what killed processes left. Only for the holder of the build lock."""
        if not (self.folder / "VERSION").exists():
            write_atomic(self.folder / ".gitignore", b"*\n", mode=PRIVATE_FILE)
            write_atomic(self.folder / "VERSION", STORE_VERSION, mode=PRIVATE_FILE)
        for folder in (self.folder, self.logs):
            _close_up(folder)
        self.contents.sweep()
        self.records.sweep()
        self.exchanges.sweep()
        sweep_temps(self.folder)
        remove_tree(self.rooms)

    def healed(self) -> tuple[str, ...]:
        """Return everything that was found damaged so far and dropped."""
        parts = (self.contents.healed, self.records.healed, self.exchanges.healed, self.promoter.healed)
        return tuple(line for part in parts for line in part)


def open_store(root: Path, meter: Meter = silent) -> Store:
    """Return the store of the project at `root`, there or not; long work on files is told to the meter.

    Raises:
        CorruptStateError: it is of a version that this orch23 does not know.
        SafetyError: it, or the logs, are a link: what is written there, and cleared, would be somebody else's.

    """
    folder = root / FOLDER
    for name in (FOLDER, LOGS):
        if (root / name).is_symlink():
            raise leaves(name)
    _check_version(folder / "VERSION")
    contents = Contents(folder / "cas", meter)
    workspace = Workspace(root, folder / "stat.json", meter=meter)
    return Store(
        root=root,
        folder=folder,
        logs=root / LOGS,
        rooms=folder / "rooms",
        contents=contents,
        records=Records(folder / "records"),
        exchanges=Exchanges(folder / "exchanges", root),
        workspace=workspace,
        sources=Sources(contents, workspace, meter),
        promoter=Promoter(root, folder / "promote.json", contents, meter),
    )


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a stage made unreadable."""
    with contextlib.suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            _open_up(folder)
            shutil.rmtree(folder)


def _close_up(folder: Path) -> None:
    """Keep others out of a folder of ours that an earlier version, or a copy, left open to them."""
    with contextlib.suppress(OSError):  # not ours to change, or not there yet
        if stat.S_IMODE(folder.stat().st_mode) & ~PRIVATE_FOLDER:
            folder.chmod(PRIVATE_FOLDER)


def _open_up(folder: Path) -> None:
    """Give ourselves every right to a tree of directories, following no link."""
    pending = [folder]
    while pending:
        here = pending.pop()
        here.chmod(stat.S_IRWXU)
        pending += [path for path in here.iterdir() if path.is_dir() and not path.is_symlink()]


def _check_version(path: Path) -> None:
    try:
        found = read_regular(path)
    except FileNotFoundError:
        return
    if found != STORE_VERSION:
        version = found[:20].decode("utf-8", "replace").strip() if found is not None else "of no regular file"
        raise CorruptStateError(
            Diagnostic(
                E_STORE_VERSION,
                f"the store {FOLDER} is of version {version!r}, this orch23 knows version 1",
                Location(f"{FOLDER}/{path.name}", 1, 1),
                "`orch23 reset` makes a new one; recorded answers are kept",
            )
        )
