"""Choose and delete what no pipeline needs, count what a store holds, and verify it.

A result is a record with the blobs of its outputs. Two kinds of records are kept when their blobs are deleted: those
with responses that were paid for, which restore the bytes without a call, and those of files in the workspace, without
which a build would take a result for a user edit.
"""

import contextlib
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from orch23.cli.store_size import count_files
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.event import StageFinished
from orch23.model.event_data import NEW_RESULTS
from orch23.model.parsing import strings_in
from orch23.model.patterns import lazy_pattern
from orch23.model.record import Record
from orch23.store.exchanges import ExchangeFile
from orch23.store.project_store import ProjectStore
from orch23.store.records import SurveyedRecord
from orch23.store.run_logs import journal_paths, journal_pipeline, past_events
from orch23.store.safe_files import list_folder, try_unlink
from orch23.store.tree_removal import remove_path, remove_tree

_SHA256 = lazy_pattern(r"[0-9a-f]{64}", re.ASCII)


class GcRoots(Struct, frozen=True, kw_only=True):
    """What must stay: the records of these keys, these records, these responses, and those for stages in `stale`.

    `transcripts` are the folders in which all responses are known that a replay needs; `runs` are those that the next
    build continues; `notes` name the pipelines whose plan could not be made.
    """

    keys: frozenset[str] = frozenset()
    records: tuple[Record, ...] = ()
    responses: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    transcripts: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class GcLimits(Struct, frozen=True, kw_only=True):
    """What may stay: `max_bytes`, entries used since a time, and the newest `runs` of each pipeline.

    With `responses`, paid responses may be deleted; with `transcripts`, their copies in transcripts.
    """

    max_bytes: int | None = None
    used_since_ns: int | None = None
    runs: int = 50
    responses: bool = False
    transcripts: bool = False


class StoredRun(Struct, frozen=True):
    """A run, its pipeline file, and the size of its journal and of the files of its attempts."""

    run_id: str
    pipeline: str
    size_bytes: int


class GcSelection(Struct, frozen=True, kw_only=True):
    """What is to be deleted, in this order. `size_bytes` is the size of the store before; `freed_bytes` is the gain."""

    records: tuple[SurveyedRecord, ...] = ()
    blobs: tuple[Digest, ...] = ()
    exchanges: tuple[ExchangeFile, ...] = ()
    transcripts: tuple[ExchangeFile, ...] = ()
    runs: tuple[StoredRun, ...] = ()
    folders: tuple[Path, ...] = ()  # copies of large input folders, and caches of tools
    decisions: tuple[Path, ...] = ()  # approvals, changes that wait for one, and results on bases
    size_bytes: int = 0
    freed_bytes: int = 0

    @property
    def remaining_bytes(self) -> int:
        """Return the size of the store afterwards."""
        return self.size_bytes - self.freed_bytes


class _Use(Struct, frozen=True):
    """A candidate: a record with the blobs that it refers to, a blob without a record, or an exchange.

    Candidates are sorted by `order`: unreferenced blobs go first, the least recently used of each kind first, and what
    is needed last.
    """

    last_used: tuple[int, int]
    blobs: frozenset[str] = frozenset()
    entry: SurveyedRecord | ExchangeFile | None = None
    is_needed: bool = False

    @property
    def order(self) -> tuple[bool, bool, tuple[int, int]]:
        return self.is_needed, self.entry is not None, self.last_used


class GarbageCollector(Struct, frozen=True):
    """Selects what is to be deleted of a store, and deletes it. The caller must hold the build lock to delete."""

    store: ProjectStore

    def select(self, roots: GcRoots, limits: GcLimits) -> GcSelection:
        """Return what is to be deleted to meet the limits, as far as the roots allow. Writes nothing."""
        blobs = {digest.sha256: (digest, put_ns) for digest, put_ns in stored_blobs(self.store.local.contents.folder)}
        surveyed = self.store.local.records.survey()
        needed = [one.record for one in surveyed if one.record.key in roots.keys] + list(roots.records)
        uses = self._uses(surveyed, {id(record) for record in needed}, blobs)
        if limits.responses:
            uses += self._responses({name for record in needed for name in record.exchanges}, roots.stale)
        known = self._known(surveyed)
        size_bytes = left_bytes = count_files(self.store.folder)[1]
        kept_blobs = {sha256 for record in needed for sha256 in _outputs_of(record)}
        # First what the next build makes again from the project.
        copies = [*self.store.shared_trees.iterdir()] if self.store.shared_trees.is_dir() else []
        folders = copies if limits.max_bytes is not None and left_bytes > limits.max_bytes else []
        left_bytes -= sum(count_files(one)[1] for one in folders)
        locks = (one for one in list_folder(self.store.tool_caches) if one.suffix == ".lock")
        for used_ns, cache in sorted((one.lstat().st_mtime_ns, one.with_suffix("")) for one in locks):
            is_old = limits.used_since_ns is not None and used_ns < limits.used_since_ns
            if cache.is_dir() and (is_old or (limits.max_bytes is not None and left_bytes > limits.max_bytes)):
                folders.append(cache)
                left_bytes -= count_files(cache)[1]
        entries: list[SurveyedRecord | ExchangeFile] = []
        free: list[Digest] = []
        # Each blob is freed with the last candidate that refers to it.
        references = Counter(sha256 for use in uses for sha256 in use.blobs)
        for use in sorted(uses, key=lambda use: use.order):
            is_old = limits.used_since_ns is not None and use.last_used[0] < limits.used_since_ns
            if (is_old and not use.is_needed) or (limits.max_bytes is not None and left_bytes > limits.max_bytes):
                references.subtract(use.blobs)
                unreferenced = (sha256 for sha256 in sorted(use.blobs - kept_blobs) if not references[sha256])
                more = [blobs[sha256][0] for sha256 in unreferenced if sha256 in blobs]
                lost = [] if use.entry is None or _must_stay(use, use.entry, known, limits) else [use.entry]
                free += more
                entries += lost
                left_bytes -= sum(one.size_bytes for one in (*more, *lost))
        named = {*roots.responses, *(name for record in roots.records for name in record.exchanges)}
        unneeded = (self.store.exchanges.unneeded(one, named, roots.stale) for one in sorted(roots.transcripts))
        transcripts = tuple(file for files in unneeded for file in files)
        approvals, since_ns = self.store.approvals, limits.used_since_ns or 0
        places = (approvals, approvals / "waiting", self.store.base_runs)
        decided = (one for place in places for one in list_folder(place) if one.is_file())
        return GcSelection(
            decisions=tuple(one for one in decided if one.stat().st_mtime_ns < since_ns),
            records=tuple(one for one in entries if isinstance(one, SurveyedRecord)),
            blobs=tuple(free),
            exchanges=tuple(one for one in entries if isinstance(one, ExchangeFile)),
            transcripts=transcripts,
            folders=tuple(folders),
            size_bytes=size_bytes,
            freed_bytes=size_bytes - left_bytes,
        )

    def delete(self, chosen: GcSelection) -> None:
        """Delete a selection.

        Records are deleted first, durably, and then their bytes: if this process is killed in between, bytes without a
        record are left, which the next run deletes, and never a record without bytes.
        """
        self.store.local.records.delete(frozenset(one.digest for one in chosen.records))
        for path in (*(one.path for one in chosen.exchanges), *chosen.decisions):
            try_unlink(path)
        for file in chosen.transcripts:
            self.store.exchanges.remove_transcript(file)
        for run in chosen.runs:  # the journal last, so that a removal that is cut off is repeated
            remove_path(self.store.logs / run.run_id)
            try_unlink(self.store.logs / f"{run.run_id}.jsonl")
        for folder in chosen.folders:
            remove_tree(folder)
        for digest in chosen.blobs:
            self.store.local.contents.delete(digest)
        for group in (*group_folders(self.store.local.contents.folder), *group_folders(self.store.folder / "records")):
            with contextlib.suppress(OSError):  # not empty
                group.rmdir()

    def _uses(
        self, surveyed: Sequence[SurveyedRecord], needed: Collection[int], blobs: Mapping[str, tuple[Digest, int]]
    ) -> list[_Use]:
        """Return all records, and the blobs without a record. The inputs of a needed record are the last to go."""
        blobs_of = [(one, frozenset({*_outputs_of(one.record), *_inputs_of(one.record)})) for one in surveyed]
        uses = [_Use(one.last_used, some, one, is_needed=id(one.record) in needed) for one, some in blobs_of]
        named = {name for _, some in blobs_of for name in some}
        return uses + [_Use((put_ns, 0), frozenset({name})) for name, (_, put_ns) in blobs.items() if name not in named]

    def _responses(self, needed: Collection[str], stale: Collection[str]) -> Iterator[_Use]:
        """Yield the exchanges that no needed result is made from, and that no current stage would replay."""
        for file in self.store.exchanges.exchange_files():
            if file.path.stem not in needed:
                exchange = self.store.exchanges.get(file.path.stem, None)
                if exchange is None or exchange.stage.partition("@")[0] not in stale:
                    yield _Use((file.put_ns, 1), entry=file)

    def _known(self, surveyed: Sequence[SurveyedRecord]) -> frozenset[str]:
        """Return the records that show which files of the workspace are results: for each file the newest one.

        A second one is kept for a file that a user had before a stage wrote it, if the newest has no original of it.
        """
        shown: set[tuple[str, bool]] = set()
        known = set()
        for one in reversed(surveyed):
            for path, entry in one.record.outputs.items():
                facts = {(path, False), (path, path in one.record.originals)} - shown
                if facts and self._is_there(path, entry):
                    shown |= facts
                    known.add(one.digest)
        return frozenset(known)

    def _is_there(self, path: str, entry: FileEntry) -> bool:
        try:
            return self.store.workspace.entry(path) == entry
        except SafetyError:
            # It leads through a link today, so the file cannot be compared: keep the record.
            return True


def unneeded_runs(logs: Path, needed: Collection[str], limits: GcLimits) -> tuple[StoredRun, ...]:
    """Return the runs that the limits exclude and nothing needs, newest first.

    The newest run of each pipeline stays, and of each stage the last run in which it ran, and in which it got a result.
    """
    counts = Counter[str]()
    seen: set[tuple[str, str, str]] = set()
    found = []
    for path in journal_paths(logs):
        pipeline, status = journal_pipeline(path), path.stat()
        counts[pipeline] += 1
        facts = {
            (pipeline, line.event.role, fact)
            for line, end in past_events(path, StageFinished)
            for fact, is_given in (("result", end.status in NEW_RESULTS), ("attempt", end.attempts > 0))
            if is_given
        } - seen
        seen |= facts
        is_needed = facts or counts[pipeline] == 1 or path.stem in needed
        is_old = limits.used_since_ns is not None and status.st_mtime_ns < limits.used_since_ns
        if (is_old or counts[pipeline] > limits.runs) and not is_needed:
            size_bytes = status.st_size + count_files(path.with_suffix(""))[1]
            found.append(StoredRun(path.stem, pipeline, size_bytes))
    return tuple(found)


def _must_stay(use: _Use, entry: SurveyedRecord | ExchangeFile, known: Collection[str], limits: GcLimits) -> bool:
    """Return whether an entry is kept although its blobs may be deleted: it is needed, known, or paid for."""
    if isinstance(entry, ExchangeFile):
        return False
    is_paid = bool(entry.record.exchanges) and not limits.responses
    return use.is_needed or entry.digest in known or is_paid


def _outputs_of(record: Record) -> Iterator[str]:
    yield from (entry.digest.sha256 for entry in (*record.outputs.values(), *record.made.values()))
    yield from (entry.digest.sha256 for _, entry in record.starts if entry is not None)


def _inputs_of(record: Record) -> Iterator[str]:
    """Yield the digests in a manifest: a store may hold these inputs, so that `explain` can show what changed."""
    for value in strings_in(record.manifest):
        if _SHA256.fullmatch(digest := value.removesuffix("+x")):
            yield digest


def stored_blobs(folder: Path) -> Iterator[tuple[Digest, int]]:
    """Yield every blob below a folder, with the time in nanoseconds when it was put. Other names are skipped."""
    for path in group_folders(folder):
        with os.scandir(path) as entries:
            for entry in entries:
                if _SHA256.fullmatch(entry.name) and entry.name.startswith(path.name):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield Digest(entry.name, found.st_size), found.st_mtime_ns


def group_folders(folder: Path) -> list[Path]:
    """Return the folders `ab/` of a part of the store, sorted."""
    return [path for path in list_folder(folder) if path.is_dir() and not path.is_symlink()]


class StoredKind(Struct, frozen=True):
    """The number and the total size of the entries of one kind."""

    kind: str
    number: int
    size_bytes: int


class StoreVerification(Struct, frozen=True, kw_only=True):
    """How many entries were read, and a message for each that was damaged."""

    results: int
    stored_files: int
    recorded_answers: int
    damaged: tuple[str, ...]


def count_stored(store: ProjectStore) -> tuple[StoredKind, ...]:
    """Return what a store holds, by kind; all other files are the last kind. Writes nothing."""
    blobs = [digest.size_bytes for digest, _ in stored_blobs(store.local.contents.folder)]
    exchanges, originals = store.exchanges.exchange_files(), store.exchanges.original_files()
    record_files, records_bytes = count_files(store.local.records.folder)
    files, all_bytes = count_files(store.folder)
    known = (
        StoredKind("stored_files", len(blobs), sum(blobs)),
        StoredKind("results", len(store.records.everything()), records_bytes),
        StoredKind("recorded_answers", len(exchanges), sum(one.size_bytes for one in exchanges)),
        StoredKind("bytes_of_persons", len(originals), sum(one.size_bytes for one in originals)),
    )
    others = files - len(blobs) - record_files - len(exchanges) - len(originals)
    return (*known, StoredKind("other_files", others, all_bytes - sum(one.size_bytes for one in known)))


def verify_store(store: ProjectStore) -> StoreVerification:
    """Read all of a store, and delete what is damaged, as a build does. The caller holds the build lock."""
    blobs = [digest for digest, _ in stored_blobs(store.local.contents.folder)]
    for digest in blobs:
        try:
            store.local.contents.check(digest)
        except MissingBytesError:  # reported in `damaged`
            store.local.contents.delete(digest)
    results = len(store.records.everything())
    store.local.records.delete(frozenset())
    responses = len(store.exchanges.exchange_files())
    store.exchanges.set_damaged_aside()
    damaged = store.repairs()
    return StoreVerification(results=results, stored_files=len(blobs), recorded_answers=responses, damaged=damaged)
