"""Determine who owns a file of the project: a stage, another pipeline, the user, or git.

A clone can bring any lock file: a record is proven if a build of this user has stored it (ADR 60).
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes, digest_json, git_blob_id, is_script
from orch23.model.errors import CorruptStateError, InvalidInputError, Orch23Error, SafetyError
from orch23.model.file_policy import allows_write
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record, identity_of
from orch23.plan.nodes import Node, grouped, writes_of
from orch23.store.lock_file import decode_lock, find_lock_files, lock_path, pipelines_of, read_lock, read_lock_records
from orch23.store.project_store import ProjectStore

if TYPE_CHECKING:
    from orch23.model.ports import ResultIndex


class LockIndex:
    """The records of one lock file in the order of their names, with indexes that are built on first use."""

    def __init__(self, lock: LockFile) -> None:
        """Index the paths."""
        self.records: list[Record] = []
        self.released: list[Record] = []
        owning = (record for _, record in sorted(lock.owner_records().items()))
        self.add([*owning, *lock.others, *lock.released.values()])

    def add(self, records: Collection[Record]) -> None:
        """Add further records, as claims beside those of the lock file."""
        self.released += (record for record in records if record.is_released)
        self.records += (record for record in records if not record.is_released)
        self._owning = grouped((path, record) for record in self.records for path in record.outputs)
        self._deleting = grouped((path, record) for record in self.records for path in record.deleted)
        for index in ("_by_key", "_by_identity"):
            vars(self).pop(index, None)

    def owning(self, path: str) -> Sequence[Record]:
        """Return the records that have an output at a path."""
        return self._owning.get(path, ())

    def owned(self, paths: Iterable[str]) -> Iterator[str]:
        """Return those of many paths at which records have outputs."""
        return filter(self._owning.get, paths)

    def having(self, path: str, entry: FileEntry | None) -> Iterable[Record]:
        """Return the records whose output at a path is exactly this file."""
        return (record for record in self._owning.get(path, ()) if record.outputs[path] == entry)

    def deleting(self, path: str) -> Iterable[Record]:
        """Return the records that deleted the file at a path."""
        return self._deleting.get(path, ())

    def of_key(self, key: str) -> Iterable[Record]:
        """Return the records of a stage key."""
        return self._by_key.get(key, ())

    def of_identity(self, identity: str) -> Iterable[Record]:
        """Return the records of a stage under any name."""
        return self._by_identity.get(identity, ())

    def paths(self) -> set[str]:
        """Return every path that a record writes or deletes."""
        return {*self._owning, *self._deleting}

    @cached_property
    def _by_key(self) -> dict[str, list[Record]]:
        return grouped((record.key, record) for record in self.records)

    @cached_property
    def _by_identity(self) -> dict[str, list[Record]]:
        return grouped((identity_of(record.manifest), record) for record in self.records)


def is_proven(record: Record, records: "ResultIndex") -> bool:
    """Return whether the user's builds have stored this record, under any name of the stage.

    The lock file can come with a clone, and others can write into a store (ADR 60). If `reset` dropped a result,
    the store has the part of it that was on disk then.
    """
    # The digest of a key does not cover the outputs: a forged record has the right key with other files.
    if not record.failed:
        return any(_content(record) == _content(one) for one in records.proven(record.key) if not one.failed)
    return any(one.outputs.items() <= record.outputs.items() for one in records.proven(record.key))


def without_impossible_records(lock: LockFile, plan: Plan, records: "ResultIndex") -> LockFile:
    """Return a lock file without records of today's stages that have files which these stages may not write."""

    def stays(name: str, record: Record) -> bool:
        node = plan.nodes.get(name) or plan.nodes.get(family_of(name))
        return node is None or may_write_outputs_of(node, record) or is_proven(record, records)

    return lock.where(stays)


def with_lost_records(lock: LockFile, plan: Plan, store: ProjectStore, git: "GitFiles") -> LockFile:
    """Return a lock file that was deleted or replaced, with what the store has of this pipeline besides (ADR 19).

    These are the newest result of each stage without a record, and results whose files are on disk and have no owner.
    """
    found = {**lock.retained, **lock.records}
    known = {pair for record in found.values() for pair in record.outputs.items()}
    paths, originals, released = {path for path, _ in known}, lock.originals(), set[str]()

    def on_disk(path: str) -> FileEntry | None:
        with contextlib.suppress(SafetyError):  # a link replaced one of its folders
            return store.workspace.entry(path)
        return None

    every: list[Record] = []
    # A lock file of `reset` has all retained records: a stage that it lacks has ended, and its files are sources.
    everything = [one for one in store.records.everything() if not (one.failed and lock.retained)]
    for record in reversed(everything):  # the newest first
        if record.is_released:
            released |= record.outputs.keys()
        elif not (record.is_kept_failure or released & record.outputs.keys()) and is_of_plan(record, plan, store.root):
            every.append(record)
    # A result that is on disk as a whole was the last one, whatever is newer.
    for record in sorted(every, key=lambda one: any(on_disk(p) != e for p, e in one.outputs.items())):
        # A path has one original: another one belonged to a stage with this name which ended before. The result of a
        # stage that is done is the original of those after it.
        done = record.outputs if record.task else record.originals
        if any(originals.get(path, entry) not in (entry, done.get(path)) for path, entry in record.originals.items()):
            continue
        there, is_new = {(p, e) for p, e in record.outputs.items() if on_disk(p) == e}, record.stage not in found
        has_files = plan.is_declared(record.stage) or any(p not in paths and on_disk(p) for p in record.outputs)
        # A file that is committed is in a clone, too: there it is a source.
        is_left = bool(there - known) and (is_new or not git.committed([path for path, _ in there - known]))
        if is_left or (is_new and has_files):
            # No stage has such a name: it is dropped with the ended stages.
            found[record.stage if is_new else f"{record.stage}@~{record.key}"] = record
            known |= there
            paths |= record.outputs.keys()
            originals = {**record.originals, **originals}
    parts = {failed: {n: r for n, r in found.items() if r.failed is failed} for failed in (False, True)}
    return replace(lock, records=parts[False], retained=parts[True])


def is_of_plan(record: Record, plan: Plan, root: Path) -> bool:
    """Return whether a record of the store is of this pipeline, also if an earlier version or a former file made it."""
    if record.pipeline == plan.pipeline.file:
        return True
    node = plan.nodes.get(record.stage) or plan.nodes.get(family_of(record.stage))
    return _is_ownerless(record, root) and node is not None and may_write_outputs_of(node, record)


def kept_failures(store: ProjectStore, pipeline: str) -> Iterator[Record]:
    """Yield the records of a pipeline's failed runs that kept files, and those that `reset` retained, newest first."""
    for record in reversed(store.records.everything()):
        if record.failed and (record.pipeline == pipeline or _is_ownerless(record, store.root)):
            yield record


def _is_ownerless(record: Record, root: Path) -> bool:
    return not record.pipeline or not (root / record.pipeline).is_file()


def may_write_outputs_of(node: Stage | ForeachStage, record: Record) -> bool:
    """Return whether a stage may write every path of a record: in its write scope, without protected names."""
    patterns = writes_of(node)
    return all(
        allows_write(patterns, path) for path in {*record.outputs, *record.deleted, *record.originals, *record.bases}
    )


def _content(record: Record) -> tuple[object, ...]:
    return (
        dict(record.outputs),
        record.deleted,
        record.exchanges,
        dict(record.originals),
        dict(record.bases),
        record.accepted,
        dict(record.made),
    )


class PathOwner(NamedTuple):
    """A stage that the lock file of another pipeline names as the owner of a path."""

    pipeline: str
    stage: str
    record: Record


class OtherPipelines(Struct, frozen=True, dict=True, eq=False):
    """The files that other pipelines of the project own. Their lock files are searched on first use.

    `declares` returns whether a pipeline file declares a stage of that name with an output that covers a path. It loads
    the file, so it is called only for a path that its lock file has. The `records` show what a pipeline owns whose lock
    file is missing.
    """

    root: Path
    own_lock: Path
    declares: Callable[[str, str, str], bool] = lambda _pipeline, _stage, _path: True
    records: "ResultIndex | None" = None

    def owner(self, path: str) -> PathOwner | None:
        """Return the owner of a path in another pipeline that still declares it as an output, or None."""
        claims = self._claims.get(path) or self._recorded(path)
        return next((one for one in claims if self._declares(one.pipeline, one.stage, path)), None)

    def ownership_errors(self, stage: str, paths: Collection[str]) -> tuple[Diagnostic, ...]:
        """Return an error for each path that a stage would write and another pipeline owns."""
        owners = ((path, self.owner(path)) for path in sorted(set(paths)))
        return tuple(_refusal(stage, path, claim) for path, claim in owners if claim is not None)

    def files_of_models(self) -> set[str]:
        """Return the files of other pipelines, if any pipeline calls a model: each of them may come from it."""
        records = [claim.record for claims in self._claims.values() for claim in claims]
        made = self.records.everything() if self.records is not None else ()
        records += [one for one in made if lock_path(self.root, one.pipeline) != self.own_lock]
        has_models = any(one.manifest.get("kind") == "llm" for one in (*records, *made))
        return {path for one in records for path in one.outputs} if has_models else set()

    def _recorded(self, path: str) -> Iterator[PathOwner]:
        """Yield the owner of a path by its newest record, if that is of a pipeline without a lock file."""
        for record in self.records.owners(path)[:1] if self.records is not None else ():
            file, lock = self.root / record.pipeline, lock_path(self.root, record.pipeline)
            if record.pipeline and lock != self.own_lock and not lock.exists() and file.is_file():
                yield PathOwner(record.pipeline, record.stage, record)

    @cached_property
    def _declares(self) -> Callable[[str, str, str], bool]:
        return cache(self.declares)

    @cached_property
    def _claims(self) -> dict[str, list[PathOwner]]:
        locks, _ = find_lock_files(self.root)
        claims = (claim for lock in sorted(locks - {self.own_lock}) for claim in self._claims_of(lock))
        return grouped((path, claim) for claim in claims for path in claim.record.outputs)

    def _claims_of(self, lock: Path) -> Iterator[PathOwner]:
        # The lock file of a pipeline that is gone claims nothing. A damaged one is reported when its pipeline is built.
        for pipeline in pipelines_of(lock)[:1]:
            with contextlib.suppress(CorruptStateError):
                name = pipeline.relative_to(self.root).as_posix()
                yield from (PathOwner(name, stage, record) for stage, record in read_lock(lock).owner_records().items())


def _refusal(stage: str, path: str, claim: PathOwner) -> Diagnostic:
    message = f"`{stage}` would write `{path}`, which is an output of stage `{claim.stage}` in {claim.pipeline}"
    hint = (
        f"run `orch23 release {claim.pipeline} {claim.stage}` and remove that stage, "
        "or make both items of one sequential `foreach` in one pipeline"
    )
    return Diagnostic("E712", message, hint=hint, subject=stage)


class GitFiles(Protocol):
    """The files of the project in git. By default nothing is committed."""

    was_used: bool = False
    """Whether a method below was called since this was set to false."""

    looked_at: Mapping[Path, str] = {}
    """The paths that tell whether `at_head` may return something else, with their signatures from before its call."""

    def at_head(self, _path: str, /) -> bytes | None:
        """Return the bytes of a path in HEAD, empty if it is not in HEAD; None without a repository."""
        return None

    @property
    def left_out(self) -> Mapping[str, str]:
        """The paths whose content git did not check out, sorted, each with the command for it; folders end in `/`."""
        return {}

    def committed(self, _paths: Collection[str], /) -> Mapping[str, str]:
        """Return the blob ids in HEAD of these paths; a path that is not in HEAD is left out."""
        return {}

    def bytes_of(self, _blob_id: str, /) -> bytes | None:
        """Return the bytes of a blob, or None."""
        return None

    def bytes_at(self, _path: str, /) -> Iterable[bytes]:
        """Return the bytes of a path in HEAD, and those in the index."""
        return ()

    def versions(self, _path: str, /) -> Iterable[bytes]:
        """Return the different bytes of a path in the last commits, also of those being merged, the newest first."""
        return ()


class NoGitFiles(GitFiles):
    """A project without git: nothing is committed."""


def check_left_out(git: GitFiles, pipeline: Pipeline, nodes: Iterable[Node]) -> None:
    """Refuse nodes that need content which git did not check out.

    Raises:
        InvalidInputError: with an error for each pattern.
    """
    if left_out := git.left_out:
        from orch23.decide.unmatched_inputs import left_out_errors  # noqa: PLC0415 - few projects lack content

        if errors := left_out_errors(pipeline, nodes, left_out):
            raise InvalidInputError(*errors)


SCRIPT_MAKERS = ("llm", "render")
"""The `kind` of stages whose files with a `#!` line are executable."""


class Ownership(Struct, dict=True):
    """Decides by the records of the store and of one lock file, and by git where these do not decide."""

    store: ProjectStore
    pipeline: Pipeline
    locked: LockIndex
    git: GitFiles
    _committed: dict[str, str | None] = field(default_factory=dict)

    def past_records(self, stages: Collection[str]) -> Iterator[Record]:
        """Yield what the lock file in the last commits records of stages, the newest first: claims (ADR 19)."""
        for data in self._past_locks:
            names = {one.decode() for one in re.findall(rb'"([^"\n]+)": *{', data)}
            lock, there = LockFile(), sorted(names.intersection(stages))
            try:
                lock = read_lock_records(self._lock, there, data) if there else lock
            except CorruptStateError:  # it has another form, so it is read as a whole
                with contextlib.suppress(CorruptStateError):
                    lock = decode_lock(data, "")
            every = (*lock.records.values(), *lock.others, *lock.released.values())
            yield from (one for one in every if one.stage in stages)

    @cached_property
    def _past_locks(self) -> tuple[bytes, ...]:
        return tuple(self.git.versions(self._lock.as_posix()))

    @property
    def _lock(self) -> Path:
        return lock_path(Path(), self.pipeline.file)

    def records_of(self, path: str, entry: FileEntry) -> Iterator[Record]:
        """Yield the records whose output at a path is this file; of a script on disk, also with another mode."""
        yield from self.locked.having(path, entry)
        yield from self.store.records.having(path, entry)
        yield from (record for record in self.locked.released if record.outputs.get(path) == entry)
        # A script has one mode: a checkout may lose it, and earlier versions made none executable.
        twin = replace(entry, executable=not entry.executable)
        others = (*self.locked.having(path, twin), *self.store.records.having(path, twin))
        if others and is_script(self.store.workspace.read(path) or b""):
            yield from (one for one in others if one.manifest.get("kind") in SCRIPT_MAKERS)

    def is_known(self, path: str, entry: FileEntry) -> bool:
        """Return whether some record, of any key, has these bytes at this path."""
        return next(self.records_of(path, entry), None) is not None

    def is_accepted(self, path: str, entry: FileEntry) -> bool:
        """Return whether the user wrote these bytes and accepted them, or took them over with `orch23 release`."""
        return any(path in self._accepted(record) for record in self.records_of(path, entry))

    def is_released(self, path: str, entry: FileEntry) -> bool:
        """Return whether these bytes were released by `orch23 release`."""
        return any(record.is_released for record in self.records_of(path, entry))

    def is_committed(self, path: str) -> bool:
        """Return whether the path is in HEAD, with any bytes."""
        return self._blob(path) is not None

    def equals_head(self, path: str, entry: FileEntry) -> bool:
        """Return whether the file on disk is this one, and HEAD has the same bytes."""
        blob = self._blob(path)
        # Compared by bytes, not by `git status`: that runs configured filters and hooks (ADR 19, rule 9).
        data = self.store.workspace.read(path) if blob is not None else None
        if blob is None or data is None or digest_bytes(data) != entry.digest:
            return False
        return git_blob_id(data, like=blob) == blob

    def prefetch(self, paths: Collection[str]) -> None:
        """Look up many paths in one call of git; later checks of them start no process."""
        missing = [path for path in paths if path not in self._committed]
        if missing:
            found = self.git.committed(missing)
            self._committed.update((path, found.get(path)) for path in missing)

    def bytes_from_git(self, path: str, entry: FileEntry) -> bytes | None:
        """Return bytes that only git may still have: by a recorded blob id, else by the path."""
        blob = self._blob_ids.get(entry.digest.sha256)
        found = [data] if blob is not None and (data := self.git.bytes_of(blob)) is not None else []
        return next((data for data in (*found, *self.git.bytes_at(path)) if digest_bytes(data) == entry.digest), None)

    def _blob(self, path: str) -> str | None:
        self.prefetch((path,))
        return self._committed[path]

    @cached_property
    def _blob_ids(self) -> Mapping[str, str]:
        everything = (*self.locked.records, *self.store.records.everything())
        return {sha256: blob for record in everything for sha256, blob in record.git.items()}

    def _accepted(self, record: Record) -> Collection[str]:
        """Return the outputs of a record that the user wrote. Old records do not list them: the exchange means all."""
        if record.accepted or len(record.exchanges) != 1:
            return record.accepted
        # The record does not say in which folder its transcript is.
        for folder in (*self.pipeline.transcript_folders, None):
            try:
                exchange = self.store.exchanges.get(record.exchanges[0], folder)
            except Orch23Error:  # a damaged transcript is reported where its response is needed
                continue
            if exchange is not None:
                return tuple(record.outputs) if exchange.outcome == "accepted_by_hand" else ()
        return ()


def release_files(store: ProjectStore, lock: LockFile, failures: Iterable[Record], stage: str) -> dict[str, Record]:
    """Record the files on disk of a stage and its items as the user's; return the records by stage or item.

    `failures` are the `kept_failures` of its pipeline. The caller changes the lock file, and holds the build lock.
    """
    known = [record for name, record in lock.owner_records().items() if stage in (name, family_of(name))]
    kept = [record for record in failures if stage in (record.stage, family_of(record.stage))]
    found: dict[str, Record] = {}
    for record in (*kept, *known):
        there = {path: entry for path in record.outputs if (entry := store.workspace.entry(path)) is not None}
        if there or record.deleted:
            there |= found[record.stage].outputs if record.stage in found else {}
            key = digest_json({"released": {path: str(entry) for path, entry in there.items()}})
            given = replace(record, outputs=there, deleted=(), accepted=tuple(there), failed=True, task="")
            found[record.stage] = replace(given, key=key, manifest={"kind": "released"})
    for record in found.values():
        store.records.put(record)
    return found
