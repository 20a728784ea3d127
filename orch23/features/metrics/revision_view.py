"""Compute stage manifests from the files on disk or at a git revision, and compare two of them."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.freshness import change_reasons
from orch23.decide.list_expansion import expand_each, first_plan
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import InvalidInputError
from orch23.model.parsing import YamlReader
from orch23.model.paths import match, match_any, may_overlap, normalize_pattern
from orch23.model.pipeline import ForeachStage, Pipeline, SliceInput, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.record import Facts, LockFile, Manifest, Reason, same_result
from orch23.plan.nodes import Node, declared_node, may_read, reads_of, writes_of
from orch23.resolve.prompt_inputs import AuthorTexts
from orch23.resolve.resolution import resolve_stage

ReadEntry: TypeAlias = Callable[[str, FileEntry], bytes | None]
"""Return the bytes of an entry from wherever they still are, or None."""


class RevisionFiles(Protocol):
    """Files by path: on disk, or at a git revision."""

    def entry(self, path: str) -> FileEntry | None:
        """Return the regular file at a path, or None."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes of the regular file at a path, or None."""

    def input_entry(self, path: str) -> FileEntry | None:
        """Return the file that an input path means: the one there, or the one that links lead to, or None."""

    def listing(self, pattern: str, *, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a pattern matches; excluded links are not followed."""


class RevisionArtifacts(Struct, frozen=True, kw_only=True, dict=True):
    """The files that the stages had made at a revision, by its lock file; `today` is None for the present.

    A file is unknown at a past revision if no record there could have it, or if today's is not known. It counts as
    unchanged then. `is_dead` returns whether a file of an ended stage is about to be removed; in a commit no file is.
    """

    paths: frozenset[str]
    plan: Plan
    lock: LockFile
    files: RevisionFiles
    bytes_of: ReadEntry
    today: "RevisionArtifacts | None" = None
    is_dead: Callable[[str], bool] = lambda _path: False
    _lost: dict[str, bool] = field(default_factory=dict)

    def entry(self, path: str) -> FileEntry | None:
        """Return the file that was made at a path, or None if there was none or it is about to be removed."""
        if self.today is not None and path in self.unknown:
            return self.today.entry(path)
        if path in self._recorded_files:
            return self._recorded_files[path]
        return None if self.is_dead(path) else self.files.entry(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of the file that was made at a path; today's if those of then are lost."""
        if self.today is not None and self.is_lost(path):
            return self.today.read(path)
        entry = self.entry(path)
        return None if entry is None else self.bytes_of(path, entry)

    @cached_property
    def unknown(self) -> frozenset[str]:
        """The paths that this revision does not determine, and that count as unchanged."""
        if self.today is None:
            return frozenset()
        # Without a lock file it is not known what the stages had made.
        if not self.lock.records:
            return self.paths
        return frozenset(path for path in self.paths if self._is_unknown(path) or self.today.is_missing(path))

    def is_lost(self, path: str) -> bool:
        """Return whether a file differs from today's and the bytes of one of the two are lost."""
        if self.today is None or path not in self.paths:
            return False
        if path not in self._lost:
            both = {self.entry(path), self.today.entry(path)}
            self._lost[path] = len(both) > 1 and any(
                one is not None and self.bytes_of(path, one) is None for one in both
            )
        return self._lost[path]

    def is_missing(self, path: str) -> bool:
        """Return whether a file does not exist because its stage has no result."""
        return self._is_unknown(path) and self.entry(path) is None

    def _is_unknown(self, path: str) -> bool:
        return path not in self._recorded_files and any(match_any(patterns, path) for patterns in self._unbuilt)

    @cached_property
    def _recorded_files(self) -> dict[str, FileEntry | None]:
        """The last version of each path by the records of stages that still exist."""
        found: dict[str, FileEntry | None] = {}
        records = self.lock.records
        later = (name for name in records if name not in self.plan.nodes and self.plan.is_declared(name))
        for name in (*self.plan.order, *later):
            if name in records:
                found |= dict.fromkeys(records[name].deleted)
                found |= records[name].outputs
        return found

    @cached_property
    def _unbuilt(self) -> tuple[tuple[str, ...], ...]:
        """What stages without a record may write; of a foreach, if no item has a record."""
        known = {*self.lock.records, *(family_of(name) for name in self.lock.records)}
        nodes: list[Stage | ForeachStage] = [*self.plan.pipeline.stages]
        if self.today is None:
            nodes += self.plan.nodes.values()
        return tuple(writes_of(node) for node in nodes if node.name not in known)


def artifact_paths(pipelines: Collection[Pipeline | None], locks: Collection[LockFile]) -> frozenset[str]:
    """Return the paths that stages make: literal outputs, and the outputs in records."""
    nodes = [node for pipeline in pipelines if pipeline is not None for node in pipeline.stages]
    outputs = [path for node in nodes if isinstance(node, Stage) for path in node.outputs]
    outputs += [path for lock in locks for record in lock.records.values() for path in record.outputs]
    return frozenset(path for path in outputs if not path.endswith("/"))


class RevisionView(Struct, frozen=True):
    """Files at a revision, and what the pipeline had made of them."""

    files: RevisionFiles
    artifacts: RevisionArtifacts

    def entry(self, path: str) -> FileEntry | None:
        """Return the file that an input path means, or None."""
        if path in self.artifacts.paths:
            return self.artifacts.entry(path)
        found = self.files.input_entry(path)
        if found is None or found.link not in self.artifacts.paths:
            return found
        made = self.artifacts.entry(found.link)
        return None if made is None else replace(made, link=found.link)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of the regular file at a path, or None if there is none or its bytes are lost."""
        return (self.artifacts if path in self.artifacts.paths else self.files).read(path)

    def listing(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a pattern may match, also made files that do not exist."""
        wanted = normalize_pattern(pattern)
        made = {path for path in self.artifacts.paths if match(wanted, path)}
        return tuple(sorted({*self.sources(pattern, exclude), *made}))

    def sources(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the paths that a pattern matches, without files that the pipeline makes."""
        return tuple(path for path in self.files.listing(pattern, exclude=exclude) if path not in self.artifacts.paths)


class _Seen(Struct, frozen=True):
    """A revision as one stage sees it: the `Tree` port of `resolve`. Versions of chains are not recorded.

    Files of the stage's own chain, or of one after it, count as unchanged: the version that it saw is not known.
    """

    view: RevisionView
    stage: Stage
    versioned: tuple[str, ...]

    def entry(self, path: str) -> FileEntry | None:
        is_own = self.stage.chain is None and match_any(self.stage.outputs, path)
        return None if is_own else self._at(path).entry(path)

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> dict[str, FileEntry]:
        wanted = [path for path in self.view.listing(pattern, exclude) if not match_any(exclude, path)]
        return {path: entry for path in wanted if (entry := self.entry(path)) is not None}

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        return self.view.sources(pattern, exclude)

    def links(self, _pattern: str, /) -> tuple[str, ...]:
        return ()

    def versions(self) -> dict[str, FileEntry]:
        return {}

    def read(self, path: str, entry: FileEntry) -> bytes:
        place = entry.link or path
        return self._at(place).read(place) or b""

    def _at(self, path: str) -> RevisionView | RevisionArtifacts:
        made = self.view.artifacts
        if made.today is not None and path in made.paths and match_any(self.versioned, path):
            return made.today
        return self.view


ViewOf: TypeAlias = Callable[[Plan], RevisionView]
"""Return the view of a revision for a plan, which decides whose version of a file is the last."""


class PlanManifests(Struct, frozen=True):
    """A plan, expanded as far as its lists are known, with the manifests of its nodes and the files they had made."""

    plan: Plan
    artifacts: RevisionArtifacts
    manifests: Mapping[str, Manifest]


class ManifestReader(Struct, frozen=True, kw_only=True):
    """Computes the manifests of a pipeline at a revision."""

    facts_of: Callable[[Stage], Facts]
    sources_of: Callable[[RevisionView], AuthorTexts]
    read_yaml: YamlReader

    def manifests_of(self, pipeline: Pipeline, view_of: ViewOf) -> PlanManifests:
        """Return every manifest of a pipeline at a revision.

        Raises:
            InvalidInputError: the graph has errors, or the items of a list that no stage makes.
            ConfigurationError: an interpreter or a declared tool is missing.
            SafetyError: it needs the bytes of lost files.
        """
        plan = self._expanded(pipeline, view_of)
        view = view_of(plan)
        sources = self.sources_of(view)
        return PlanManifests(
            plan, view.artifacts, {name: self._manifest(plan, name, view, sources) for name in plan.order}
        )

    def _expanded(self, pipeline: Pipeline, view_of: ViewOf) -> Plan:
        """Return the plan with the items of each list that exists. Errors in lists that a stage made are ignored."""
        plan, problems = first_plan(pipeline, lambda plan, _node, source: view_of(plan).read(source), self.read_yaml)
        if plan is None or problems:
            raise InvalidInputError(*problems)
        for one in expand_each(plan, lambda plan, _node, source: view_of(plan).read(source), self.read_yaml):
            if one.problems and one.node.foreach.source not in view_of(one.plan).artifacts.paths:
                raise InvalidInputError(*one.problems)
            plan = one.plan
        return plan

    def _manifest(self, plan: Plan, name: str, view: RevisionView, sources: AuthorTexts) -> Manifest:
        node, pipeline = plan.nodes[name], plan.pipeline
        if isinstance(node, ForeachStage):
            return _unexpanded(node, view, pipeline.vars)
        facts = self.facts_of(node)
        tree = _Seen(view, node, versioned_patterns(plan, node))
        return resolve_stage(node, tree, facts, sources, pipeline=pipeline, read_yaml=self.read_yaml).manifest


def versioned_patterns(plan: Plan, node: Stage) -> tuple[str, ...]:
    """Return the patterns of files of which a stage does not see the last version: of its chain and of later ones."""
    own = () if node.chain is None else (node.chain.chain,)
    chains = (*own, *sorted(plan.upstream_of_chains.get(node.name, ())))
    names = (name for chain in chains for name in (*plan.chains.get(chain, ()), chain) if name in plan.nodes)
    return tuple(dict.fromkeys(pattern for name in names for pattern in writes_of(plan.nodes[name])))


def _unexpanded(node: ForeachStage, view: RevisionView, variables: Mapping[str, Json]) -> Manifest:
    """Return what is known of a foreach without its list: its text, the vars, and the files it may read."""
    command: Json = {"body": node.body, "over": repr(replace(node.foreach, together=False)), "vars": dict(variables)}
    read = dict.fromkeys(path for pattern in reads_of(node) for path in view.sources(pattern))
    own = writes_of(node)
    inputs = {f"input:{path}": str(view.entry(path)) for path in read if not match_any(own, path)}
    return {"command": command, **inputs}


class AffectedStage(Struct, frozen=True, kw_only=True):
    """A stage or item that is affected: it has another key (`changed`), is new (`added`), or may be (`downstream`).

    `after` are the affected stages whose results it may read; for `downstream` only those whose results are not known.
    """

    stage: str
    why: Literal["changed", "added", "downstream"]
    reasons: tuple[Reason, ...] = ()
    after: tuple[str, ...] = ()


def compare_manifests(
    then: PlanManifests | None, now: PlanManifests, settled: Collection[str]
) -> tuple[tuple[AffectedStage, ...], tuple[str, ...]]:
    """Return the affected stages of today's plan, in its order, and the stages that no longer exist.

    Without a past revision every stage is new. A stage is not affected by one that it only names in `needs`. Results of
    `settled` stages are known today: these are compared, so their changes are reasons of their own.
    """
    before: Mapping[str, Node] = then.plan.nodes if then is not None else {}
    removed = tuple(name for name in before if name not in now.plan.nodes)
    writers: dict[str, Node] = {name: before[name] for name in removed}
    known = {*settled, *removed}
    found: list[AffectedStage] = []
    # In plan order: all stages upstream are compared before a stage.
    for name in now.plan.order:
        one = _one(name, then, now, {w: node for w, node in writers.items() if _reads(now.plan, name, node)}, known)
        if one is not None:
            found.append(one)
            writers[name] = now.plan.nodes[name]
    # A foreach that had no list then is in the plan by its items today.
    families = {family_of(name) for name in now.plan.nodes if "@" in name}
    return tuple(found), tuple(name for name in removed if name not in families)


def _one(
    name: str, then: PlanManifests | None, now: PlanManifests, writers: Mapping[str, Node], known: Collection[str]
) -> AffectedStage | None:
    """Return a stage if it is affected; `writers` are the affected stages whose results it may read."""
    if then is None or name not in then.manifests:
        return AffectedStage(stage=name, why="added", after=tuple(writers))
    if reasons := change_reasons(then.manifests[name], now.manifests[name]):
        return AffectedStage(stage=name, why="changed", reasons=reasons, after=tuple(writers))
    lost = [path for path in _parts_of(now.plan, name) if then.artifacts.is_lost(path)]
    undetermined = [w for w, node in writers.items() if w not in known or not _is_compared(then, now, name, node)]
    undetermined += [
        w for path in lost for w, node in now.plan.nodes.items() if w != name and match_any(writes_of(node), path)
    ]
    undetermined += _other_versions(then, now, name)
    return (
        AffectedStage(stage=name, why="downstream", after=tuple(dict.fromkeys(undetermined))) if undetermined else None
    )


def _is_compared(then: PlanManifests, now: PlanManifests, name: str, writer: Node) -> bool:
    """Return whether comparing manifests shows every change in the files that a writer makes."""
    node = now.plan.nodes[name]
    if isinstance(node, ForeachStage):
        return False
    written, reads = writes_of(writer), (*reads_of(node), *_list_of(now.plan, name))
    before = then.plan.nodes[name]
    versioned = (
        *versioned_patterns(now.plan, node),
        *(versioned_patterns(then.plan, before) if isinstance(before, Stage) else ()),
    )
    if _overlap(versioned, written):
        return False
    return not any(match_any(written, path) and match_any(reads, path) for path in then.artifacts.unknown)


def _parts_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the files of which a stage reads a part, and the list of its foreach: digests do not decide these."""
    node = plan.nodes[name]
    declared = (*node.inputs, *node.verify.inputs) if isinstance(node, Stage) else ()
    return (*(one.path for one in declared if isinstance(one, SliceInput)), *_list_of(plan, name))


def _other_versions(then: PlanManifests, now: PlanManifests, name: str) -> tuple[str, ...]:
    """Return the earlier items of a stage's chain if they are not the same as then, or those with another result."""
    earlier, earlier_then = _earlier(now.plan, name), _earlier(then.plan, name)
    if earlier != earlier_then:
        return tuple(dict.fromkeys((*earlier, *earlier_then)))
    both = ((one, then.artifacts.lock.records.get(one), now.artifacts.lock.records.get(one)) for one in earlier)
    return tuple(one for one, a, b in both if a is not None and b is not None and not same_result(a, b))


def _earlier(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the earlier items of a stage's chain whose files it starts from or reads."""
    return tuple(one for one in plan.earlier_items(name) if _reads(plan, name, plan.nodes[one]))


def _reads(plan: Plan, name: str, writer: Node) -> bool:
    """Return whether a stage may read what another makes: inputs, its list, or earlier versions of its chain."""
    node = plan.nodes[name]
    reads = [*_list_of(plan, name)]
    if isinstance(node, Stage) and node.chain is not None:
        # An item starts from versions of earlier items, never of later ones.
        if writer.name in plan.chains.get(node.chain.chain, ())[node.chain.index + 1 :]:
            return False
        reads += node.outputs
    return may_read(node, writes_of(writer)) or _overlap(reads, writes_of(writer))


def _overlap(some: Collection[str], others: Collection[str]) -> bool:
    return any(may_overlap(one, other) for other in others for one in some)


def _list_of(plan: Plan, name: str) -> tuple[str, ...]:
    found = declared_node(plan.pipeline, name)
    return (found.foreach.source,) if isinstance(found, ForeachStage) and found.foreach.source is not None else ()
