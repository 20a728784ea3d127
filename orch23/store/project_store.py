"""Open the store of a project: all of its parts, at their paths."""

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Digest
from orch23.model.errors import CorruptStateError, SafetyError
from orch23.model.paths import LOGS_FOLDER, TOOL_CACHES_FOLDER
from orch23.model.patterns import lazy_pattern
from orch23.store.access import (
    GROUPED,
    LOCK_FILE,
    SHOWN_TIER_FILE,
    hold_build_lock,
    key_of_store,
    remove_wrong_types,
    require_folder,
    require_store,
    store_origin,
)
from orch23.store.content_store import DiskContentStore
from orch23.store.file_copy import FileProgress, no_progress
from orch23.store.index import FILES_TABLE, INDEX_FILE, CompiledTable, StoreIndex, index_folder
from orch23.store.input_files import InputFiles
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.promotion import Promoter
from orch23.store.records import RECORDS_TABLE, Records
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    closing,
    make_folder,
    open_file,
    read_regular,
    split_path,
    sweep_temps,
    sweep_temps_below,
    try_unlink,
    unsafe_path_error,
    write_atomic,
)
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.model.ports import FileContentStore, ResultIndex
    from orch23.store.exchanges import Exchanges

STORE_VERSION = b"1\n"
_VERSION = lazy_pattern(rb"[1-9][0-9]{0,8}\n")
STORE_NAME = ".orch23"

KEEP_VARIABLE = "ORCH23_GC_KEEP"
DEFAULT_CAP_BYTES = 10_000_000_000
"""The size to which `gc` reduces a store, unless `KEEP_VARIABLE` is set."""
_STEPS = ("steps", "features/fetch/step")  # the step kinds, whose values are stored
SWEPT_FOLDERS = ("cas", "rooms")
"""The folders that each build makes before its first stage: without one, someone has removed it."""
_WRITING_INTO = "writing.json"
_WINDOW = 1 << 20  # bytes that are searched at once
_OVERLAP = 1 << 18
_OPENING = threading.Lock()


class LocalParts(Struct, frozen=True):
    """The parts of a store with what only commands about its folder need, such as `gc`."""

    contents: DiskContentStore
    records: Records


class ProjectStore(Struct, frozen=True, kw_only=True):
    """The parts of a project's store. Each part creates its folder with its first write.

    If `is_foreign`, the store is not the user's: the parts are empty, and its lock cannot be taken.
    """

    root: Path
    folder: Path
    logs: Path
    sandbox_dirs: Path
    shared_trees: Path
    partial_downloads: Path
    batches: Path
    approvals: Path
    base_runs: Path
    tool_caches: Path
    contents: "FileContentStore"
    records: "ResultIndex"
    local: LocalParts
    exchanges_folder: Path
    workspace: Workspace
    sources: InputFiles
    promoter: Promoter
    index: StoreIndex
    pipelines: CompiledTable
    plans: CompiledTable
    lock_files: CompiledTable
    is_foreign: bool = False
    key: StoreKey = TRUSTED
    repaired: list[str] = field(default_factory=list)
    opened_exchanges: "list[Exchanges]" = field(default_factory=list)

    @property
    def exchanges(self) -> "Exchanges":
        """The recorded exchanges: one object for all views of the store."""
        from orch23.store.exchanges import Exchanges  # noqa: PLC0415 - few edits call a model

        with _OPENING:
            if not self.opened_exchanges:
                self.opened_exchanges.append(Exchanges(self.exchanges_folder, self.root))
        return self.opened_exchanges[0]

    def for_one_moment(self, *, continued: bool = False) -> "ProjectStore":
        """Return a view of this store that looks at each path of the workspace once: see `Workspace.for_one_moment`."""
        return self._with_workspace(self.workspace.for_one_moment(continued=continued))

    def tracked(self, reads: set[str]) -> "ProjectStore":
        """Return a view for one moment that adds to `reads` each path of the workspace that is read through it."""
        return self._with_workspace(self.workspace.tracked(reads))

    def _with_workspace(self, workspace: Workspace) -> "ProjectStore":
        return replace(self, workspace=workspace, sources=self.sources.with_workspace(workspace))

    def build_lock(self) -> contextlib.AbstractContextManager[None]:
        """Return the lock that a command must hold to change the project."""
        return hold_build_lock(self.folder / LOCK_FILE, self.key)

    def add_file(self, path: str) -> Digest:
        """Store the bytes of a file of the project and return their digest.

        Raises:
            FileNotFoundError: the file does not exist.
            SafetyError: it is a link or not a regular file, or a directory of its path is a link.
        """
        source = open_file(self.root, path)
        if source is None:
            if not os.path.lexists(self.root / path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            raise unsafe_path_error(path)
        with closing(source):
            if (data := self.workspace.as_committed(path, source)) is not None:
                return self.contents.put(data)
            return self.contents.adopt(source, path.rpartition("/")[2])

    def write_exchanges(self) -> None:
        """Write the exchanges that were put so far."""
        for exchanges in self.opened_exchanges:
            exchanges.write_later()

    def sync(self) -> None:
        """Make all contents, records and exchanges that were put so far durable."""
        self.write_exchanges()
        self.contents.sync()  # and the whole file system with them

    def sweep(self, *, whole: bool = True) -> None:
        """Write the version, and delete temporary files and entries of wrong types. The caller holds the build lock.

        Sandbox directories are left to the executor, which first kills the processes that still use them. After a
        complete build with a snapshot, the 100,000 files that a store may have are skipped (`whole=False`).
        """
        self.repaired.extend(remove_wrong_types(self.folder, whole=whole))
        if (version := read_regular(self.folder / "VERSION")) != STORE_VERSION:
            self.repaired.extend([] if version is None else ["VERSION: was damaged"])
            write_atomic(self.folder / ".gitignore", b"*\n", mode=PRIVATE_FILE_MODE)
            write_atomic(self.folder / "VERSION", STORE_VERSION, mode=PRIVATE_FILE_MODE)
        for folder in (self.folder, self.logs):
            _make_private(folder)
        for name in SWEPT_FOLDERS:
            make_folder(self.folder / name, PRIVATE_FOLDER_MODE)
        for folder in (self.folder, self.logs, *(self.folder / name for name in GROUPED)):
            sweep_temps(folder)
        self._sweep_project()

    @contextlib.contextmanager
    def writing_into(self, folders: Collection[str]) -> Iterator[None]:
        """Note that a command writes into these folders of the project, for the time of the block.

        If the process is killed, the next sweep deletes its temporary files there. The caller holds the build lock.
        """
        write_atomic(self.folder / _WRITING_INTO, TRUSTED.encode(sorted(folders)), mode=PRIVATE_FILE_MODE)
        yield
        try_unlink(self.folder / _WRITING_INTO)

    def _sweep_project(self) -> None:
        with contextlib.suppress(ValueError):
            for folder in TRUSTED.decode(read_regular(self.folder / _WRITING_INTO) or b"", list[str]):
                with contextlib.suppress(OSError, SafetyError):
                    sweep_temps_below(self.root, split_path(f"{folder}/any" if folder else "any")[0])
        try_unlink(self.folder / _WRITING_INTO)

    def save_index(
        self,
        fresh: Mapping[str, Mapping[bytes, bytes]] | None = None,
        changed: Mapping[str, Mapping[bytes, bytes | None]] | None = None,
        dropped: tuple[str, ...] = (),
        suspects: Callable[[Iterable[str]], bool] = lambda _texts: True,
    ) -> None:
        """Write to the index what has changed of records, files and compiled pipelines, and the given tables.

        A table of compiled pipelines is left out if `suspects` returns True for its texts: it may hold a secret. The
        caller holds the build lock.
        """
        tables, edits = dict(fresh or {}), dict(changed or {})
        sources = {RECORDS_TABLE: self.local.records.pending_index_rows, FILES_TABLE: self._pending_files}
        sources[self.lock_files.table] = self.lock_files.pending_rows
        compiled = {table.table: table.pending_rows for table in (self.pipelines, self.plans)}
        for table, pending in (sources | compiled).items():
            whole, some = pending()
            if table in compiled and may_hold_secret(some if whole is None else whole, suspects):
                continue
            if whole is not None:
                # Each in a transaction of its own: all together are a third of the memory of a first build.
                self.index.write({table: whole})
            elif some:
                edits[table] = some
            del whole, some
        if tables or edits or dropped:
            self.index.write(tables, edits, dropped)

    def _pending_files(self) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None]]:
        """Return the rows of files as `Records.pending_index_rows` does those of records."""
        files = self.workspace.pending_index_rows()
        if self.index.has_table(FILES_TABLE):
            return None, files
        return {path: row for path, row in files.items() if row is not None}, {}

    def shown_tier(self) -> str:
        """Return the sandbox tier that the user of this project was last warned about."""
        return (read_regular(self.folder / SHOWN_TIER_FILE) or b"").decode("ascii", "replace").strip()

    def save_shown_tier(self, tier: str) -> None:
        """Save the sandbox tier that the user was warned about, so that the warning is shown once."""
        write_atomic(self.folder / SHOWN_TIER_FILE, f"{tier}\n".encode(), mode=PRIVATE_FILE_MODE)

    def repairs(self) -> tuple[str, ...]:
        """Return a message for each damaged or wrong entry that was found and dropped so far."""
        contents, records = self.local.contents.damaged, self.local.records.damaged
        exchanges = (one.damaged for one in self.opened_exchanges)
        parts = (self.repaired, contents, records, *exchanges, self.promoter.damaged)
        return tuple(line for part in parts for line in part)


def open_store(root: Path, meter: FileProgress = no_progress) -> ProjectStore:
    """Return the store of the project at `root`, which need not exist. `meter` receives the progress on large files.

    Raises:
        CorruptStateError: the store has an unknown version, or there is something at its path that is not a folder.
        SafetyError: it, or the logs, are a link: orch23 would write and delete files outside of the project.
    """
    folder = root / STORE_NAME
    require_store(folder)
    require_folder(root / LOGS_FOLDER)
    is_foreign = store_origin(folder) == "foreign"
    # Nothing of a foreign store may be read: its parts get the path of a folder that does not exist.
    place = root / f"{STORE_NAME}-{os.urandom(8).hex()}" if is_foreign else folder
    _check_version(place / "VERSION")
    key = key_of_store(place)
    index = StoreIndex(index_folder(place) / INDEX_FILE, key)
    disk = LocalParts(DiskContentStore(place / "cas", meter), Records(place / "records", index, key))
    workspace = Workspace(root, index, meter=meter)
    return ProjectStore(
        root=root,
        folder=folder,
        logs=root / LOGS_FOLDER,
        sandbox_dirs=place / "rooms",
        shared_trees=place / "trees",
        partial_downloads=place / "partial",
        batches=place / "batches",
        approvals=place / "approvals",
        base_runs=place / "base-runs",
        tool_caches=root / TOOL_CACHES_FOLDER,
        contents=disk.contents,
        records=disk.records,
        local=disk,
        exchanges_folder=place / "exchanges",
        workspace=workspace,
        sources=InputFiles(disk.contents, workspace, meter),
        promoter=Promoter(root, place / "promote.json", disk.contents, workspace.digest_of, key),
        index=index,
        pipelines=CompiledTable(index, "pipelines", ("load", "language", "model", "resolve", "checks", *_STEPS)),
        plans=CompiledTable(index, "plans", ("plan", "model", *_STEPS)),
        lock_files=CompiledTable(index, "lock files", ()),
        is_foreign=is_foreign,
        key=key,
    )


def may_hold_secret(rows: Mapping[bytes, bytes | None], suspects: Callable[[Iterable[str]], bool]) -> bool:
    """Return whether there may be a secret in the rows of a table. They are searched in parts, to save memory.

    Parts of a row overlap by more bytes than an environment variable can hold, so that no part cuts a secret in two.
    """
    parts: list[str] = []
    size_bytes = 0
    for data in (data for pair in rows.items() for data in pair if data):
        # All parts of a row but the last have the size of the window.
        for at in range(0, max(len(data) - _OVERLAP, 1), _WINDOW - _OVERLAP):
            part = data[at : at + _WINDOW]
            if size_bytes + len(part) > _WINDOW:
                if suspects(parts):
                    return True
                parts, size_bytes = [], 0
            parts.append(part.decode("utf-8", "replace"))
            size_bytes += len(part)
    return suspects(parts)


def _make_private(folder: Path) -> None:
    """Refuse other users a folder that an earlier version, or a copy of the project, left open to them."""
    with contextlib.suppress(OSError):
        # It does not exist yet, or belongs to another user.
        if stat.S_IMODE(folder.stat().st_mode) & ~PRIVATE_FOLDER_MODE:
            folder.chmod(PRIVATE_FOLDER_MODE)


def _check_version(path: Path) -> None:
    """Refuse another version. A text that is not a version is damage: it is replaced, and each file has a checksum."""
    found = read_regular(path) or STORE_VERSION
    if found != STORE_VERSION and _VERSION.fullmatch(found):
        version = found.decode("ascii").strip()
        message = f"the store {STORE_NAME} has version {version!r}, but this orch23 supports version 1"
        hint = "`orch23 reset` creates a new store; recorded responses are kept"
        raise CorruptStateError(Diagnostic("E705", message, Location(f"{STORE_NAME}/{path.name}", 1, 1), hint))
