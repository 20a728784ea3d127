"""Choose and delete what no pipeline needs, count what a store holds, and verify it.

A result is a record with the blobs of its outputs. A record of a paid answer, and one whose bytes are on the disk, is
kept when its blobs go: its answers make the bytes again, and it is what tells a result from a person's edit.
"""

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.model.digest import Digest, FileEntry, Json
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.record import Record
from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import ExchangeFile, Exchanges
from orch23.store.project_store import ProjectStore
from orch23.store.records import Records, SurveyedRecord
from orch23.store.safe_files import try_unlink

"""Room for two versions of the largest result that a room may hold, and for much else."""

FindEntry: TypeAlias = Callable[[str], FileEntry | None]
_SHA256_DIGITS = 64


class GcRoots(Struct, frozen=True, kw_only=True):
    """What must stay: all records of these keys, these records, and the answers to stages that are not fresh.

    `notes` say of which pipelines today's plan is not known.
    """

    keys: frozenset[str] = frozenset()
    records: tuple[Record, ...] = ()
    stale: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class GcLimits(Struct, frozen=True, kw_only=True):
    """How much is to stay: at most so many bytes, and what was used since; with `answers` paid ones go too."""

    max_bytes: int | None = None
    used_since_ns: int | None = None
    responses: bool = False


class GcSelection(Struct, frozen=True, kw_only=True):
    """What is to go, in the order in which it goes; `size_bytes` is what the store takes before, `freed_bytes` less."""

    records: tuple[SurveyedRecord, ...] = ()
    blobs: tuple[Digest, ...] = ()
    exchanges: tuple[ExchangeFile, ...] = ()
    size_bytes: int = 0
    freed_bytes: int = 0

    @property
    def remaining_bytes(self) -> int:
        """Give what the store takes afterwards."""
        return self.size_bytes - self.freed_bytes


class _Use(Struct, frozen=True):
    """One thing that may go: a record with the blobs that it holds, a blob that no record names, or an answer."""

    used: tuple[int, int]
    blobs: frozenset[str] = frozenset()
    record: SurveyedRecord | None = None
    exchange: ExchangeFile | None = None
    is_needed: bool = False


class GarbageCollector:
    """Chooses what is to go, and drops it. Only for the holder of the build lock; to choose alone takes no lock."""

    def __init__(
        self, folder: Path, *, contents: DiskContentStore, records: Records, exchanges: Exchanges, on_disk: FindEntry
    ) -> None:
        """Take the store's folder and parts, and what tells what is at a path of the workspace."""
        self._folder = folder
        self._contents = contents
        self._records = records
        self._exchanges = exchanges
        self._on_disk = on_disk

    def select(self, needs: GcRoots, wish: GcLimits) -> GcSelection:
        """Return what is to go for a wish to come true, as far as what is needed allows. Writes nothing."""
        blobs = {digest.sha256: (digest, put_ns) for digest, put_ns in stored_blobs(self._contents.folder)}
        held = self._records.survey()
        needed = [one.record for one in held if one.record.key in needs.keys] + list(needs.records)
        firm = {sha256 for record in needed for sha256 in _outputs_of(record)}
        known = self._known(held)
        uses = self._uses(held, {id(record) for record in needed}, blobs)
        if wish.responses:
            uses += self._answers({name for record in needed for name in record.exchanges}, needs.stale)
        uses.sort(key=lambda use: (use.is_needed, use.record is not None or use.exchange is not None, use.used))
        holds = Counter(sha256 for use in uses for sha256 in use.blobs)
        size_bytes = stored_bytes(self._folder)
        records: list[SurveyedRecord] = []
        gone: list[Digest] = []
        exchanges: list[ExchangeFile] = []
        freed = 0
        for use in uses:
            if not _is_to_go(use, wish, size_bytes - freed):
                continue
            for sha256 in sorted(use.blobs):
                holds[sha256] -= 1
                if not holds[sha256] and sha256 in blobs and sha256 not in firm:
                    gone.append(blobs[sha256][0])
                    freed += gone[-1].size_bytes
            if use.record is not None and not use.is_needed and _may_lose(use.record, known, wish):
                records.append(use.record)
                freed += use.record.size_bytes
            if use.exchange is not None:
                exchanges.append(use.exchange)
                freed += use.exchange.size_bytes
        return GcSelection(
            records=tuple(records),
            blobs=tuple(gone),
            exchanges=tuple(exchanges),
            size_bytes=size_bytes,
            freed_bytes=freed,
        )

    def delete(self, chosen: GcSelection) -> None:
        """Drop what was chosen: first what refers to bytes, durably, then the bytes. To be killed in it is harmless."""
        self._records.delete(frozenset(one.digest for one in chosen.records))
        for exchange in chosen.exchanges:
            try_unlink(exchange.path)
        for digest in chosen.blobs:
            self._contents.delete(digest)
        for group in (*group_folders(self._contents.folder), *group_folders(self._folder / "records")):
            with contextlib.suppress(OSError):  # not empty
                group.rmdir()

    def _uses(
        self, held: tuple[SurveyedRecord, ...], needed: Collection[int], blobs: Mapping[str, tuple[Digest, int]]
    ) -> list[_Use]:
        """Return all records and blobs that may go; what is needed holds its inputs, and only to the last."""
        named: set[str] = set()
        uses = []
        for one in held:
            mine = frozenset({*_outputs_of(one.record), *_inputs_of(one.record)})
            named |= mine
            uses.append(_Use(one.last_used, mine, record=one, is_needed=id(one.record) in needed))
        uses += [_Use((put_ns, 0), frozenset({name})) for name, (_, put_ns) in blobs.items() if name not in named]
        return uses

    def _answers(self, needed: Collection[str], stale: Collection[str]) -> Iterator[_Use]:
        """Give the answers that no needed result is made of, and that no stage would be asked for today."""
        for file in self._exchanges.exchange_files():
            if file.path.stem not in needed:
                exchange = self._exchanges.get(file.path.stem, None)
                if exchange is None or exchange.stage.partition("@")[0] not in stale:
                    yield _Use((file.put_ns, 1), exchange=file)

    def _known(self, held: Sequence[SurveyedRecord]) -> frozenset[str]:
        """Return the records that tell of the bytes on the disk whose they are: of each file the newest is enough.

        What a person had there before any stage of a chain wrote it, only a record with originals tells.
        """
        told: set[tuple[str, bool]] = set()
        known = set()
        for one in reversed(held):
            for path, entry in one.record.outputs.items():
                facts = {(path, False), (path, path in one.record.originals)} - told
                if facts and self._is_there(path, entry):
                    told |= facts
                    known.add(one.digest)
        return frozenset(known)

    def _is_there(self, path: str, entry: FileEntry) -> bool:
        try:
            return self._on_disk(path) == entry
        except SafetyError:  # it leads through a link today: nobody can tell
            return True


def _may_lose(held: SurveyedRecord, known: Collection[str], wish: GcLimits) -> bool:
    """Say whether nothing but its bytes is lost with a record."""
    return held.digest not in known and (wish.responses or not held.record.exchanges)


def _is_to_go(use: _Use, wish: GcLimits, left_bytes: int) -> bool:
    if wish.used_since_ns is not None and use.used[0] < wish.used_since_ns and not use.is_needed:
        return True
    return wish.max_bytes is not None and left_bytes > wish.max_bytes


def _outputs_of(record: Record) -> Iterator[str]:
    yield from (entry.digest.sha256 for entry in record.outputs.values())
    yield from (entry.digest.sha256 for entry in record.originals.values() if entry is not None)
    yield from (base.start.digest.sha256 for base in record.bases.values())


def _inputs_of(record: Record) -> Iterator[str]:
    """Give the digests that a manifest names: the bytes may be in the store, for a later look at what changed."""
    waiting: list[Json] = list(record.manifest.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if is_sha256(value.removesuffix("+x")):
                yield value.removesuffix("+x")
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, Sequence):
            waiting += value


def stored_bytes(folder: Path) -> int:
    """Return the sizes of all files below a folder, added up."""
    return count_files(folder)[1]


def count_files(folder: Path) -> tuple[int, int]:
    """Return the number of the files below a folder, and their sizes, added up; what vanishes does not count."""
    files = size_bytes = 0
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    size_bytes += entry.stat(follow_symlinks=False).st_size
                    files += 1
    return files, size_bytes


def stored_blobs(folder: Path) -> Iterator[tuple[Digest, int]]:
    """Give every blob below a folder, with the time in nanoseconds when it was put. Other names are no blobs."""
    for path in group_folders(folder):
        with os.scandir(path) as entries:
            for entry in entries:
                if is_sha256(entry.name) and entry.name.startswith(path.name):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield Digest(entry.name, found.st_size), found.st_mtime_ns


def group_folders(folder: Path) -> list[Path]:
    """Return the folders `ab/` of a store's part, sorted."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def is_sha256(name: str) -> bool:
    """Say whether a name, or a value of a manifest, is the sha256 of some bytes in hex."""
    return len(name) == _SHA256_DIGITS and not set(name) - set("0123456789abcdef")


class StoredKind(Struct, frozen=True):
    """How many there are of a kind, and how many bytes they take."""

    kind: str
    number: int
    size_bytes: int


class StoreVerification(Struct, frozen=True, kw_only=True):
    """How much was looked at, and each thing that was damaged."""

    results: int
    stored_files: int
    recorded_answers: int
    damaged: tuple[str, ...]


def count_stored(store: ProjectStore) -> tuple[StoredKind, ...]:
    """Return what a store holds, by kind, and last whatever else lies there. Writes nothing."""
    blobs = [digest.size_bytes for digest, _ in stored_blobs(store.local.contents.folder)]
    exchanges, originals = store.exchanges.exchange_files(), store.exchanges.original_files()
    shelves, records_bytes = count_files(store.local.records.folder)
    files, all_bytes = count_files(store.folder)
    known = (
        StoredKind("stored_files", len(blobs), sum(blobs)),
        StoredKind("results", len(store.records.survey()), records_bytes),
        StoredKind("recorded_answers", len(exchanges), sum(one.size_bytes for one in exchanges)),
        StoredKind("bytes_of_persons", len(originals), sum(one.size_bytes for one in originals)),
    )
    others = files - len(blobs) - shelves - len(exchanges) - len(originals)
    return (*known, StoredKind("other_files", others, all_bytes - sum(one.size_bytes for one in known)))


def verify_store(store: ProjectStore) -> StoreVerification:
    """Read all of a store, and drop what is damaged, as a build does that meets it. Only under the build lock."""
    blobs = [digest for digest, _ in stored_blobs(store.local.contents.folder)]
    for digest in blobs:
        try:
            store.local.contents.check(digest)
        except MissingBytesError:  # told in `healed`
            store.local.contents.delete(digest)
    results = len(store.records.survey())
    store.local.records.delete(frozenset())
    answers = len(store.exchanges.exchange_files())
    store.exchanges.set_damaged_aside()
    return StoreVerification(
        results=results,
        stored_files=len(blobs),
        recorded_answers=answers,
        damaged=store.repairs(),
    )


def collector_of(store: "ProjectStore") -> GarbageCollector:
    """Return the collector of a store."""
    return GarbageCollector(
        store.folder,
        contents=store.local.contents,
        records=store.local.records,
        exchanges=store.exchanges,
        on_disk=store.workspace.entry,
    )
