"""Track the state of a project in a build: results so far, bases, and the files that each stage sees.

Rules 2, 3, 5 and 7 of the staleness rules live here, with the bases and the end of ownership of ADR 19. Nothing here
writes.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.ownership import GitFiles, LockIndex, NoGitFiles, OtherPipelines, Ownership, is_proven
from orch23.engine.plan_index import PlanIndex
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.paths import is_glob, match, match_any, normalize_pattern
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record
from orch23.plan.nodes import WriterIndex
from orch23.store.project_store import ProjectStore


class ProjectState(Struct, dict=True):
    """What is settled so far, over what is on disk.

    `results` holds the record of every settled stage and, in a dry-run, the predicted record of those that are not;
    `unsettled` names the latter. `rebuilt` are bytes made again from recorded answers, by sha256. `expected` is what
    will be on the disk: in a dry-run by restored stages, in a build by those that are held. `moved_bases` are the bases
    that have moved: by stage, the bytes that it starts from or sees at a path, in place of the original or of the
    version of an earlier item. `ran` are the stages that ran in this build. `edited` are paths that a user edited and
    that nothing writes in this build. `reads` is what was looked at to decide a stage or to expand a foreach: files by
    path, folders that were listed by their whole path (`tracked`). With `trusts_lock`, results that only the lock file
    has count as proven.
    """

    plan: Plan
    store: ProjectStore
    lock: LockFile
    results: dict[str, Record] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    rebuilt: dict[str, bytes] = field(default_factory=dict)
    expected: dict[str, FileEntry | None] = field(default_factory=dict)
    moved_bases: dict[str, Mapping[str, FileEntry]] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    reads: dict[str, set[str]] = field(default_factory=dict)
    git: GitFiles = field(default_factory=NoGitFiles)
    other_pipelines: OtherPipelines | None = None
    trusts_lock: bool = False
    _owners: dict[str, list[str]] = field(default_factory=dict)
    _originals: dict[str, FileEntry | None] = field(default_factory=dict)
    _declared: PlanIndex | None = None
    _noted: set[str] | None = None

    def __post_init__(self) -> None:
        """Take the originals that the lock fixes."""
        self._originals.update(self.lock.originals())

    def tracked(self, name: str) -> "ProjectState":
        """Return this state for a decision on a node: what is looked at through it is noted in the node's `reads`.

        It shares all state with this one until this one is extended. What is looked at through this one, as other
        threads do, is not noted.
        """
        _ = self.locked, self.former, self.ownership, self.declared  # shared, so made once
        one = copy(self)
        vars(one).update(vars(self))
        one._noted = self.reads.setdefault(name, set())  # noqa: SLF001 - of the same class
        one.store = self.store.tracked(one._noted)  # noqa: SLF001 - as above
        return one

    def note(self, path: str) -> None:
        """Note that the decision rests on what is at a path, also where that was looked at before."""
        if self._noted is not None:
            self._noted.add(path)

    @property
    def declared(self) -> PlanIndex:
        """Give what the stages of the plan declare."""
        if self._declared is None:
            self._declared = PlanIndex(self.plan)
        return self._declared

    @cached_property
    def locked(self) -> LockIndex:
        """Return the records of the lock, indexed by path."""
        return LockIndex(self.lock)

    @cached_property
    def former(self) -> Mapping[str, Record]:
        """Return the records of the lock that own files, by stage."""
        return self.lock.owner_records()

    @cached_property
    def ownership(self) -> Ownership:
        """Return whose the bytes at a path are."""
        return Ownership(self.store, self.plan.pipeline, self.locked, self.git)

    # ---- results --------------------------------------------------------------------------

    def settle(self, name: str, record: Record) -> None:
        """Take a stage's record as today's result."""
        self.unsettle(name)
        self.results[name] = record
        for path in (*record.outputs, *record.deleted):
            self._owners.setdefault(path, []).append(name)

    def unsettle(self, name: str) -> None:
        """Take a stage's result back."""
        record = self.results.pop(name, None)
        for path in (*record.outputs, *record.deleted) if record else ():
            self._owners[path].remove(name)

    def extend(self, plan: Plan) -> None:
        """Go on with a plan that has more stages."""
        self.plan = plan
        self._declared = None

    def stage(self, name: str) -> Stage:
        """Return a stage or an item of the plan by its name."""
        node = self.plan.nodes[name]
        if isinstance(node, ForeachStage):
            message = f"BUG: {name} is not expanded"
            raise TypeError(message)
        return node

    def predicted(self, name: str) -> Record | None:
        """Return the result of a stage as far as it is known: today's, else its last."""
        return self.results.get(name) or self.lock.records.get(name)

    # ---- paths ----------------------------------------------------------------------------

    def on_disk(self, path: str) -> FileEntry | None:
        """Return what is at a path or will be there once what is promised is kept."""
        return self.expected[path] if path in self.expected else self.store.workspace.entry(path)

    def known_bytes(self, path: str, entry: FileEntry) -> bool:
        """Say whether some record, of any key, has these bytes at this path."""
        return self.ownership.is_known(path, entry)

    def original(self, path: str) -> FileEntry | None:
        """Return version 0 of a path: what a person had there before any stage of a chain wrote it.

        The lock fixes it. Without the lock it is the file on disk, unless a record has these bytes: then it is what
        that record says it found, and nothing if it is of no chain.
        """
        self.note(path)
        if path not in self._originals:
            entry = self.store.workspace.entry(path)
            if entry is not None and self.known_bytes(path, entry):
                makers = [r for r in self.store.records.having(path, entry) if path in r.originals]
                entry = makers[0].originals[path] if makers else None
            self._originals[path] = entry
        return self._originals[path]

    def originals(self) -> Mapping[str, FileEntry | None]:
        """Return every version 0 that is known so far."""
        return self._originals

    def has_owner(self, path: str) -> bool:
        """Return whether some record, of any time, has an output at a path."""
        return self._is_locked(path) or bool(self.store.records.owners(path))

    def has_declared_owner(self, path: str) -> bool:
        """Return whether the lock gives a path to a stage that is declared today."""
        return any(self.is_declared(record.stage) for record in self.locked.owning(path))

    def ownership_errors(self, name: str, paths: Collection[str], *, only_new: bool = False) -> tuple[Diagnostic, ...]:
        """Return an error for each path that another pipeline owns, of those that hold no bytes of this one.

        With `only_new`, only paths are looked at that the lock gives to no stage.
        """
        if self.other_pipelines is None:
            return ()
        own = self._is_locked if only_new else self._holds_own
        strange = [path for path in sorted(paths) if not own(path)]
        return self.other_pipelines.ownership_errors(name, strange) if strange else ()

    def _is_locked(self, path: str) -> bool:
        return any(True for _ in self.locked.owning(path))

    def _holds_own(self, path: str) -> bool:
        """Return whether the lock owns a path, and what is there is its own or nothing."""
        owning = list(self.locked.owning(path))
        entry = self.store.workspace.entry(path) if owning else None
        return bool(owning) and (entry is None or any(r.outputs[path] == entry for r in owning))

    def is_made(self, path: str) -> bool:
        """Return whether what is at a path was made by this pipeline and is still its own.

        Where the lock does not say so, a record of the store may: the lock can be lost. A path that the lock gives to a
        stage that has ended is the user's, unless it is about to be removed.
        """
        if self._owners.get(path) or self.declared.written.is_output(path):
            return True
        owning = list(self.locked.owning(path))
        if any(self.is_declared(r.stage) for r in owning):
            return True
        entry = self.store.workspace.entry(path)
        if owning and any(r.outputs[path] == entry for r in owning):
            return self.declared.written.contains(path) or self.is_obsolete(path)
        if entry is None or not self.store.records.having(path, entry):
            return False
        return self.declared.written.contains(path)

    # ---- the end of ownership -------------------------------------------------------------

    def is_obsolete(self, path: str) -> bool:
        """Return whether a file is about to go: a stage made it that has ended, or has a newer result without it.

        What is released instead, stays, and is a source from now on.
        """
        if self._owners.get(path):
            return False
        entry = self.store.workspace.entry(path)
        if entry is None:
            return False
        having = [
            record
            for record in self.locked.having(path, entry)
            if self._is_superseded(record) and self.may_remove_by(record)
        ]
        if not having or self.ownership.is_accepted(path, entry):
            return False
        if any(record.stage in self.results for record in having):
            return True
        return not self._is_released(path)

    def _is_released(self, path: str) -> bool:
        """Return whether a file with bytes of its own stays although its stage has ended."""
        if self._originals.get(path) is not None or path in self._literal_sources(path):
            return True
        if any(path in record.bases for record in self.locked.owning(path)):  # a run started from a user's bytes
            return True
        if self.other_pipelines is not None and self.other_pipelines.owner(path) is not None:
            return True
        self.ownership.prefetch(self._of_ended_stages())
        return self.ownership.is_committed(path)

    def _literal_sources(self, path: str) -> Collection[str]:
        """Return the files that today's stages name as inputs, unless the stage that made the path is switched off."""
        if any(self._is_switched_off(record.stage) for record in self.locked.owning(path)):
            return ()
        return self.declared.sources

    def _is_switched_off(self, name: str) -> bool:
        return name in self.plan.skipped or name.partition("@")[0] in self.plan.skipped

    def _of_ended_stages(self) -> tuple[str, ...]:
        """Return the paths that the lock gives to stages that have ended, as long as these have no owner today."""
        return tuple(
            path
            for path in sorted(self.locked.paths())
            if not self._owners.get(path) and not any(self.is_declared(r.stage) for r in self.locked.owning(path))
        )

    def has_lasting_file(self, path: str) -> bool:
        """Return whether there is a file at a path that does not go away since no stage makes it any more."""
        entry = self.store.workspace.input_entry(path)
        if entry is None or entry.link:
            return entry is not None
        return not self.is_obsolete(path) or self._replacement_of(path) is not None

    def may_remove_by(self, record: Record) -> bool:
        """Return whether files may be removed by a record of the lock file: not if that alone says who made them."""
        return self.is_declared(record.stage) or is_proven(record, self.store.records)

    def is_claim(self, record: Record) -> bool:
        """Return whether only the lock file says that this result passed: it is verified before it counts."""
        return not self.trusts_lock and not is_proven(record, self.store.records)

    def _is_superseded(self, record: Record) -> bool:
        """Return whether a record of the lock stands for nothing today: its stage has ended, or has another result."""
        return record.stage in self.results or not self.is_declared(record.stage)

    def made_by_chain(self, stage: Stage, path: str) -> bool:
        """Return whether the bytes at a path in the stage's write scope are a version of its chain, not a user's."""
        entry = self.store.workspace.entry(path)
        return stage.chain is not None and entry is not None and self.known_bytes(path, entry)

    def obsolete_files(self) -> dict[str, FileEntry | None]:
        """Return every file that is about to go, with what takes its place: the base of a newer result, or None."""
        if self.plan.unexpanded:
            return {}
        return {path: self._replacement_of(path) for path in sorted(self.locked.paths()) if self.is_obsolete(path)}

    def _replacement_of(self, path: str) -> FileEntry | None:
        entry = self.store.workspace.entry(path)
        owners = (r.stage for r in self.locked.having(path, entry) if r.stage in self.results)
        return next((found for name in owners if (found := self._remaining(name, path)) is not None), None)

    def released_files(self) -> dict[str, str]:
        """Return every file of a stage that has ended and that stays, with the name of the stage."""
        if self.plan.unexpanded:
            return {}
        found: dict[str, str] = {}
        for path in self._of_ended_stages():
            owning = list(self.locked.owning(path))
            if self.declared.written.is_named(path):  # another stage takes it over
                continue
            if owning and self.store.workspace.entry(path) is not None and not self.is_obsolete(path):
                found[path] = owning[0].stage
        return found

    def is_declared(self, name: str) -> bool:
        """Say whether a stage is in the plan, or may yet come out of a foreach that is not expanded."""
        family = name.partition("@")[0]
        return name in self.plan.nodes or isinstance(self.plan.nodes.get(family), ForeachStage)

    # ---- what one stage sees --------------------------------------------------------------

    def file_seen_by(self, name: str, path: str) -> FileEntry | None:
        """Return what a stage sees at a path, or None."""
        stage = self.plan.nodes[name]
        chain = stage.chain if isinstance(stage, Stage) else None
        owners = self._owners.get(path, [])
        if chain is not None and (
            self.declared.in_chain(chain.chain, path) or any(self._chain_of(o) == chain.chain for o in owners)
        ):
            return self.start_version(name, path)
        if chain is None and isinstance(stage, Stage) and self._is_own(stage, path):
            return None
        above = self.plan.upstream_of_chains.get(name, frozenset())
        visible = [owner for owner in owners if (self._chain_of(owner) or owner) not in above]
        if visible:
            return self.results[max(visible, key=self._rank)].outputs.get(path)
        if any(self.declared.in_chain(chain_above, path) for chain_above in above):
            return self.start_version(name, path)
        if self.is_obsolete(path):
            return self._replacement_of(path)
        return self.store.workspace.entry(path)

    def input_of(self, name: str, path: str) -> FileEntry | None:
        """Return what a stage sees at a path that it reads: links that a user made are followed below the root.

        Raises:
            SafetyError: a link leads out of the project or in a circle, or to a file of a stage that may run later.

        """
        try:
            entry = self.file_seen_by(name, path)
        except SafetyError:  # a folder of the path is a link
            entry = None
        if entry is not None:
            return entry
        real = self.store.workspace.resolved_path(path)
        if real is None or real == path:
            return None
        self._refuse_later_output(name, path, real)
        entry = self.file_seen_by(name, real)
        return None if entry is None else replace(entry, link=real)

    def _refuse_later_output(self, name: str, path: str, real: str) -> None:
        """Refuse a link to an output of a stage that a stage does not wait for: the declared path does not show it."""
        if not self.declared.outputs.contains(real):
            return
        before = {name, *self.plan.upstream[name], *self.plan.earlier_items(name)}
        makers = [one for one in WriterIndex(self.plan.all_nodes).writers_of(real) if one not in before]
        if makers:
            message = f"input {path!r} of stage `{name}` is a link to {real!r}, which stage `{makers[0]}` makes"
            raise SafetyError(Diagnostic("E691", message, hint=f"name {real!r} in `inputs` instead of the link"))

    def maker(self, name: str, path: str) -> str | None:
        """Return the stage whose file a stage sees at a path, None if no stage made it."""
        above = self.plan.upstream_of_chains.get(name, frozenset())
        owners = [o for o in self._owners.get(path, ()) if (self._chain_of(o) or o) not in above and o != name]
        return max(owners, key=self._rank) if owners else None

    def start_version(self, name: str, path: str) -> FileEntry | None:
        """Return what a stage starts from at a path: its base if that has moved, else what comes to it."""
        moved = self.moved_bases.get(name)
        return moved[path] if moved and path in moved else self.incoming_version(name, path)

    def has_started_from(self, name: str, path: str, entry: FileEntry) -> bool:
        """Return whether a stage, or an earlier item of its chain, starts from these bytes as its base."""
        node = self.plan.nodes.get(name)
        link = node.chain if isinstance(node, Stage) else None
        if link is None:
            return self.moved_bases.get(name, {}).get(path) == entry
        before = self.plan.chains[link.chain][: link.index + 1]
        if any(self.moved_bases.get(one, {}).get(path) == entry for one in before):
            return True
        return self._originals.get(path) == entry  # as it was when the stage was resolved, not as it is now

    def incoming_version(self, name: str, path: str) -> FileEntry | None:
        """Return the newest version of a path by an earlier item of the stage's chain, else the original."""
        stage = self.plan.nodes[name]
        if isinstance(stage, Stage) and stage.chain is not None:
            chain, index = self.plan.chains[stage.chain.chain], stage.chain.index
            owners = self._owners.get(path, ())
            if len(owners) < index:  # of a long chain, few items make a path, or nearly all of them do
                places = sorted(self._rank(o) for o in owners if self._chain_of(o) == stage.chain.chain)
                earlier = [chain[place] for place in places if place < index]
            else:
                earlier = list(chain[:index])
            for name_before in reversed(earlier):
                record = self.results.get(name_before)
                if record is not None and (path in record.outputs or path in record.deleted):
                    return record.outputs.get(path)
        return self.original(path)

    def sees_chain(self, name: str, path: str) -> bool:
        """Return whether a stage starts from a path, or sees it as it was before a later stage edits it in place."""
        stage = self.plan.nodes[name]
        link = stage.chain if isinstance(stage, Stage) else None
        chains = (*((link.chain,) if link else ()), *self.plan.upstream_of_chains.get(name, ()))
        return any(self.declared.in_chain(chain, path) for chain in chains)

    def matching(self, name: str, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a glob means for a stage, whether on disk yet or not."""
        listing = self.store.workspace.listing(pattern, self.declared.outputs, exclude)
        return tuple(path for path in self._candidates(name, pattern, listing) if self.input_of(name, path) is not None)

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing: without what this pipeline made, with what was there before."""
        listing = self.store.workspace.listing(pattern, self.declared.outputs, exclude)
        on_disk = {path for path in listing if not self.is_made(path)}
        before = {path for path, entry in self._originals.items() if entry is not None and match(pattern, path)}
        for path in (p for p in listing if p not in on_disk):
            if self._of_a_chain(path) and self.original(path) is not None:
                before.add(path)
        return tuple(sorted(on_disk | before))

    def versions(self, name: str) -> dict[str, FileEntry]:
        """Return the base of a stage in a chain: path -> the version its outputs start from."""
        stage = self.plan.nodes[name]
        found: dict[str, FileEntry] = {}
        for pattern in stage.outputs if isinstance(stage, Stage) else ():
            for path in self._candidates(name, pattern, self.store.workspace.writable_files(pattern)):
                entry = self.file_seen_by(name, path)
                if entry is not None:
                    found[path] = entry
        return found

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry; what an unsettled stage last made and nobody has any more reads as empty.

        Raises:
            MissingBytesError: nobody has the bytes.

        """
        if entry.digest.sha256 in self.rebuilt:
            return self.rebuilt[entry.digest.sha256]
        try:
            return self.store.sources.read(path, entry)
        except MissingBytesError:
            kept = self._kept_original(entry)
            if kept is None:
                kept = self.ownership.bytes_from_git(path, entry)
            if kept is not None:
                return kept
            if self.unsettled.intersection(self._owners.get(path, ())):
                return b""
            raise

    def _kept_original(self, entry: FileEntry) -> bytes | None:
        """Return the bytes that a run started from, from beside the transcripts, where they outlive the store."""
        started = (base.start for record in self.former.values() for base in record.bases.values())
        if entry not in self._originals.values() and entry not in started:
            return None
        folders = self.plan.pipeline.transcript_folders
        found = (self.store.exchanges.get_original(entry.digest, folder) for folder in (*folders, None))
        return next((data for data in found if data is not None), None)

    def has_bytes(self, path: str, entry: FileEntry) -> bool:
        """Say whether the bytes of an entry can be had without making them again."""
        return (
            entry.digest.sha256 in self.rebuilt
            or self.store.contents.has(entry.digest)
            or self.store.workspace.entry(entry.link or path) == replace(entry, link="")
            or self.ownership.bytes_from_git(path, entry) is not None
        )

    # ---- what a result wants of the workspace ---------------------------------------------

    def target(self, name: str, record: Record) -> dict[str, FileEntry | None]:
        """Return what a result wants of the workspace, path -> entry or None.

        An item of a chain wants only the paths of which no later item makes a version. A path that the stage's last
        result owned, and this one lacks, goes back to its newest remaining version.
        """
        wanted: dict[str, FileEntry | None] = {}
        for path in (*record.outputs, *record.deleted):
            if not self.has_later_version(name, path):
                wanted[path] = record.outputs.get(path)
        former = self.former.get(name)
        for path in (*former.outputs, *former.deleted) if former else ():
            if path in record.outputs or path in record.deleted or self.has_later_version(name, path):
                continue
            there = self.store.workspace.entry(path)
            if there is not None and self.ownership.is_accepted(path, there):
                continue
            if any(owner != name and not self._one_chain(owner, name) for owner in self._owners.get(path, ())):
                continue
            wanted[path] = self._remaining(name, path)
        if self._is_last(name):
            finals = self._finals(name).items()
            wanted |= {p: e for p, e in finals if p not in wanted and p not in self.edited}
        return wanted

    def _remaining(self, name: str, path: str) -> FileEntry | None:
        node = self.plan.nodes[name]
        before = self.start_version(name, path) if isinstance(node, Stage) and node.chain is not None else None
        return before if before is not None else self._originals.get(path)

    def _finals(self, name: str) -> dict[str, FileEntry | None]:
        """Return the last version of every path that earlier items of a chain made."""
        chain = self._chain_of(name)
        finals: dict[str, FileEntry | None] = {}
        for item in self.plan.chains.get(chain or "", ()):
            record = self.results.get(item)
            if item != name and record is not None:
                finals |= {path: record.outputs.get(path) for path in (*record.outputs, *record.deleted)}
        return finals

    def has_later_version(self, name: str, path: str) -> bool:
        """Return whether a later item of the stage's chain makes a version of a path: the disk holds that one."""
        stage = self.plan.nodes[name]
        if isinstance(stage, ForeachStage) or stage.chain is None:
            return False
        chain, index = stage.chain.chain, stage.chain.index
        if self.declared.last_maker(chain, path) > index:
            return True
        former = (r.stage for r in (*self.locked.owning(path), *self.locked.deleting(path)))
        makers = (*self._owners.get(path, ()), *(o for o in former if o in self.lock.records and o not in self.results))
        return any(self._chain_of(one) == chain and self._rank(one) > index for one in makers)

    def _is_last(self, name: str) -> bool:
        chain = self._chain_of(name)
        return chain is not None and self.plan.chains[chain][-1] == name

    # ---- small questions ------------------------------------------------------------------

    def _candidates(self, name: str, pattern: str, on_disk: Iterable[str]) -> Iterable[str]:
        found = set(on_disk)
        if not is_glob(pattern):
            path = normalize_pattern(pattern)
            is_known = (
                path in self.moved_bases.get(name, ()) or path in self._owners or self._originals.get(path) is not None
            )
            return [path] if is_known or path in found else []
        found.update(path for path in self.moved_bases.get(name, ()) if match(pattern, path))
        found.update(path for path in self._owners if match(pattern, path))
        found.update(path for path, entry in self._originals.items() if entry is not None and match(pattern, path))
        return sorted(found)

    def _is_own(self, stage: Stage, path: str) -> bool:
        if match_any(stage.outputs, path):
            return True
        record = self.former.get(stage.name)
        return record is not None and path in record.outputs

    def _chain_of(self, name: str) -> str | None:
        stage = self.plan.nodes.get(name)
        return stage.chain.chain if isinstance(stage, Stage) and stage.chain else None

    def _of_a_chain(self, path: str) -> bool:
        """Say whether some chain may write a path: only then it has a version 0."""
        unexpanded = (node.name for node in self.plan.unexpanded if node.foreach.sequential)
        return any(self.declared.in_chain(chain, path) for chain in (*self.plan.chains, *unexpanded))

    def _one_chain(self, one: str, other: str) -> bool:
        chain = self._chain_of(one)
        return chain is not None and chain == self._chain_of(other)

    def _rank(self, name: str) -> int:
        stage = self.plan.nodes.get(name)
        return stage.chain.index if isinstance(stage, Stage) and stage.chain else 0


class StageView(Struct, frozen=True):
    """One stage's view of a state: fills the `Tree` port of resolving."""

    state: ProjectState
    name: str

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path for this stage, or None."""
        self.state.note(path)
        return self.state.input_of(self.name, path)

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a glob means for this stage."""
        return self.state.matching(self.name, pattern, exclude)

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing."""
        return self.state.listed(pattern, exclude)

    def versions(self) -> dict[str, FileEntry]:
        """Return the base of this stage."""
        return self.state.versions(self.name)

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry.

        Raises:
            MissingBytesError: nobody has them.

        """
        return self.state.read(path, entry)
