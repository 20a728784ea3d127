"""Open the store of a project: all of its parts, at their places, without writing a byte."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Digest
from orch23.model.errors import CorruptStateError, SafetyError
from orch23.model.own_files import LOGS
from orch23.model.ports import ContentStore, FileContentStore, ResultIndex, ResultStore
from orch23.model.typed import decode
from orch23.store.beneath import directory, leaves, open_file, read_regular, split
from orch23.store.build_lock import BuildLock, check_folder
from orch23.store.codes import E_STORE_VERSION
from orch23.store.compiled import Compiled
from orch23.store.contents import Contents
from orch23.store.durable import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    discard,
    is_temp,
    seal,
    sweep_temps,
    sync_filesystem,
    unseal,
    write_atomic,
)
from orch23.store.exchanges import Exchanges
from orch23.store.index import FILE as INDEX_FILE
from orch23.store.index import Index
from orch23.store.index_place import index_folder
from orch23.store.meter import Meter, silent
from orch23.store.promote import Promoter
from orch23.store.records import TABLE as RECORDS_TABLE
from orch23.store.records import Records
from orch23.store.removal import TIER_SHOWN, remove_strange
from orch23.store.shared_results import SharedResults
from orch23.store.sources import Sources
from orch23.store.standing import Standing, standing
from orch23.store.transfers import with_transfers
from orch23.store.workspace import TABLE as FILES_TABLE
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.store.collection import Collector

STORE_VERSION = b"1\n"
_VERSION = re.compile(rb"[1-9][0-9]{0,8}\n")
FOLDER = ".orch23"

KEEP_VARIABLE = "ORCH23_GC_KEEP"
DEFAULT_CAP_BYTES = 10_000_000_000
"""The size down to which `gc` clears a store, unless that variable says another."""
_NOTED = "writing.json"
_WINDOW = 1 << 20  # bytes that are searched at once
_OVERLAP = 1 << 18


class Disk(Struct, frozen=True):
    """The parts of a store in `.orch23/` itself, for what is about that folder, such as `gc`.

    `contents` is not used for builds if the contents are elsewhere.
    """

    contents: Contents
    records: Records


class Store(Struct, frozen=True, kw_only=True):
    """The parts of a project's store. Each makes its folder when it first writes.

    If it is strange, it is not the user's: the parts are empty, and its lock cannot be taken.
    """

    root: Path
    folder: Path
    logs: Path
    rooms: Path
    partial: Path
    contents: FileContentStore
    records: ResultIndex
    disk: Disk
    exchanges: Exchanges
    workspace: Workspace
    sources: Sources
    promoter: Promoter
    index: Index
    pipelines: Compiled
    plans: Compiled
    is_strange: bool = False
    mended: list[str] = field(default_factory=list)

    def tracked(self, reads: set[str]) -> "Store":
        """Return this store; what is looked at in the workspace through it is noted in a set."""
        workspace = self.workspace.tracked(reads)
        return replace(self, workspace=workspace, sources=self.sources.of(workspace))

    def build_lock(self) -> BuildLock:
        """Return the lock that a command must hold to change the project."""
        return BuildLock(self.folder / "lock")

    def collector(self) -> "Collector":
        """Return what chooses and drops what nobody needs."""
        from orch23.store.collection import Collector  # noqa: PLC0415 - few commands want it

        return Collector(
            self.folder,
            contents=self.disk.contents,
            records=self.disk.records,
            exchanges=self.exchanges,
            on_disk=self.workspace.entry,
        )

    def take_in(self, path: str) -> Digest:
        """Store the bytes of a file of the project and return their digest.

        Raises:
            FileNotFoundError: there is no file.
            SafetyError: it is a link or not a regular file, or a directory of its path is a link.

        """
        source = open_file(self.root, path)
        if source is None:
            if not os.path.lexists(self.root / path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            raise leaves(path)
        try:
            return self.contents.adopt(source, path.rpartition("/")[2])
        finally:
            os.close(source)

    def sync(self) -> None:
        """Make all contents and records that were put so far durable."""
        self.contents.sync()
        if self.contents is not self.disk.contents and self.folder.is_dir():  # else it has synced the records as well
            sync_filesystem(self.folder)

    def sweep(self, *, whole: bool = True) -> None:
        """Mark the store as ours and remove what killed processes left. Only for the holder of the build lock.

        Their rooms are left to the next build, which ends the processes of steps first. A build of what an edit reaches
        follows one that had nothing to do: it does not look through all files of the store (`whole`).
        """
        self.mended.extend(remove_strange(self.folder, whole=whole))
        if (self.folder / "VERSION").exists() and not _has_version(self.folder / "VERSION"):
            self.mended.append("VERSION: was damaged")
        if not _has_version(self.folder / "VERSION"):
            write_atomic(self.folder / ".gitignore", b"*\n", mode=PRIVATE_FILE)
            write_atomic(self.folder / "VERSION", STORE_VERSION, mode=PRIVATE_FILE)
        for folder in (self.folder, self.logs):
            _close_up(folder)
        self.disk.contents.sweep()
        self.disk.records.sweep()
        self.exchanges.sweep()
        sweep_temps(self.folder)
        sweep_temps(self.logs)
        self._sweep_noted()

    @contextlib.contextmanager
    def noting(self, folders: Collection[str]) -> Iterator[None]:
        """Write files into folders of the project: where this process is killed, the next sweep removes what it left.

        Only for the holder of the build lock.
        """
        write_atomic(self.folder / _NOTED, seal(sorted(folders)), mode=PRIVATE_FILE)
        yield
        discard(self.folder / _NOTED)

    def _sweep_noted(self) -> None:
        with contextlib.suppress(ValueError):
            for folder in decode(unseal(read_regular(self.folder / _NOTED) or b""), list[str]):
                with contextlib.suppress(OSError, SafetyError):
                    names, _ = split(f"{folder}/any" if folder else "any")
                    with directory(self.root, names) as place:
                        for name in filter(is_temp, os.listdir(place)):
                            os.unlink(name, dir_fd=place)
        discard(self.folder / _NOTED)

    def save_index(
        self,
        fresh: Mapping[str, Mapping[bytes, bytes]] | None = None,
        changed: Mapping[str, Mapping[bytes, bytes | None]] | None = None,
        dropped: tuple[str, ...] = (),
        suspects: Callable[[Iterable[str]], bool] = lambda _texts: True,
    ) -> None:
        """Bring the index up to date with the records, and with what was seen of files, and write further tables.

        What was compiled of pipelines is written too, unless `suspects` finds a secret among the texts of a table. Only
        for the holder of the build lock.
        """
        tables, edits = dict(fresh or {}), dict(changed or {})
        rows, some = self.disk.records.index_rows()
        files = self.workspace.index_rows()
        if rows is not None:
            tables[RECORDS_TABLE] = rows
        elif some:
            edits[RECORDS_TABLE] = some
        for compiled in (self.pipelines, self.plans):
            whole, new = compiled.changes()
            if any_suspected(whole if whole is not None else new, suspects):
                continue
            if whole is not None:
                tables[compiled.table] = whole
            elif new:
                edits[compiled.table] = new
        if not self.index.holds(FILES_TABLE):
            tables[FILES_TABLE] = {path: row for path, row in files.items() if row is not None}
        elif files:
            edits[FILES_TABLE] = files
        if tables or edits or dropped:
            self.index.write(tables, edits, dropped)

    def tier_shown(self) -> str:
        """Return the tier of the sandbox that the user of this project was last warned about."""
        return (read_regular(self.folder / TIER_SHOWN) or b"").decode("ascii", "replace").strip()

    def note_tier(self, tier: str) -> None:
        """Note that the user was warned about a tier."""
        write_atomic(self.folder / TIER_SHOWN, f"{tier}\n".encode(), mode=PRIVATE_FILE)

    def healed(self) -> tuple[str, ...]:
        """Return everything that was found damaged so far and dropped."""
        contents, records = self.disk.contents.healed, self.disk.records.healed
        parts = (self.mended, contents, records, self.exchanges.healed, self.promoter.healed)
        return tuple(line for part in parts for line in part)


def open_store(
    root: Path, meter: Meter = silent, contents: ContentStore | None = None, results: ResultStore | None = None
) -> Store:
    """Return the store of the project at `root`, there or not; long work on files is reported to the meter.

    `contents` is where the bytes are, if not in `.orch23/`. `results` is a second place for results, besides the
    records there.

    Raises:
        CorruptStateError: it is of a version that this orch23 does not know, or what lies in its place is no folder.
        SafetyError: it, or the logs, are a link: what is written there, and cleared, would be somebody else's.

    """
    folder = root / FOLDER
    for name in (FOLDER, LOGS):
        if (root / name).is_symlink():
            raise leaves(name)
    check_folder(folder)
    check_folder(root / LOGS)
    is_strange = standing(folder) is Standing.STRANGE
    place = folder if not is_strange else root / f"{FOLDER}-{os.urandom(8).hex()}"  # there is no such folder
    _check_version(place / "VERSION")
    index = Index(index_folder(place) / INDEX_FILE)
    disk = Disk(Contents(place / "cas", meter), Records(place / "records", index))
    used = disk.contents if contents is None else with_transfers(contents)
    workspace = Workspace(root, index, meter=meter)
    return Store(
        root=root,
        folder=folder,
        logs=root / LOGS,
        rooms=place / "rooms",
        partial=place / "partial",
        contents=used,
        records=disk.records if results is None else SharedResults(disk.records, results),
        disk=disk,
        exchanges=Exchanges(place / "exchanges", root),
        workspace=workspace,
        sources=Sources(used, workspace, meter),
        promoter=Promoter(root, place / "promote.json", used, meter),
        index=index,
        pipelines=Compiled(index, "pipelines", ("load", "model", "resolve", "checks", "steps")),
        plans=Compiled(index, "plans", ("plan", "model", "steps")),
        is_strange=is_strange,
    )


def any_suspected(rows: Mapping[bytes, bytes | None], suspects: Callable[[Iterable[str]], bool]) -> bool:
    """Return whether there may be a secret in the rows of a table. They are searched in parts, to save memory.

    A secret is found wherever it is cut: parts of a row overlap by more than an environment variable can hold.
    """
    parts: list[str] = []
    size_bytes = 0
    for data in (data for pair in rows.items() for data in pair if data):
        for at in _starts(len(data)):
            part = data[at : at + _WINDOW]
            if size_bytes + len(part) > _WINDOW:
                if suspects(parts):
                    return True
                parts, size_bytes = [], 0
            parts.append(part.decode("utf-8", "replace"))
            size_bytes += len(part)
    return suspects(parts)


def _starts(size_bytes: int) -> range:
    """Return where the parts of a row begin: each but the last is a whole window."""
    return range(0, max(size_bytes - _OVERLAP, 1), _WINDOW - _OVERLAP)


def _close_up(folder: Path) -> None:
    """Keep others out of a folder of ours that an earlier version, or a copy, left open to them."""
    with contextlib.suppress(OSError):  # not ours to change, or not there yet
        if stat.S_IMODE(folder.stat().st_mode) & ~PRIVATE_FOLDER:
            folder.chmod(PRIVATE_FOLDER)


def _has_version(path: Path) -> bool:
    return read_regular(path) == STORE_VERSION


def _check_version(path: Path) -> None:
    """Complain of another version. What is none at all is damage: it is written anew, and every file proves itself."""
    found = read_regular(path) or STORE_VERSION
    if found != STORE_VERSION and _VERSION.fullmatch(found):
        version = found.decode("ascii").strip()
        raise CorruptStateError(
            Diagnostic(
                E_STORE_VERSION,
                f"the store {FOLDER} is of version {version!r}, this orch23 knows version 1",
                Location(f"{FOLDER}/{path.name}", 1, 1),
                "`orch23 reset` makes a new one; recorded answers are kept",
            )
        )
