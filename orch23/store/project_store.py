"""Open the store of a project: all of its parts, at their paths."""

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
from orch23.model.parsing import to_struct
from orch23.model.paths import LOGS_FOLDER
from orch23.model.ports import ContentStore, FileContentStore, ResultIndex, ResultStore
from orch23.store.access import (
    SHOWN_TIER_FILE,
    BuildLock,
    StoreOrigin,
    remove_wrong_types,
    require_folder,
    store_origin,
)
from orch23.store.codes import E_STORE_VERSION
from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import Exchanges
from orch23.store.file_copy import FileProgress, no_progress
from orch23.store.index import INDEX_FILE, StoreIndex, index_folder
from orch23.store.index_tables import CompiledTable
from orch23.store.input_files import InputFiles
from orch23.store.json_text import decode_with_checksum, encode_with_checksum
from orch23.store.promotion import Promoter
from orch23.store.records import RECORDS_TABLE, Records
from orch23.store.remote_stores import CombinedResults, with_file_access
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    is_temp,
    open_directory,
    open_file,
    read_regular,
    split_path,
    sweep_temps,
    sync_filesystem,
    try_unlink,
    unsafe_path_error,
    write_atomic,
)
from orch23.store.workspace import FILES_TABLE, Workspace

if TYPE_CHECKING:
    pass


STORE_VERSION = b"1\n"
_VERSION = re.compile(rb"[1-9][0-9]{0,8}\n")
STORE_NAME = ".orch23"

KEEP_VARIABLE = "ORCH23_GC_KEEP"
DEFAULT_CAP_BYTES = 10_000_000_000
"""The size down to which `gc` clears a store, unless that variable says another."""
_NOTED = "writing.json"
_WINDOW = 1 << 20  # bytes that are searched at once
_OVERLAP = 1 << 18


class LocalParts(Struct, frozen=True):
    """The parts of a store in `.orch23/` itself, for what is about that folder, such as `gc`.

    `contents` is not used for builds if the contents are elsewhere.
    """

    contents: DiskContentStore
    records: Records


class ProjectStore(Struct, frozen=True, kw_only=True):
    """The parts of a project's store. Each makes its folder when it first writes.

    If it is strange, it is not the user's: the parts are empty, and its lock cannot be taken.
    """

    root: Path
    folder: Path
    logs: Path
    sandbox_dirs: Path
    partial_downloads: Path
    contents: FileContentStore
    records: ResultIndex
    local: LocalParts
    exchanges: Exchanges
    workspace: Workspace
    sources: InputFiles
    promoter: Promoter
    index: StoreIndex
    pipelines: CompiledTable
    plans: CompiledTable
    is_foreign: bool = False
    repaired: list[str] = field(default_factory=list)

    def tracked(self, reads: set[str]) -> "ProjectStore":
        """Return this store; what is looked at in the workspace through it is noted in a set."""
        workspace = self.workspace.tracked(reads)
        return replace(self, workspace=workspace, sources=self.sources.with_workspace(workspace))

    def build_lock(self) -> BuildLock:
        """Return the lock that a command must hold to change the project."""
        return BuildLock(self.folder / "lock")

    def add_file(self, path: str) -> Digest:
        """Store the bytes of a file of the project and return their digest.

        Raises:
            FileNotFoundError: there is no file.
            SafetyError: it is a link or not a regular file, or a directory of its path is a link.

        """
        source = open_file(self.root, path)
        if source is None:
            if not os.path.lexists(self.root / path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            raise unsafe_path_error(path)
        try:
            return self.contents.adopt(source, path.rpartition("/")[2])
        finally:
            os.close(source)

    def sync(self) -> None:
        """Make all contents and records that were put so far durable."""
        self.contents.sync()
        if self.contents is not self.local.contents and self.folder.is_dir():  # else it has synced the records as well
            sync_filesystem(self.folder)

    def sweep(self, *, whole: bool = True) -> None:
        """Mark the store as ours and remove what killed processes left. Only for the holder of the build lock.

        Their rooms are left to the next build, which ends the processes of steps first. A build of what an edit reaches
        follows one that had nothing to do: it does not look through all files of the store (`whole`).
        """
        self.repaired.extend(remove_wrong_types(self.folder, whole=whole))
        if (self.folder / "VERSION").exists() and not _has_version(self.folder / "VERSION"):
            self.repaired.append("VERSION: was damaged")
        if not _has_version(self.folder / "VERSION"):
            write_atomic(self.folder / ".gitignore", b"*\n", mode=PRIVATE_FILE_MODE)
            write_atomic(self.folder / "VERSION", STORE_VERSION, mode=PRIVATE_FILE_MODE)
        for folder in (self.folder, self.logs):
            _close_up(folder)
        self.local.contents.sweep()
        self.local.records.sweep()
        self.exchanges.sweep()
        sweep_temps(self.folder)
        sweep_temps(self.logs)
        self._sweep_noted()

    @contextlib.contextmanager
    def writing_into(self, folders: Collection[str]) -> Iterator[None]:
        """Write files into folders of the project: where this process is killed, the next sweep removes what it left.

        Only for the holder of the build lock.
        """
        write_atomic(self.folder / _NOTED, encode_with_checksum(sorted(folders)), mode=PRIVATE_FILE_MODE)
        yield
        try_unlink(self.folder / _NOTED)

    def _sweep_noted(self) -> None:
        with contextlib.suppress(ValueError):
            for folder in to_struct(decode_with_checksum(read_regular(self.folder / _NOTED) or b""), list[str]):
                with contextlib.suppress(OSError, SafetyError):
                    names, _ = split_path(f"{folder}/any" if folder else "any")
                    with open_directory(self.root, names) as place:
                        for name in filter(is_temp, os.listdir(place)):
                            os.unlink(name, dir_fd=place)
        try_unlink(self.folder / _NOTED)

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
        rows, some = self.local.records.pending_index_rows()
        files = self.workspace.pending_index_rows()
        if rows is not None:
            tables[RECORDS_TABLE] = rows
        elif some:
            edits[RECORDS_TABLE] = some
        for compiled in (self.pipelines, self.plans):
            whole, new = compiled.pending_rows()
            if may_hold_secret(whole if whole is not None else new, suspects):
                continue
            if whole is not None:
                tables[compiled.table] = whole
            elif new:
                edits[compiled.table] = new
        if not self.index.has_table(FILES_TABLE):
            tables[FILES_TABLE] = {path: row for path, row in files.items() if row is not None}
        elif files:
            edits[FILES_TABLE] = files
        if tables or edits or dropped:
            self.index.write(tables, edits, dropped)

    def shown_tier(self) -> str:
        """Return the tier of the sandbox that the user of this project was last warned about."""
        return (read_regular(self.folder / SHOWN_TIER_FILE) or b"").decode("ascii", "replace").strip()

    def save_shown_tier(self, tier: str) -> None:
        """Note that the user was warned about a tier."""
        write_atomic(self.folder / SHOWN_TIER_FILE, f"{tier}\n".encode(), mode=PRIVATE_FILE_MODE)

    def repairs(self) -> tuple[str, ...]:
        """Return everything that was found damaged so far and dropped."""
        contents, records = self.local.contents.damaged, self.local.records.damaged
        parts = (self.repaired, contents, records, self.exchanges.damaged, self.promoter.damaged)
        return tuple(line for part in parts for line in part)


def open_store(
    root: Path,
    meter: FileProgress = no_progress,
    contents: ContentStore | None = None,
    results: ResultStore | None = None,
) -> ProjectStore:
    """Return the store of the project at `root`, there or not; long work on files is reported to the meter.

    `contents` is where the bytes are, if not in `.orch23/`. `results` is a second place for results, besides the
    records there.

    Raises:
        CorruptStateError: it is of a version that this orch23 does not know, or what lies in its place is no folder.
        SafetyError: it, or the logs, are a link: what is written there, and cleared, would be somebody else's.

    """
    folder = root / STORE_NAME
    for name in (STORE_NAME, LOGS_FOLDER):
        if (root / name).is_symlink():
            raise unsafe_path_error(name)
    require_folder(folder)
    require_folder(root / LOGS_FOLDER)
    is_strange = store_origin(folder) is StoreOrigin.FOREIGN
    place = folder if not is_strange else root / f"{STORE_NAME}-{os.urandom(8).hex()}"  # there is no such folder
    _check_version(place / "VERSION")
    index = StoreIndex(index_folder(place) / INDEX_FILE)
    disk = LocalParts(DiskContentStore(place / "cas", meter), Records(place / "records", index))
    used = disk.contents if contents is None else with_file_access(contents)
    workspace = Workspace(root, index, meter=meter)
    return ProjectStore(
        root=root,
        folder=folder,
        logs=root / LOGS_FOLDER,
        sandbox_dirs=place / "rooms",
        partial_downloads=place / "partial",
        contents=used,
        records=disk.records if results is None else CombinedResults(disk.records, results),
        local=disk,
        exchanges=Exchanges(place / "exchanges", root),
        workspace=workspace,
        sources=InputFiles(used, workspace, meter),
        promoter=Promoter(root, place / "promote.json", used, meter),
        index=index,
        pipelines=CompiledTable(index, "pipelines", ("load", "model", "resolve", "checks", "steps")),
        plans=CompiledTable(index, "plans", ("plan", "model", "steps")),
        is_foreign=is_strange,
    )


def may_hold_secret(rows: Mapping[bytes, bytes | None], suspects: Callable[[Iterable[str]], bool]) -> bool:
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
        if stat.S_IMODE(folder.stat().st_mode) & ~PRIVATE_FOLDER_MODE:
            folder.chmod(PRIVATE_FOLDER_MODE)


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
                f"the store {STORE_NAME} is of version {version!r}, this orch23 knows version 1",
                Location(f"{STORE_NAME}/{path.name}", 1, 1),
                "`orch23 reset` makes a new one; recorded answers are kept",
            )
        )
