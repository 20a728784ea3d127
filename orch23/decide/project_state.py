"""Track the state of a project in a build: results so far, bases of chains, and the bytes of files.

Rules 2, 3, 5 and 7 of the staleness rules are here, with the bases of ADR 19. Nothing here writes.
`decide.stage_view` shows this state as one stage sees it.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.ownership import (
    GitFiles,
    LockIndex,
    NoGitFiles,
    OtherPipelines,
    Ownership,
    is_proven,
    may_write_outputs_of,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.paths import match_any
from orch23.model.pipeline import ChainLink, ForeachStage, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.record import Base, LockFile, Record, starts_from, written_paths
from orch23.plan.nodes import PlanIndex, writes_of
from orch23.store.project_store import ProjectStore

if TYPE_CHECKING:
    from orch23.decide.shared_results import SharedResults
    from orch23.resolve.resolution import ResolvedStage


class ProjectState(Struct, dict=True):
    """The results of a build so far, over the files on disk.

    `results` has the record of every settled stage and, in a dry run, the predicted record of those that are not;
    `unsettled` names the latter. `rebuilt` has bytes that were made again from recorded responses, by sha256.
    `expected` is what will be on disk: in a dry run by restored stages, in a build by withheld ones. `moved_bases` has
    by stage the bytes that it starts from or sees at a path, instead of the original or of an earlier item's version.
    `ran` are the stages that ran in this build. `edited` are paths that the user edited and that nothing writes in this
    build. `reads` is what the decision on a stage or the expansion of a foreach depends on: files by path, listed
    directories by their whole path (see `tracked`). With `trusts_lock`, results that only the lock file has count as
    proven. `owners` names by path the settled stages that write or delete it; `known_originals` is version 0 by path.
    `shared` are the results in a shared cache, if the build uses one. `done` are the committed results of stages with
    `once`, whose files are the user's: in `store` and `lock` they own none.
    """

    plan: Plan
    store: ProjectStore
    lock: LockFile
    results: MutableMapping[str, Record] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    rebuilt: dict[str, bytes] = field(default_factory=dict)
    expected: dict[str, FileEntry | None] = field(default_factory=dict)
    moved_bases: MutableMapping[str, Mapping[str, FileEntry]] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    reads: dict[str, set[str]] = field(default_factory=dict)
    git: GitFiles = field(default_factory=NoGitFiles)
    other_pipelines: OtherPipelines | None = None
    trusts_lock: bool = False
    shared: "SharedResults | None" = None
    done: Mapping[str, Record] = field(default_factory=dict)
    owners: MutableMapping[str, list[str]] = field(default_factory=dict)
    known_originals: MutableMapping[str, FileEntry | None] = field(default_factory=dict)
    _declared: PlanIndex | None = None
    _noted: set[str] | None = None

    def __post_init__(self) -> None:
        """Take the originals that the lock file fixes."""
        self.known_originals.update(self.lock.originals())
        self._follow_edits()

    def _follow_edits(self, seen: Collection[str] = ()) -> None:
        """Where only programs with `edits` wrote a file, an edit by the user is its new original, for all stages.

        So is a file that only ended stages wrote, unless this build removes it. Stages that were `seen` may have been
        decided on it.
        """
        programs = {name for name, record in self.former.items() if record.is_of_editor}
        ended = {n for n in self.former if not self.plan.is_declared(n) and (not seen or family_of(n) in seen)}
        new = (self.former[name] for name in programs | ended if name not in seen)
        # What `reset` retains of a result may lack a file that was edited, and has its original.
        made_at = {path: list[Record]() for record in new for path in (*written_paths(record), *record.originals)}
        for record in self.locked.records if made_at else ():
            for path in made_at.keys() & {*written_paths(record), *record.originals}:
                made_at[path].append(record)
        for path, made in sorted(made_at.items()):
            entry, is_source = self.store.workspace.entry(path), self._is_source(path, made)
            if is_source:
                is_source = not ObsoleteFiles(self).is_obsolete(path)
            elif all(one.stage in programs for one in made) and not any(
                self.locked.having(path, entry) if entry else self.locked.deleting(path)
            ):
                is_known = entry is not None and self.ownership.is_known(path, entry)
                is_source = entry is None or not is_known or self.ownership.is_accepted(path, entry)
            if is_source:
                self.known_originals[path] = entry

    def _is_source(self, path: str, made: Collection[Record]) -> bool:
        """Return whether stages with `edits` find a file that these records have as a source: their stages have ended.

        A new stage may have the result of an ended one under another name.
        """
        nodes = self.plan.nodes.values()
        if not any(match_any(one.edits, path) for one in nodes) or path in self.declared.written.literal:
            return False
        entry, makers = self.store.workspace.entry(path), self.store.records.owners(path)
        by_programs = (one.is_of_editor or one.is_released for one in makers)
        # A program starts from a released file; a model may own it again.
        if entry and self.was_given_up(path, entry, chained=False) and all(by_programs):
            return True
        heirs = [one for one in nodes if one.name not in self.former]
        return not any(
            self.plan.is_declared(record.stage)
            or any(record.manifest.get("kind") in (None, h.kind) and may_write_outputs_of(h, record) for h in heirs)
            for record in made
        )

    def tracked(self, name: str) -> "ProjectState":
        """Return this state for a decision on a node: each path that is read through it is added to `reads[name]`.

        It shares all data with this one until this one is extended. Reads through this one are not noted: worker
        threads use it at the same time.
        """
        one = self._copy()
        one._noted = self.reads.setdefault(name, set())  # noqa: SLF001 - of the same class
        one.store = self.store.tracked(one._noted)  # noqa: SLF001 - as above
        return one

    def for_one_moment(self) -> "ProjectState":
        """Return this state with a view of the workspace that looks at each path once."""
        one = self._copy()
        one.store = self.store.for_one_moment()
        return one

    def _copy(self) -> "ProjectState":
        # Indexes are built before the copy, so that both states share them. Each would build its own otherwise.
        _ = self.locked, self.former, self.ownership, self.declared
        one: ProjectState = ProjectState.__copy__(self)  # type: ignore[attr-defined]  # `copy` loads two modules
        vars(one).update(vars(self))
        return one

    def expecting(self, name: str, expected: Mapping[str, Record]) -> "ProjectState":
        """Return this state as it is for a stage once its upstream stages have these results. Only for reading.

        What is noted in it while the stage is resolved does not change this one.
        """
        before = (*self.plan.upstream[name], *self.plan.earlier_items(name))
        more = {up: expected[up] for up in before if up in expected and up not in self.results}
        owners: dict[str, list[str]] = {}
        for up, record in more.items():
            for path in self._paths_with_versions(up, record):
                owners.setdefault(path, [*self.owners.get(path, ())]).append(up)
        one = self._copy()
        one.results = ChainMap(more, self.results)
        one.owners = ChainMap(owners, self.owners)
        one.moved_bases = ChainMap({}, self.moved_bases)
        one.known_originals = ChainMap({}, self.known_originals)
        return one

    def note(self, *paths: str) -> None:
        """Note that the decision depends on these paths, also if their entries come from memory."""
        if self._noted is not None:
            self._noted.update(paths)

    @property
    def declared(self) -> PlanIndex:
        """Index of what the stages of the plan declare."""
        if self._declared is None:
            self._declared = PlanIndex(self.plan, self.done)
        return self._declared

    @cached_property
    def locked(self) -> LockIndex:
        """Records of the lock file, indexed by path."""
        return LockIndex(self.lock)

    @cached_property
    def former(self) -> Mapping[str, Record]:
        """Records of the lock file that own files, by stage."""
        return self.lock.owner_records()

    @cached_property
    def ownership(self) -> Ownership:
        """Who owns the bytes at a path."""
        return Ownership(self.store, self.plan.pipeline, self.locked, self.git)

    def settle(self, name: str, record: Record) -> None:
        """Set the current result of a stage."""
        self.unsettle(name)
        self.results[name] = record
        for path in self._paths_with_versions(name, record):
            self.owners.setdefault(path, []).append(name)

    def unsettle(self, name: str) -> None:
        """Remove the current result of a stage."""
        for path in self._paths_with_versions(name, self.results.pop(name, None)):
            self.owners[path].remove(name)

    def _paths_with_versions(self, name: str, record: Record | None) -> tuple[str, ...]:
        """Return the paths of which a result has a version: also a file of the user that a program left as it was."""
        written = written_paths(record)
        if record is None or not record.bases:
            return written
        node = self.plan.nodes.get(name)
        takes = node.takes_edits_of if isinstance(node, Stage) else lambda _: False
        return (*written, *(path for path in record.bases if path not in written and takes(path)))

    def version_by(self, name: str, path: str) -> FileEntry | None:
        """Return the version of a path by the result of a stage that owns it."""
        record = self.results[name]
        left = record.bases.get(path) if path not in written_paths(record) else None
        return left.start if left is not None else record.outputs.get(path)

    def extend(self, plan: Plan) -> None:
        """Continue with a plan that has more stages."""
        before, self.plan = self.plan.nodes, plan
        self._declared = None
        self._follow_edits(before)

    def stage(self, name: str) -> Stage:
        """Return a stage or an item of the plan by its name."""
        node = self.plan.nodes[name]
        if isinstance(node, ForeachStage):
            message = f"BUG: {name} is not expanded"
            raise TypeError(message)
        return node

    def link(self, name: str) -> ChainLink | None:
        """Return the place of a stage in its chain; None if it is not in one."""
        stage = self.plan.nodes.get(name)
        return stage.chain if isinstance(stage, Stage) else None

    def chain_of(self, name: str) -> str | None:
        """Return the name of the chain of a stage, or None."""
        link = self.link(name)
        return link.chain if link else None

    def position(self, name: str) -> int:
        """Return the index of a stage in its chain, 0 if it is not in one."""
        link = self.link(name)
        return link.index if link else 0

    def on_disk(self, path: str) -> FileEntry | None:
        """Return what is at a path, or what will be there once withheld results are promoted."""
        return self.expected[path] if path in self.expected else self.store.workspace.entry(path)

    def original(self, path: str) -> FileEntry | None:
        """Return version 0 of a path: the user's file from before any stage of a chain wrote it.

        The lock file fixes it. Without the lock file it is the file on disk, unless a record has these bytes: then it
        is the original of that record, or nothing if the record is not of a chain.
        """
        self.note(path)
        if path not in self.known_originals:
            entry = self.store.workspace.entry(path)
            if entry is not None and self.ownership.is_known(path, entry):
                makers, former = self.store.records.having(path, entry), self.former.values()
                # A result that left the file as it was says what it has instead; the store may know several.
                bases = (one.bases[path] for one in former if path in one.bases)
                found = [base.instead_of for base in bases if base.start == entry]
                found += [entry for one in former if path not in one.bases and starts_from(one, path, entry)]
                if makers and self._is_source(path, makers):
                    found.append(entry)
                found += [record.originals[path] for record in makers if path in record.originals]
                entry = found[0] if found else None
            self.known_originals[path] = entry
        return self.known_originals[path]

    def is_only_result(self, path: str) -> bool:
        """Return whether the file at a path is the result of a stage, and no bytes of the user were or are there."""
        entry = self.store.workspace.entry(path)
        if entry is None or not self.ownership.is_known(path, entry) or self.ownership.is_accepted(path, entry):
            return False
        return self.original(path) is None

    def has_declared_owner(self, path: str) -> bool:
        """Return whether the lock file gives a path to a stage that is declared today."""
        return any(self.plan.is_declared(record.stage) for record in self.locked.owning(path))

    def is_owner(self, record: Record) -> bool:
        """Return whether a record is in the lock file itself, not only a claim, and its stage is declared."""
        return self.former.get(record.stage) is record and self.plan.is_declared(record.stage)

    def was_given_up(self, path: str, entry: FileEntry, *, chained: bool) -> bool:
        """Return whether recorded bytes belong to the user now: released, or committed after their stage ended."""
        having = list(self.locked.having(path, entry))
        if any(map(self.is_owner, having)):
            return False
        if self.ownership.is_released(path, entry):
            return True
        declared = any(self.plan.is_declared(record.stage) for record in having)
        return chained and bool(having) and not declared and self.ownership.equals_head(path, entry)

    def ownership_errors(self, name: str, paths: Collection[str], *, only_new: bool = False) -> tuple[Diagnostic, ...]:
        """Return an error for each path that another pipeline owns and where this one has no file of its own.

        With `only_new`, paths that the lock file gives to a stage are skipped.
        """
        if self.other_pipelines is None:
            return ()
        foreign = [path for path in sorted(paths) if not self._is_own(path, even_edited=only_new)]
        return self.other_pipelines.ownership_errors(name, foreign) if foreign else ()

    def _is_own(self, path: str, *, even_edited: bool) -> bool:
        owning = self.locked.owning(path)
        if not owning or even_edited:
            return bool(owning)
        entry = self.store.workspace.entry(path)
        return entry is None or any(record.outputs[path] == entry for record in owning)

    def may_remove_by(self, record: Record) -> bool:
        """Return whether a record of the lock file is enough to remove its files.

        A lock file comes with a clone and anything can be in it, so it is not enough to remove the files of stages
        that no longer exist.
        """
        return self.plan.is_declared(record.stage) or is_proven(record, self.store.records)

    def is_claim(self, record: Record, stage: Stage) -> bool:
        """Return whether this result of a stage is verified before it counts.

        Only the lock file says that it passed, or a shared cache whose results are verified (ADR 57).
        """
        if self.is_shared(record) and self.shared is not None:
            return self.shared.verifies and bool(stage.verify.steps or stage.ensures)
        return not self.trusts_lock and not is_proven(record, self.store.records)

    def is_shared(self, record: Record) -> bool:
        """Return whether a shared cache has this result, and the local store does not."""
        return self.shared is not None and self.shared.has(record) and not is_proven(record, self.store.records)

    def originals(self, resolved: "ResolvedStage", written: Iterable[str]) -> dict[str, FileEntry | None]:
        """Return version 0 of each path that a chain wrote.

        A file that did not exist when the stage was resolved is not version 0: it appeared while the model wrote.
        """
        if resolved.stage.chain is None:
            return {}
        return {
            path: self.original(path) if path in resolved.base or path in self.known_originals else None
            for path in written
        }

    def bases(self, name: str) -> dict[str, Base]:
        """Return the moved bases that a stage starts from, for its record."""
        starts = sorted(self.moved_bases.get(name, {}).items())
        return {path: Base(start, self.incoming_version(name, path)) for path, start in starts}

    def start_version(self, name: str, path: str) -> FileEntry | None:
        """Return what a stage starts from at a path: its moved base, else the incoming version."""
        moved = self.moved_bases.get(name, {})
        return moved[path] if path in moved else self.incoming_version(name, path)

    def incoming_version(self, name: str, path: str) -> FileEntry | None:
        """Return the newest version of a path by an earlier item of the stage's chain, else the original.

        A program that left a file of the user as it was has that version, too.
        """
        for earlier in self._earlier_writers(name, path):
            if earlier in self.results and path in self._paths_with_versions(earlier, self.results[earlier]):
                return self.version_by(earlier, path)
        return self.original(path)

    def _earlier_writers(self, name: str, path: str) -> Iterable[str]:
        """Return the earlier items of a chain that may have written a path, the last one first."""
        link = self.link(name)
        if link is None:
            return ()
        chain, owners = self.plan.chains[link.chain], self.owners.get(path, ())
        # In a chain of thousands, an item usually has few predecessors that write a path: walk through these alone.
        if len(owners) >= link.index:
            return reversed(chain[: link.index])
        places = sorted((self.position(o) for o in owners if self.chain_of(o) == link.chain), reverse=True)
        return (chain[place] for place in places if place < link.index)

    def has_later_version(self, name: str, path: str) -> bool:
        """Return whether a later item of the stage's chain makes a version of a path: the disk has that one.

        A program with `edits` does, also if it leaves the file as it was.
        """
        link = self.link(name)
        is_edited = link is not None and self.declared.last_program(link.chain, path) > link.index
        return is_edited or self._has_later_result(name, path)

    def _has_later_result(self, name: str, path: str) -> bool:
        link = self.link(name)
        if link is None:
            return False
        if self.declared.last_maker(link.chain, path) > link.index:
            return True
        former = (record.stage for record in (*self.locked.owning(path), *self.locked.deleting(path)))
        makers = (*self.owners.get(path, ()), *(o for o in former if o in self.lock.records and o not in self.results))
        return any(self.chain_of(one) == link.chain and self.position(one) > link.index for one in makers)

    def is_followed(self, name: str, path: str, version: FileEntry | None) -> bool:
        """Return whether a later item of the stage's chain has a result that started from a version of a path."""
        link = self.link(name)
        later = self.plan.chains[link.chain][link.index + 1 :] if link else ()
        return any(starts_from(self.former[one], path, version) for one in later if one in self.former)

    def version_without(self, name: str, path: str) -> FileEntry | None:
        """Return the version of a path that is left once a stage does not write it any more; None if one deleted it."""
        return self.start_version(name, path) if self.link(name) else self.known_originals.get(path)

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry; those of an unsettled stage's last result read as empty if they are lost.

        Raises:
            MissingBytesError: no copy of the bytes is left.
        """
        if entry.digest.sha256 in self.rebuilt:
            return self.rebuilt[entry.digest.sha256]
        try:
            return self.store.sources.read(path, entry)
        except MissingBytesError:
            kept = self._kept_original(entry)
            kept = self.ownership.bytes_from_git(path, entry) if kept is None else kept
            # A plan downloads no results: it reads only the files that a prompt or a list needs.
            kept = self.shared.read(entry.digest) if kept is None and self.shared is not None else kept
            if kept is not None:
                return kept
            # In a dry run, lost bytes do not matter if the stage runs anyway.
            if self.unsettled.intersection(self.owners.get(path, ())):
                return b""
            raise

    def _kept_original(self, entry: FileEntry) -> bytes | None:
        """Return bytes that a run started from: a copy is beside the transcripts, which outlive the store."""
        started = (base.start for record in self.former.values() for base in record.bases.values())
        if entry not in self.known_originals.values() and entry not in started:
            return None
        folders = self.plan.pipeline.transcript_folders
        found = (self.store.exchanges.get_original(entry.digest, folder) for folder in (*folders, None))
        return next((data for data in found if data is not None), None)

    def has_bytes(self, path: str, entry: FileEntry) -> bool:
        """Return whether a copy of the bytes of an entry exists, so that they need not be rebuilt."""
        return (
            entry.digest.sha256 in self.rebuilt
            or self.store.contents.has(entry.digest)
            or self.store.workspace.entry(entry.link or path) == replace(entry, link="")
            or self._kept_original(entry) is not None
            or self.ownership.bytes_from_git(path, entry) is not None
            or (self.shared is not None and self.shared.has_bytes(entry.digest))
        )

    def target(self, name: str, record: Record) -> dict[str, FileEntry | None]:
        """Return the files that the workspace has once a result is promoted, path -> entry or None.

        An item of a chain has only the paths of which no later item makes a version. A path of the stage's last result
        that this one lacks goes back to its newest remaining version.
        """
        written = written_paths(record)
        wanted = {path: record.outputs.get(path) for path in written if not self.has_later_version(name, path)}
        for path in written_paths(self.former.get(name)):
            if path not in written and self._may_revert(name, path):
                wanted[path] = self.version_without(name, path)
        # An earlier item left a file to a later one that declares it but may not have written it.
        chain = self.plan.chains.get(self.chain_of(name) or "", ())
        if chain and chain[-1] == name:
            records = (self.results[item] for item in chain[:-1] if item in self.results)
            finals = {path: record.outputs.get(path) for record in records for path in written_paths(record)}
            if self.stage(name).edits:  # a program may have started from a file of the user, and left it as it was
                takes = self.stage(name).takes_edits_of
                finals = {p: (self.start_version if takes(p) else self.incoming_version)(name, p) for p in finals}
            wanted |= {p: e for p, e in finals.items() if p not in wanted and p not in self.edited}
        return wanted

    def _may_revert(self, name: str, path: str) -> bool:
        """Return whether a path that the stage no longer writes belongs neither to the user nor to another stage."""
        last = self.former.get(name)
        if self._has_later_result(name, path):
            return False
        # A program edits what is there: only the stage's own bytes are taken back.
        if self.has_later_version(name, path) and (last is None or self.on_disk(path) != last.outputs.get(path)):
            return False
        there, chain = self.store.workspace.entry(path), self.chain_of(name)
        if there is not None and self.ownership.is_accepted(path, there):
            return False
        others = [owner for owner in self.owners.get(path, ()) if owner != name]
        return all(chain is not None and self.chain_of(owner) == chain for owner in others)


class ObsoleteFiles(Struct, frozen=True):
    """Files that a stage made which has ended, may not write them now, or has a newer result without them (ADR 19).

    A build removes them. Files that the user has a claim to are released instead: they stay, and are sources from now
    on.
    """

    state: ProjectState

    def is_obsolete(self, path: str) -> bool:
        """Return whether the next green build removes or replaces the file at a path."""
        state = self.state
        # Most files have no owner at all, and are not looked at.
        entry = state.store.workspace.entry(path) if state.locked.owning(path) and not state.owners.get(path) else None
        if entry is None:
            return False
        makers = (one for one in self._makers(path, entry) if not self._is_base(one.stage, path, entry))
        having = [record for record in makers if self._may_remove(record, path)]
        removable = bool(having) and not state.ownership.is_accepted(path, entry)
        is_left = any(state.plan.is_declared(record.stage) for record in having)
        return removable and (is_left or not self._is_released(path, having))

    def _is_base(self, stage: str, path: str, entry: FileEntry) -> bool:
        """Return whether the result of a stage started from a file: it leaves an older result as it is."""
        result = self.state.results.get(stage)
        return result is not None and path in result.bases and result.bases[path].start == entry

    def _makers(self, path: str, entry: FileEntry) -> Iterable[Record]:
        """Return the records with a file by a stage that owns its path: also a kept failure, or an earlier version."""
        locked, known = self.state.locked, self.state.store.records.having
        owners = {record.stage for record in locked.owning(path)}
        found = tuple(locked.having(path, entry))
        return found or tuple(one for one in (known(path, entry) if owners else ()) if one.stage in owners)

    def _may_remove(self, record: Record, path: str) -> bool:
        """Return whether a file may be removed: the stage of its record has ended, or leaves it out of its next result.

        That is known before this result if neither the stage nor an item of its chain may write the file any more.
        """
        state, name = self.state, record.stage
        node, chain = state.plan.nodes.get(name), state.chain_of(name)
        if name in state.results or not state.plan.is_declared(name):
            return state.may_remove_by(record)
        stays = node is None or (state.declared.in_chain(chain, path) if chain else match_any(writes_of(node), path))
        return not stays and state.may_remove_by(record)

    def _is_released(self, path: str, having: Sequence[Record]) -> bool:
        state, owning = self.state, self.state.locked.owning(path)
        # The file existed before the first run: removing it would delete work of the user (ADR 19).
        if state.known_originals.get(path) is not None:
            return True
        # A file that is still an input stays. If its stage is only switched off, the stage will make it again.
        names = {name for record in owning for name in (record.stage, family_of(record.stage))}
        if path in state.declared.sources and names.isdisjoint(state.plan.skipped):
            return True
        if any(path in one.bases or one.originals.get(path) for one in (*owning, *having)):  # made from a user's bytes
            return True
        if state.other_pipelines is not None and state.other_pipelines.owner(path) is not None:
            return True
        # One call of git for all of them: a process for each path would take seconds.
        state.ownership.prefetch(self._of_ended_stages())
        return state.ownership.is_committed(path)

    def _of_ended_stages(self) -> tuple[str, ...]:
        """Return the paths that the lock file gives to ended stages alone, and that no stage has written today."""
        state = self.state
        return tuple(
            path
            for path in sorted(state.locked.paths())
            if not state.owners.get(path) and not state.has_declared_owner(path)
        )

    def has_lasting_file(self, path: str) -> bool:
        """Return whether a path has a file that this build does not remove."""
        entry = self.state.store.workspace.input_entry(path)
        if entry is None or entry.link:
            return entry is not None
        return not self.is_obsolete(path) or self.replacement_of(path) is not None

    def replacements(self) -> dict[str, FileEntry | None]:
        """Return every obsolete file with what replaces it: the base of a newer result, or None."""
        return {path: self.replacement_of(path) for path in sorted(self.state.locked.paths()) if self.is_obsolete(path)}

    def replacement_of(self, path: str) -> FileEntry | None:
        """Return the file that replaces an obsolete one, or None."""
        state, entry = self.state, self.state.store.workspace.entry(path)
        having = (r for r in state.locked.having(path, entry) if self._may_remove(r, path))
        owners = (r.stage for r in having if state.plan.is_declared(r.stage))
        return next((found for name in owners if (found := state.version_without(name, path)) is not None), None)

    def released(self) -> dict[str, str]:
        """Return every file of an ended stage that stays, with the name of the stage."""
        owners = {path: self.state.locked.owning(path) for path in self._of_ended_stages()}
        return {
            path: owning[0].stage
            for path, owning in owners.items()
            if path not in self.state.declared.written.literal  # otherwise another stage takes the file over
            and owning
            and self.state.store.workspace.entry(path) is not None
            and not self.is_obsolete(path)
        }
