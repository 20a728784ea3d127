"""Bring together all that a decision on one stage rests on, and take it. Reads; never writes, starts nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from orch23.decide.freshness import Candidate, Known, decide
from orch23.engine.lay import lay
from orch23.engine.world import StageTree, World
from orch23.model.decision import Decision
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.manifest import core_of, identity_of
from orch23.model.paths import is_glob, meets
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.graph import may_read, reads_of
from orch23.plan.writers import Writers, writes_of
from orch23.resolve.prompts import Sources
from orch23.resolve.resolution import Facts, Resolved, resolve_stage
from orch23.resolve.slices import YamlReader

FactsOf: TypeAlias = Callable[[Stage], Facts]


@dataclass(frozen=True, slots=True)
class Appraised:
    """A stage as resolved, and the decision on it."""

    resolved: Resolved
    decision: Decision


@dataclass(slots=True)
class Appraiser:
    """Resolves and decides stages of one world, one after the other in the order of the plan."""

    world: World
    facts_of: FactsOf
    sources: Sources
    read_yaml: YamlReader
    forced: Collection[str] = ()
    overwrite_edited: bool = False
    failed_before: Mapping[str, str] = field(default_factory=dict)
    stale_chains: dict[str, bool] = field(default_factory=dict)
    _edited_chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _index: tuple[Plan, Writers, dict[str, frozenset[str]]] | None = None

    def resolve(self, name: str) -> Resolved:
        """Return a stage with its manifest, as the world stands now."""
        stage = self._stage(name)
        self.world.store.workspace.ask_for(name)
        tree = _LossyTree(self.world, name)
        resolved = resolve_stage(
            stage,
            tree,
            self.facts_of(stage),
            self.sources,
            variables=self.world.plan.pipeline.vars,
            read_yaml=self.read_yaml,
        )
        return replace(resolved, broken=(*resolved.broken, *map(_lost, sorted(tree.lost)))) if tree.lost else resolved

    def appraise(self, name: str, *, need_intermediate: bool = False) -> Appraised:
        """Return a stage's manifest and the decision on it."""
        resolved = self.resolve(name)
        return Appraised(resolved, decide(self._known(resolved, need_intermediate=need_intermediate)))

    def edited(self, name: str) -> tuple[str, ...]:
        """Return the outputs that a person edited: the disk equals no record of that path, nor its version 0."""
        stage = self._stage(name)
        if stage.chain is None:
            return self._edited_paths([name])
        chain = stage.chain.chain
        if chain not in self._edited_chains:
            self._edited_chains[chain] = self._edited_paths(list(self.world.plan.chains[chain]))
        return self._edited_chains[chain]

    def is_edited_chain(self, stage: Stage) -> bool:
        """Say whether the stage is of a chain that a person edited: then each of its items is, not only the first."""
        return stage.chain is not None and not self.overwrite_edited and bool(self.edited(stage.name))

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """Return the unsettled upstream stages whose outputs this one may read."""
        stage = self._stage(name)
        plan, unsettled = self.world.plan, self.world.unsettled
        base = stage.outputs if stage.chain else ()
        found = [up for up in plan.upstream[name] if up in unsettled and _may_read(plan, stage, base, up)]
        earlier = [up for up in plan.earlier_items(name) if up in unsettled and up not in found]
        if earlier:
            makers = self._makers((*reads_of(stage), *base))
            found += [up for up in earlier if up in makers and _may_read(plan, stage, base, up)]
        return tuple(found)

    def _makers(self, patterns: Iterable[str]) -> set[str]:
        """Return the stages that may write what these patterns mean. Items of long chains often read the same ones."""
        plan = self.world.plan
        if self._index is None or self._index[0] is not plan:
            self._index = (plan, Writers(plan.nodes), {})
        _, writers, known = self._index
        found: set[str] = set()
        for pattern in patterns:
            if pattern not in known:
                known[pattern] = frozenset(writers.meeting(pattern))
            found |= known[pattern]
        return found

    def _known(self, resolved: Resolved, *, need_intermediate: bool) -> Known:
        name, world = resolved.stage.name, self.world
        waiting = self.waiting_on(name)
        identity = identity_of(resolved.manifest)
        locked = world.lock.records.get(name)
        relatives = world.store.records.by_identity(identity)
        previous = locked or next((r for r in relatives if not r.failed), None)
        todays = self._todays(resolved)
        candidates = tuple(self._candidate(resolved, r, need_intermediate=need_intermediate) for r in todays)
        core = self._same_core(resolved, locked) if not todays else None
        paths = {path for c in candidates for path in c.target} | set(previous.outputs if previous else ())
        disk = {path: world.on_disk(path) for path in paths}
        stage = resolved.stage
        return Known(
            stage=name,
            manifest=resolved.manifest,
            todays=candidates,
            same_core=core,
            previous=previous,
            disk=disk,
            foreign=frozenset(p for p, e in disk.items() if e is not None and not world.known_bytes(p, e)),
            edited=() if self.overwrite_edited else self.edited(name),
            failed_before=self.failed_before.get(name) == resolved.key,
            forced=name in self.forced or stage.family in self.forced,
            cacheable=stage.cache,
            uncertain=tuple(w for up in waiting for w in writes_of(world.plan.nodes[up])),
            waiting_on=waiting,
            others=(*relatives, *world.locked.of_identity(identity)) if waiting else (),
        )

    def _todays(self, resolved: Resolved) -> tuple[Record, ...]:
        """Return the records of today's key: the lock's first, then the newest."""
        found = sorted(self.world.locked.of_key(resolved.key), key=lambda r: r.stage != resolved.stage.name)
        found += [r for r in self.world.store.records.by_key(resolved.key) if not r.failed]
        unique: list[Record] = []
        for record in found:
            if not any(_same_result(record, one) for one in unique):
                unique.append(replace(record, stage=resolved.stage.name))
        return tuple(unique)

    def _same_core(self, resolved: Resolved, locked: Record | None) -> Candidate | None:
        if not resolved.stage.cache:
            return None
        found = [r for r in self.world.store.records.by_core(resolved.core) if not r.failed]
        if locked is not None and _core(locked) == resolved.core:
            found.insert(0, locked)
        for record in found:
            candidate = self._candidate(resolved, record, need_intermediate=True)
            if candidate.obtainable:
                return candidate
        return None

    def _candidate(self, resolved: Resolved, record: Record, *, need_intermediate: bool) -> Candidate:
        world, name = self.world, resolved.stage.name
        target = world.target(name, record)
        wanted = [p for p, e in target.items() if e is not None and world.on_disk(p) != e]
        needed = set(wanted) | (set(record.outputs) if need_intermediate else set())
        obtainable = all(
            world.has_bytes(path, entry)
            for path in needed
            if (entry := target.get(path) or record.outputs.get(path)) is not None
        )
        return Candidate(record=record, target=target, obtainable=obtainable or lay(world, resolved, record))

    def _edited_paths(self, names: list[str]) -> tuple[str, ...]:
        world = self.world
        paths: set[str] = set()
        for name in names:
            stage = self._stage(name)
            paths.update(path for path in stage.outputs if not is_glob(path))
            record = world.lock.records.get(name)
            paths.update(record.outputs if record else ())
        chain = self._stage(names[0]).chain is not None
        return tuple(path for path in sorted(paths) if self._is_edited(path, chained=chain))

    def _is_edited(self, path: str, *, chained: bool) -> bool:
        entry: FileEntry | None = self.world.store.workspace.entry(path)
        if entry is None or self.world.known_bytes(path, entry):
            return False
        return not (chained and entry == self.world.original(path))

    def _stage(self, name: str) -> Stage:
        stage = self.world.plan.nodes[name]
        if isinstance(stage, ForeachStage):
            message = f"BUG: {name} is not expanded"
            raise TypeError(message)
        return stage


@dataclass(frozen=True, slots=True)
class _LossyTree(StageTree):
    """A stage's tree in which lost bytes read as empty and are remembered: a complaint of that stage alone."""

    lost: set[str] = field(default_factory=set)

    def read(self, path: str, entry: FileEntry) -> bytes:
        try:
            return self.world.read(path, entry)
        except MissingBytesError:
            self.lost.add(path)
            return b""


def _may_read(plan: Plan, stage: Stage, base: Collection[str], writer: str) -> bool:
    """Return whether a stage may read a file of another, or may start from one of its files."""
    written = writes_of(plan.nodes[writer])
    return may_read(stage, written) or any(meets(one, other) for one in base for other in written)


def _lost(path: str) -> Diagnostic:
    text = f"the bytes of `{path}` are lost: neither the store nor the transcripts have the version that is needed"
    return Diagnostic("E710", text, hint="put back .orch23 or the transcripts, or make the file again with --force")


def _same_result(one: Record, other: Record) -> bool:
    return (dict(one.outputs), one.deleted) == (dict(other.outputs), other.deleted)


def _core(record: Record) -> str:

    return core_of(record.manifest)
