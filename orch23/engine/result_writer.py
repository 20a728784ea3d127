"""Make results durable: bytes, records, workspace, lock file; at once or write-behind. For the loop thread."""

import contextlib
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import StageOutcome
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.ownership import is_proven
from orch23.decide.project_state import ObsoleteFiles
from orch23.decide.protected_files import DeclaredByPlan
from orch23.decide.stage_view import StageTree
from orch23.model.digest import FileEntry, git_blob_id
from orch23.model.errors import MissingBytesError
from orch23.model.event import FilesReleased
from orch23.model.pipeline import CheckStep, EnsuresStep, Stage, family_of
from orch23.model.record import LockFile, Manifest, Record
from orch23.plan.nodes import reads_with_exclusions
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm
from orch23.store.promotion import PromotionResult

_Target = Mapping[str, FileEntry | None]

_LARGEST_BLOB = 4 << 20
"""Bytes of the largest file whose git blob id is recorded: it is read as a whole for that."""


class WorkspaceChange(Struct, frozen=True):
    """The files that a promotion changes, and the user's files that it leaves alone.

    `targets` has the wanted files of each result, by stage. `refused` are protected paths that no stage declares, each
    with the reason.
    """

    targets: Mapping[str, _Target]
    new: _Target
    old: _Target
    foreign: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


class ResultWriter(Struct, dict=True):
    """Writes the results of a build, in the order of docs/safety.md.

    Results that were paid for are durable before the workspace changes. `written_lock` is the lock file as last
    written, `written_lock_sha256` the digest of its bytes in hex (empty if not known).
    """

    opened: OpenPipeline
    written_lock: LockFile = field(default_factory=LockFile)
    written_lock_sha256: str = ""
    _locked: dict[str, Record] = field(default_factory=dict)

    @cached_property
    def _declared(self) -> DeclaredByPlan:
        return DeclaredByPlan(self.opened)

    def keep(self, resolved: ResolvedStage, done: StageResult) -> Record:
        """Make a verified result durable and visible to other stages. The workspace does not change."""
        record = self._record(resolved, done, failed=False)
        self._show(resolved, done, record)
        return record

    def keep_for_later(self, resolved: ResolvedStage, done: StageResult) -> Record:
        """Store a verified result that is cheap to rebuild, and show it to other stages. `sync` makes it durable."""
        record = self._record_of(resolved, done, failed=False)
        self.opened.store.records.put(record, durable=False)
        self._show(resolved, done, record)
        self.opened.state.expected |= self.opened.state.target(resolved.stage.name, record)
        return record

    def store_trusted_record(self, resolved: ResolvedStage, record: Record) -> Record:
        """Store a record of the lock file, a shared cache or another stage; return it with today's key and bases."""
        state, records, own = self.opened.state, self.opened.store.records, self.opened.pipeline.file
        if state.is_shared(record):
            # Not durable at once: the cache still has it after a power cut.
            records.put(replace(record, pipeline=own), durable=False)
            self._keep_starts(resolved, record)
        # With ORCH23_TRUST=1 the lock file counts as proof (ADR 21), so its records go into the store.
        elif state.trusts_lock and not is_proven(record, records):
            records.put(replace(record, pipeline=own))
        # A renamed stage has its own record: without the lock file, its former name belongs to an ended stage.
        elif is_proven(record, records) and not any(
            one.stage == record.stage and one.pipeline in ("", own) for one in records.by_key(record.key)
        ):
            records.put(replace(record, pipeline=own), durable=False)
        todays, bases = _with_key_of(resolved, record), state.bases(resolved.stage.name)
        starts = {path: base.start for path, base in record.bases.items()}
        originals = state.originals(resolved, record.originals)
        is_moved = (bases, originals) != (record.bases, record.originals)
        if is_moved and starts == state.moved_bases[resolved.stage.name]:
            # A stage before it has gone, or the lock file has another original: it replaces another version.
            todays = replace(todays, bases=bases, originals=originals)
        if (task := self._task_of(resolved)) != todays.task:
            todays = replace(todays, task=task)  # `once` was added or removed since the stage ran
        if todays is not record:
            records.put(replace(todays, pipeline=own))
        return todays

    def use_recorded(self, resolved: ResolvedStage, record: Record) -> None:
        """Show a recorded result to other stages. The workspace does not change."""
        contents, rebuilt = self.opened.store.contents, self.opened.state.rebuilt
        for entry in record.outputs.values():
            if entry.digest.sha256 in rebuilt and not contents.has(entry.digest):
                contents.put(rebuilt[entry.digest.sha256])
        self.opened.store.records.use(record)
        self.opened.state.settle(resolved.stage.name, record)

    def keep_done(self, name: str) -> Record:
        """Keep the record of a stage that is done in the lock file; return it."""
        self._locked[name] = record = self.opened.state.done[name]
        return record

    def withhold(self, name: str, record: Record) -> None:
        """Store the bytes of a result that waits for its promotion, and expect its files on disk from now on.

        Raises:
            MissingBytesError: no copy of them is left.
        """
        state = self.opened.state
        target = state.target(name, record)
        self.ensure_stored({path: entry for path, entry in target.items() if state.on_disk(path) != entry})
        # Downstream stages are decided on these files although the workspace does not have them yet.
        state.expected |= target

    def change(self, records: Mapping[str, Record]) -> WorkspaceChange:
        """Return the change of the workspace that promotes these results. It never includes the user's files."""
        state = self.opened.state
        deleted = {path for name, record in records.items() if name in state.ran for path in record.deleted}
        return self._compare({name: state.target(name, record) for name, record in records.items()}, deleted)

    def ensure_stored(self, target: _Target) -> None:
        """Make sure that the store has these files, undamaged.

        Raises:
            MissingBytesError: no copy of their bytes is left.
        """
        contents = self.opened.store.contents
        for path, entry in target.items():
            if entry is not None and contents.has(entry.digest):
                contents.check(entry.digest)
            elif entry is not None:
                contents.put(self.opened.state.read(path, entry))

    def promote(self, records: Mapping[str, Record], change: WorkspaceChange) -> PromotionResult:
        """Apply a change in one transaction; the records go into the lock file."""
        self._locked.update(records)
        for path in (path for target in change.targets.values() for path in target):
            self.opened.state.expected.pop(path, None)
        promoted, nodes = self._apply(change), self.opened.state.plan.nodes
        stages = [one for name in records if isinstance(one := nodes.get(name), Stage) and one.tool_caches]
        if stages:
            from orch23.model.features import TOOL_CACHES, load_feature  # noqa: PLC0415 - few stages have tool caches

            load_feature(TOOL_CACHES["keep"])(self.opened.store.tool_caches, stages)
        return promoted

    def is_in_place(self, name: str, record: Record) -> bool:
        """Return whether the lock file and the workspace already have a result."""
        locked = self.opened.lock.records.get(name)
        if locked is None or locked.key != record.key:
            return False
        change = self.change({name: record})
        return not change.new and not change.refused

    def keep_failure(self, resolved: ResolvedStage, done: StageResult) -> PromotionResult:
        """Promote the files of a stage's last failed attempt, with a record that makes no stage fresh."""
        record = self._record(resolved, done, failed=True)
        name = resolved.stage.name
        target = self.opened.state.target(name, record)
        # A program that failed may not have written every file yet: a missing file is not removed.
        if done.partial:
            target = {path: wanted for path, wanted in target.items() if path in (*record.outputs, *record.deleted)}
        return self._apply(self._compare({name: target}))

    def changed_inputs(self, resolved: ResolvedStage, manifest: Manifest) -> tuple[str, ...]:
        """Return the source inputs that changed while the stage ran, and that count in the manifest of its result."""
        view = StageTree(self.opened.state.for_one_moment(), resolved.stage.name)
        known = {**resolved.files, **resolved.verify_files}
        given = {p: one for p, one in known.items() if f"input:{p}" in manifest or f"verify.input:{p}" in manifest}
        now = view.inputs_of([*given], reads_with_exclusions(resolved.stage))
        changed = [path for path, entry in given.items() if now[path] != entry] if now != given else ()
        return tuple(path for path in changed if path not in resolved.base)

    def end_ownership(self, events: RunEvents) -> None:
        """Remove the files that only ended stages own, and report those that belong to the user from now on."""
        if self.opened.state.plan.unexpanded:  # its items may still make any of these files
            return
        obsolete = ObsoleteFiles(self.opened.state)
        replacements, released = obsolete.replacements(), obsolete.released()
        removed = self.remove_obsolete(replacements) if replacements else PromotionResult()
        if removed.removed or removed.written:
            text = "files of removed stages were deleted"
            events.promoted("orch23", text, PromotionResult(removed=(*removed.removed, *removed.written)))
        if removed.edited:
            events.warn(f"files of removed stages were edited and are kept: {', '.join(removed.edited)}")
        if released:
            text = "files of removed stages are kept as source files"
            events.emit(FilesReleased(files=tuple(released), stages=tuple(released.values())), text)

    def remove_obsolete(self, replacements: Mapping[str, FileEntry | None]) -> PromotionResult:
        """Remove obsolete files, or restore their replacements; keep files whose replacement is lost."""
        found = {path: entry for path, entry in replacements.items() if entry is None or self._obtain(path, entry)}
        change = self._compare({"": found})
        promoted = self._apply(change) if change.new or change.foreign else PromotionResult()
        left = (*change.refused, *sorted(replacements.keys() - found.keys()))
        return replace(promoted, edited=(*promoted.edited, *left))

    def refused(self, target: _Target) -> dict[str, str]:
        """Return the paths that differ from the target and that no stage may change, each with the reason."""
        on_disk, reasons = self.opened.store.workspace.entry, ((path, self._declared.refusal(path)) for path in target)
        return {path: reason for path, reason in reasons if reason is not None and on_disk(path) != target[path]}

    def _obtain(self, path: str, entry: FileEntry) -> bool:
        """Store the bytes of a file; return whether that was possible."""
        with contextlib.suppress(MissingBytesError):
            self.opened.store.contents.put(self.opened.state.read(path, entry))
            return True
        return False

    def write_lock(self, green: set[str], *, complete: bool) -> None:
        """Write the lock file: current records of stages that succeeded, earlier ones of stages that were not reached.

        `complete`: everything is green, so records of stages that no longer exist are dropped.
        """
        opened, plan, done = self.opened, self.opened.state.plan, self.opened.state.done
        # A stage with `once` that is done, and is switched off for a time, does not run a second time.
        before = opened.lock.where(
            lambda name, _: not complete or plan.is_declared(name) or (name in done and family_of(name) in plan.skipped)
        )
        records = {**before.records, **{name: record for name, record in self._locked.items() if name in green}}
        records = {n: replace(one, task="") if self._waits(n, one, green) else one for n, one in records.items()}
        # For stages after one that is done, its result is an original until it ends or runs again.
        if done and all(records.get(name) == before.records.get(name) for name in done):
            pairs = ((name, one, before.records.get(name)) for name, one in records.items())
            records = {n: old if old and replace(old, originals=one.originals) == one else one for n, one, old in pairs}
        retained = {name: record for name, record in before.retained.items() if name not in records}
        left = ((name, record) for name, record in opened.lock.released.items() if name not in records)
        released = {n: one for n, one in left if any(os.path.lexists(opened.store.root / p) for p in one.outputs)}
        self.written_lock = LockFile(records, retained, (), released)
        written = opened.prior.write(self.written_lock, opened.pipeline.name)
        self.written_lock_sha256 = written.sha256
        opened.store.lock_files.put(opened.pipeline.file, (written.sha256 or "unknown").encode(), b"1")
        if written.file is not None:
            place = opened.lock_path.relative_to(opened.store.root).as_posix()
            opened.store.workspace.note_written_file(place, written.sha256, written.file)

    def _waits(self, name: str, record: Record, green: set[str]) -> bool:
        """Return whether files of a `once` result are left to a later stage that has not succeeded: it is not done."""
        state = self.opened.state
        link = state.link(name) if record.task and record != state.done.get(name) else None
        later = state.plan.chains[link.chain][link.index + 1 :] if link else ()
        return not green.issuperset(later) and any(state.has_later_version(name, path) for path in record.outputs)

    def _show(self, resolved: ResolvedStage, done: StageResult, record: Record) -> None:
        self.opened.state.settle(resolved.stage.name, record)
        # A later item of the chain keeps its base if this one has a new result, not on disk yet (ADR 19, rule 5).
        if done.attempts or done.made:
            self.opened.state.ran.add(resolved.stage.name)

    def _record(self, resolved: ResolvedStage, done: StageResult, *, failed: bool) -> Record:
        """Store the record of a result, after all its bytes. It is durable when this returns."""
        record = self._record_of(resolved, done, failed=failed)
        # Bytes before their record: after a power cut, a record whose bytes are missing would restore nothing.
        self.opened.store.sync()
        self.opened.store.records.put(record)
        return record

    def _record_of(self, resolved: ResolvedStage, done: StageResult, *, failed: bool) -> Record:
        name, state = resolved.stage.name, self.opened.state
        # A verified claim is stored unchanged, so that the lock file stays the same (ADR 21).
        if done.claim is not None:
            return replace(_with_key_of(resolved, done.claim), stage=name, pipeline=self.opened.pipeline.file)
        written = (*done.outputs, *done.deleted)
        if resolved.stage.discovers:
            from orch23.resolve.discovered import found_manifest, with_manifest  # noqa: PLC0415 - only for such stages

            resolved = with_manifest(resolved, found_manifest(resolved, written, done.explored))
        if resolved.stage.depfile and not done.verified:
            from orch23.resolve.discovered import with_tracked  # noqa: PLC0415 - as above

            resolved = with_tracked(resolved, done.tracked)
        originals, bases = state.originals(resolved, written), state.bases(name)
        accepted = done.accepted
        # The verified result was recorded before: outputs that were accepted then stay accepted.
        if done.verified:
            is_accepted = state.ownership.is_accepted
            accepted = tuple(p for p, entry in done.outputs.items() if p in accepted or is_accepted(p, entry))
        record = Record(
            stage=name,
            key=resolved.key,
            manifest=resolved.manifest,
            outputs=dict(done.outputs),
            deleted=done.deleted,
            exchanges=done.exchanges,
            originals=originals,
            bases=bases,
            accepted=accepted,
            made=dict(done.made),
            tests=dict(done.trace.now),
            forgiven=() if failed else tuple(sorted(done.trace.forgiven)),
            proof=tuple(done.trace.proof),
            texts=resolved.texts,
            failed=failed,
            task="" if failed else self._task_of(resolved),
        )
        self._keep_starts(resolved, record)
        return self.with_blob_ids(record)

    def with_blob_ids(self, record: Record) -> Record:
        """Return a record of this pipeline with the git blob ids of its files."""
        ids = self._blob_ids((*record.outputs.items(), *record.starts))
        return replace(record, git=ids, pipeline=self.opened.pipeline.file)

    def _task_of(self, resolved: ResolvedStage) -> str:
        if not resolved.stage.once:
            return ""
        from orch23.decide.once import task_of  # noqa: PLC0415 - few stages have `once`

        return task_of(resolved, self.opened.decider.sources, self.opened.pipeline.vars)

    def _keep_starts(self, resolved: ResolvedStage, record: Record) -> None:
        """Keep a copy of all bytes that a stage started from."""
        store, step = self.opened.store, resolved.stage.step
        for path, entry in record.starts:
            with contextlib.suppress(MissingBytesError):
                if entry is not None:
                    data = self.opened.state.read(path, entry)
                    store.contents.put(data)
                    # With the transcripts: a clone has these, but no store.
                    store.exchanges.put_original(data, step.transcripts if is_llm(step) else None)

    def _blob_ids(self, files: Iterable[tuple[str, FileEntry | None]]) -> dict[str, str]:
        """Return the git blob ids of files by sha256. Large files are left out."""
        # With its blob id, bytes that store and transcripts have lost can be found in git (ADR 19).
        found: dict[str, str] = {}
        for path, entry in files:
            # A blob id needs the whole file in memory, and git seldom has large files.
            if entry is not None and entry.digest.size_bytes <= _LARGEST_BLOB:
                with contextlib.suppress(MissingBytesError):
                    found[entry.digest.sha256] = git_blob_id(self.opened.state.read(path, entry))
        return found

    def _compare(self, targets: Mapping[str, _Target], deleted: Collection[str] = ()) -> WorkspaceChange:
        """Compare the targets with the workspace. Files that no record knows and that are not version 0 stay.

        A user's file at a path that a stage of this build `deleted` counts as edited; else it may be where a target has
        no file.
        """
        workspace, may_replace = self.opened.store.workspace, self.opened.decider.may_replace
        whole = {path: wanted for target in targets.values() for path, wanted in target.items()}
        # The user may have edited a file since it was read for the decision, so each target is read again.
        workspace.invalidate(whole)
        old = {path: workspace.entry(path) for path in whole}
        refused = self.refused(whole)
        differing = {path: wanted for path, wanted in whole.items() if old[path] != wanted and path not in refused}
        new = {path: wanted for path, wanted in differing.items() if may_replace(path, old[path], targets)}
        foreign = tuple(path for path, wanted in differing.items() if path not in new and (wanted or path in deleted))
        return WorkspaceChange(targets, new, old={path: old[path] for path in new}, foreign=foreign, refused=refused)

    def _apply(self, change: WorkspaceChange) -> PromotionResult:
        """Apply a change to the workspace, and keep the bytes that it replaces."""
        store, state = self.opened.store, self.opened.state
        for path, wanted in change.new.items():
            # The replaced bytes are stored first: after a kill the user can still get them back.
            if (there := change.old[path]) is not None:
                self._rescue(path, there)
            if wanted is not None and not store.contents.has(wanted.digest):
                store.contents.put(state.read(path, wanted))
        # Before the first write, so that no change of this build is taken for an edit by the user.
        store.workspace.announce_writes(change.new)
        promoted = store.promoter.promote(change.new, change.old, self._declared.by_names)
        store.workspace.note_written(change.new)
        return replace(promoted, edited=(*change.foreign, *promoted.edited))

    def _rescue(self, path: str, there: FileEntry) -> None:
        """Keep bytes that are about to be replaced; the user's go beside the transcripts, which no cleanup removes."""
        store = self.opened.store
        if not store.contents.has(there.digest):
            store.add_file(path)
        ownership = self.opened.state.ownership
        if not ownership.is_known(path, there) or ownership.is_accepted(path, there):
            store.exchanges.put_original(store.contents.get(there.digest), None)


# ---- write-behind ---------------------------------------------------------------------------


class PassedStage(Struct, frozen=True, kw_only=True):
    """A stage that passed and is not promoted yet. `how` is reported; a `fresh` one has nothing to promote."""

    resolved: ResolvedStage
    record: Record
    outcome: StageOutcome
    how: Literal["promoted", "restored", "fresh"]


# See ADR 16: a result is written behind if it took at most this long, and one transaction promotes up to _MOST.
_SOON_S = 0.15
_MOST = 256
_PATIENCE_S, _MOST_PATIENCE_S = 0.3, 2.0
_SHARE = 10


def is_cheap_to_rebuild(stage: Stage, done: StageResult) -> bool:
    """Return whether a crash may lose this result: the next build makes it again in no time, without a call."""
    # A process in `verify` may take long, also if the step itself did not.
    # The next stage needs what it put into the caches of tools: they keep that when it is promoted.
    is_checked = all(isinstance(step, CheckStep | EnsuresStep) for step in stage.verify.steps)
    if stage.tool_caches or stage.format or not is_checked:
        return False
    # The responses of a model are durable already, and the result is made from them.
    return stage.step.asks_model or (stage.step.is_cheap and done.attempts == 1 and done.took_s <= _SOON_S)


class WriteBehind(Struct):
    """Results that other stages see and that are not promoted yet. Only the loop thread calls this."""

    clock: Callable[[], float]
    _members: dict[str, PassedStage] = field(default_factory=dict)
    _since: float = 0.0
    _took_s: float = 0.0

    def add(self, success: PassedStage) -> None:
        """Add a result; the first one starts the clock until all are promoted."""
        if not self._members:
            self._since = self.clock()
        self._members[success.resolved.stage.name] = success

    @property
    def is_due(self) -> bool:
        """Whether it is time to promote."""
        return len(self._members) >= _MOST or self.left_s == 0

    @property
    def left_s(self) -> float:
        """How long the results may wait, in seconds; infinite if there are none."""
        if not self._members:
            return math.inf
        patience_s = max(_PATIENCE_S, min(_MOST_PATIENCE_S, _SHARE * self._took_s))
        return max(0.0, self._since + patience_s - self.clock())

    def promoted(self, took_s: float) -> None:
        """Record how long a promotion took. The next one waits ten times as long, so a slow disk gets larger groups."""
        self._took_s = took_s

    def drain(self) -> dict[str, PassedStage]:
        """Remove and return all results, in the order in which they came."""
        taken, self._members = self._members, {}
        return taken


def _with_key_of(resolved: ResolvedStage, record: Record) -> Record:
    """Return a record of a stage with the stage's key: an earlier version left the program out of it (ADR 65)."""
    is_earlier = record.key == resolved.earlier_key
    return replace(record, key=resolved.key, manifest=resolved.manifest) if is_earlier else record
