"""Make results durable: bytes, records, workspace, lock file. Only the loop thread calls this."""

import contextlib
from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.attempt import StageResult
from orch23.engine.ownership import is_proven
from orch23.engine.protected_files import DeclaredByPlan
from orch23.engine.session import Session
from orch23.engine.stage_view import StageView
from orch23.model.digest import FileEntry, git_blob_id
from orch23.model.errors import MissingBytesError
from orch23.model.record import Base, LockFile, Record
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm
from orch23.store.promotion import PromotionResult

_Target = Mapping[str, FileEntry | None]

_LARGEST_BLOB = 4 << 20
"""Bytes of the largest file whose git blob id is recorded: it is read as a whole for that."""


class WorkspaceChange(Struct, frozen=True):
    """What promoting some results changes: which file becomes which, and which are a person's and stay.

    `targets` is what each of the results wants of the workspace, by stage. `refused` are protected paths that no stage
    declares and that stay as they are, each with the reason.
    """

    targets: Mapping[str, _Target]
    new: _Target
    old: _Target
    foreign: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


class Committer(Struct, dict=True):
    """Writes what a build made. The order is safety.md's: what is paid for is durable before the workspace changes.

    `written_lock` is the lock file as it was written last, `written_lock_sha256` the digest of its bytes, in hex (empty
    if not known).
    """

    session: Session
    written_lock: LockFile = field(default_factory=LockFile)
    written_lock_sha256: str = ""
    _locked: dict[str, Record] = field(default_factory=dict)

    @cached_property
    def _declared(self) -> DeclaredByPlan:
        return DeclaredByPlan(self.session)

    def keep(self, resolved: ResolvedStage, done: StageResult) -> Record:
        """Make a verified result durable, and what other stages see. The workspace stays as it is."""
        record = self._record(resolved, done, failed=False)
        self.session.state.settle(resolved.stage.name, record)
        if done.attempts:
            self.session.state.ran.add(resolved.stage.name)
        return record

    def keep_for_later(self, resolved: ResolvedStage, done: StageResult) -> Record:
        """Write a verified result that is soon made again, and let other stages see it. It lasts once promoted."""
        record = self._record_of(resolved, done, failed=False)
        self.session.store.records.add(record)
        self.session.state.settle(resolved.stage.name, record)
        self.session.state.expected |= self.session.state.target(resolved.stage.name, record)
        return record

    def store_locked_record(self, record: Record) -> None:
        """Keep a record that only the lock file has, where that is trusted; every other is in the store already."""
        if self.session.state.trusts_lock and not is_proven(record, self.session.store.records):
            self.session.store.records.put(record)

    def sync(self) -> None:
        """Make durable what was gathered."""
        self.session.store.sync()

    def use_recorded(self, resolved: ResolvedStage, record: Record) -> None:
        """Let other stages see the result of a record. The workspace stays as it is."""
        self._keep_laid(record)
        self.session.store.records.use(record)
        self.session.state.settle(resolved.stage.name, record)

    def withhold(self, name: str, record: Record) -> None:
        """Have the bytes at hand that a result will be promoted with, and count with them from now on.

        Raises:
            MissingBytesError: nobody has them.

        """
        state = self.session.state
        target = state.target(name, record)
        self._at_hand({path: entry for path, entry in target.items() if state.on_disk(path) != entry})
        state.expected |= target

    def change(self, records: Mapping[str, Record]) -> WorkspaceChange:
        """Return what the promotion of these results would change: nothing of a person's."""
        targets = {name: self.session.state.target(name, record) for name, record in records.items()}
        return self._compare(targets)

    def check(self, change: WorkspaceChange) -> None:
        """Do nothing if a change can be made in full.

        Raises:
            MissingBytesError: some of its bytes are lost.

        """
        self._at_hand(change.new)

    def promote(self, records: Mapping[str, Record], change: WorkspaceChange) -> PromotionResult:
        """Make a change, in one transaction; these records are what the lock file will say of their stages."""
        self._locked.update(records)
        for path in (path for target in change.targets.values() for path in target):
            self.session.state.expected.pop(path, None)
        return self._make(change)

    def is_in_place(self, name: str, record: Record) -> bool:
        """Say whether a result is what lock file and workspace hold already."""
        locked = self.session.lock.records.get(name)
        if locked is None or locked.key != record.key:
            return False
        change = self.change({name: record})
        return not change.new and not change.refused

    def keep_failure(self, resolved: ResolvedStage, done: StageResult) -> PromotionResult:
        """Promote the last attempt of a stage that failed, with a record that makes nothing fresh."""
        record = self._record(resolved, done, failed=True)
        name = resolved.stage.name
        target = self.session.state.target(name, record)
        if done.partial:  # what a program had not written yet when it failed is not to be removed
            target = {path: wanted for path, wanted in target.items() if path in (*record.outputs, *record.deleted)}
        return self._make(self._compare({name: target}))

    def changed_inputs(self, resolved: ResolvedStage) -> tuple[str, ...]:
        """Return the source inputs that are no longer what the stage was given."""
        view = StageView(self.session.state, resolved.stage.name)
        given = {**resolved.files, **resolved.verify_files}
        return tuple(
            path for path, entry in given.items() if view.input_of(path) != entry and path not in resolved.base
        )

    def remove_obsolete(self, dead: Mapping[str, FileEntry | None]) -> PromotionResult:
        """Remove dead files, or put the base of a newer result there; leave those of which no one has these bytes."""
        found = {path: entry for path, entry in dead.items() if entry is None or self._obtain(path, entry)}
        change = self._compare({"": found})
        promoted = self._make(change) if change.new or change.foreign else PromotionResult()
        left = (*change.refused, *sorted(dead.keys() - found.keys()))
        return replace(promoted, edited=(*promoted.edited, *left))

    def refused(self, target: _Target) -> dict[str, str]:
        """Return the paths at which the workspace differs and that no stage may change, each with the reason."""
        on_disk = self.session.store.workspace.entry
        return {
            path: reason
            for path, wanted in target.items()
            if (reason := self._declared.refusal(path)) is not None and on_disk(path) != wanted
        }

    def _obtain(self, path: str, entry: FileEntry) -> bool:
        """Bring bytes into the store; say whether they are there."""
        try:
            self.session.store.contents.put(self.session.state.read(path, entry))
        except MissingBytesError:
            return False
        return True

    def write_lock(self, green: set[str], *, complete: bool) -> None:
        """Write the lock file: today's records of what succeeded, and what it said of all that was not reached.

        `complete` says that everything is green: then what no stage stands for any more is dropped.
        """
        state = self.session.state
        kept = {name: r for name, r in self.session.lock.records.items() if state.is_declared(name) or not complete}
        records = {**kept, **{name: r for name, r in self._locked.items() if name in green}}
        retained = {
            name: record
            for name, record in self.session.lock.retained.items()
            if name not in records and (state.is_declared(name) or not complete)
        }
        self.written_lock = LockFile(records, retained)
        store = self.session.store
        written = self.session.prior.write(self.written_lock, self.session.pipeline.name)
        self.written_lock_sha256 = written.sha256
        if written.file is not None:
            store.workspace.note_written_file(
                self.session.lock_path.relative_to(store.root).as_posix(), written.sha256, written.file
            )

    # ---- parts ----------------------------------------------------------------------------

    def _record(self, resolved: ResolvedStage, done: StageResult, *, failed: bool) -> Record:
        """Write the record of a result: durable when this returns, after all its bytes."""
        record = self._record_of(resolved, done, failed=failed)
        self.session.store.sync()
        self.session.store.records.put(record)
        return record

    def _record_of(self, resolved: ResolvedStage, done: StageResult, *, failed: bool) -> Record:
        name, state = resolved.stage.name, self.session.state
        if done.claim is not None:
            return replace(done.claim, stage=name)
        originals, bases = self._originals(resolved, done), self._bases(resolved)
        outputs = done.outputs.items()
        accepted = done.accepted
        if done.verified:  # what it verified was recorded before
            accepted = tuple(p for p, entry in outputs if p in accepted or state.ownership.is_accepted(p, entry))
        return Record(
            stage=name,
            key=resolved.key,
            manifest=resolved.manifest,
            outputs=dict(done.outputs),
            deleted=done.deleted,
            exchanges=done.exchanges,
            originals=originals,
            bases=bases,
            accepted=accepted,
            texts=resolved.texts,
            git=self._blob_ids((*done.outputs.items(), *originals.items(), *((p, b.start) for p, b in bases.items()))),
            failed=failed,
        )

    def _bases(self, resolved: ResolvedStage) -> dict[str, Base]:
        """Return the moved bases that a stage started from, their bytes kept with the transcripts."""
        state, name = self.session.state, resolved.stage.name
        found: dict[str, Base] = {}
        for path, start in sorted(state.moved_bases.get(name, {}).items()):
            found[path] = Base(start, state.incoming_version(name, path))
            self._keep_start(resolved, path, start)
        return found

    def _keep_start(self, resolved: ResolvedStage, path: str, entry: FileEntry) -> None:
        """Keep bytes that a stage started from where they outlive the store; a clone may have none of them."""
        store, step = self.session.store, resolved.stage.step
        try:
            data = self.session.state.read(path, entry)
        except MissingBytesError:
            return
        store.contents.put(data)
        store.exchanges.put_original(data, step.transcripts if is_llm(step) else None)

    def _blob_ids(self, files: Iterable[tuple[str, FileEntry | None]]) -> dict[str, str]:
        """Return the git blob ids of some files by sha256; git can hardly have those that are left out, being large."""
        found: dict[str, str] = {}
        for path, entry in files:
            if entry is not None and entry.digest.size_bytes <= _LARGEST_BLOB:
                with contextlib.suppress(MissingBytesError):
                    found[entry.digest.sha256] = git_blob_id(self.session.state.read(path, entry))
        return found

    def _originals(self, resolved: ResolvedStage, done: StageResult) -> dict[str, FileEntry | None]:
        """Return version 0 of each path that a chain wrote, its bytes kept with the transcripts.

        What was not there when the stage was resolved is none: somebody made it while the model answered.
        """
        if resolved.stage.chain is None:
            return {}
        state = self.session.state
        found: dict[str, FileEntry | None] = {}
        for path in (*done.outputs, *done.deleted):
            entry = state.original(path) if path in resolved.base or path in state.known_originals else None
            found[path] = entry
            if entry is not None:
                self._keep_start(resolved, path, entry)
        return found

    def _keep_laid(self, record: Record) -> None:
        laid = self.session.state.rebuilt
        for entry in record.outputs.values():
            if entry.digest.sha256 in laid and not self.session.store.contents.has(entry.digest):
                self.session.store.contents.put(laid[entry.digest.sha256])

    def _at_hand(self, target: _Target) -> None:
        """Have the bytes of these files in the store, and good."""
        contents = self.session.store.contents
        for path, entry in target.items():
            if entry is not None and contents.has(entry.digest):
                contents.check(entry.digest)
            elif entry is not None:
                contents.put(self.session.state.read(path, entry))

    def _compare(self, targets: Mapping[str, _Target]) -> WorkspaceChange:
        """Hold the targets against the workspace; what no record knows and is no version 0 is not replaced."""
        workspace = self.session.store.workspace
        whole = {path: wanted for target in targets.values() for path, wanted in target.items()}
        workspace.invalidate(whole)
        old = {path: workspace.entry(path) for path in whole}
        refused = self.refused(whole)
        differing = {path: wanted for path, wanted in whole.items() if old[path] != wanted and path not in refused}
        kept = {
            path
            for path in differing
            if (there := old[path]) is not None
            and not any(StageView(self.session.state, name).has_started_from(path, there) for name in targets)
            and not self._may_replace(path, there)
        }
        return WorkspaceChange(
            targets=targets,
            new={path: wanted for path, wanted in differing.items() if path not in kept},
            old={path: old[path] for path in differing if path not in kept},
            foreign=tuple(path for path in differing if path in kept and differing[path] is not None),
            refused=refused,
        )

    def _make(self, change: WorkspaceChange) -> PromotionResult:
        """Bring the workspace to what a change wants of it, and keep what it replaces."""
        store, state = self.session.store, self.session.state
        for path, wanted in change.new.items():
            there = change.old[path]
            if there is not None:
                self._rescue(path, there)
            if wanted is not None and not store.contents.has(wanted.digest):
                store.contents.put(state.read(path, wanted))
        store.workspace.announce_writes(change.new)
        promoted = store.promoter.promote(change.new, change.old, self._declared.refusal)
        store.workspace.note_written(change.new)
        return replace(promoted, edited=(*change.foreign, *promoted.edited))

    def _may_replace(self, path: str, there: FileEntry) -> bool:
        state = self.session.state
        if self.session.decider.overwrite_edited:
            return True
        if state.ownership.is_known(
            path, there
        ):  # an accepted edit is replaced only by a result of the stage that has it
            having = state.locked.having(path, there)
            return any(state.is_declared(r.stage) for r in having) or not state.ownership.is_accepted(path, there)
        return state.known_originals.get(path) == there

    def _rescue(self, path: str, there: FileEntry) -> None:
        """Keep the bytes that are about to be replaced; those of a person where nothing is ever cleared away."""
        store = self.session.store
        if not store.contents.has(there.digest):
            store.add_file(path)
        ownership = self.session.state.ownership
        if not ownership.is_known(path, there) or ownership.is_accepted(path, there):
            store.exchanges.put_original(store.contents.get(there.digest), None)
