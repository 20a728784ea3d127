"""Find the stages that an edit affects, and make a plan of them.

The changed paths and the stages downstream of them are looked up in the dependency index. The stages found make a
smaller plan, which is decided like any other. If the index does not show which stages are affected, all are decided.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.dependency_index import DependencyIndex, OutdatedIndexError
from orch23.model.digest import Digest, digest_bytes
from orch23.model.paths import is_glob, may_overlap, normalize_pattern
from orch23.model.pipeline import ListInput, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import graph_facts_of, program_files_of, reads_of, writes_of
from orch23.steps.registry import is_llm
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import read_regular

EditedStages: TypeAlias = Callable[[DependencyIndex, str], Mapping[str, Stage] | None]
"""Return the stages that a text of the pipeline declares otherwise than the index; None if anything else differs too.

Raises an OutdatedIndexError if the index has no row of such a stage.
"""


class Since(Struct, frozen=True, kw_only=True):
    """What has changed since a build that had nothing to do.

    `table` names the index table of that build, and `token` is the token of the table if it belongs to that build.
    `file` is the pipeline. `changed` are paths of files, and whole paths of listed directories. `digest_of` returns the
    earlier digest of a file, or None.
    """

    table: str
    token: str | None
    file: str
    changed: tuple[str, ...]
    digest_of: Callable[[str], Digest | None]


class Part(Struct, frozen=True, kw_only=True):
    """The stages that the changes since a build affect: `names` are to be decided, `plan` has those they see, too.

    `text` is the pipeline's, or empty if it is unchanged. `digests` are those of the pipeline and the vars file, by
    their names below the root.
    """

    since: Since
    rows: DependencyIndex
    names: tuple[str, ...]
    plan: Plan
    text: str
    digests: Mapping[str, Digest]

    @property
    def recorded(self) -> tuple[str, ...]:
        """The stages that have a record in the lock file."""
        return tuple(name for name in self.plan.order if self.rows.row(name).is_recorded)

    @property
    def idle_counts(self) -> dict[str, int]:
        """How many other stages there are, by status."""
        ends = dict(self.rows.head.ends)
        ends["fresh"] = ends.get("fresh", 0) - len(self.names)
        ends["skipped"] = ends.get("skipped", 0) - len(self.rows.head.empty)
        return {status: number for status, number in ends.items() if number}


def index_of(since: Since, store: ProjectStore) -> DependencyIndex:
    """Return the index of a build.

    Raises:
        OutdatedIndexError: it is not of that build, or belongs to a foreign store.
    """
    if store.is_foreign:
        raise OutdatedIndexError
    rows = DependencyIndex(store.index, since.table)
    # A build that was killed may have written the index without its snapshot, or the other way round.
    if rows.head.token != since.token or not store.local.records.is_indexed():
        raise OutdatedIndexError
    return rows


def part_of(since: Since, store: ProjectStore, edited_stages: EditedStages, asked: Collection[str] = ()) -> Part | None:
    """Return the stages that changes affect, and those `asked` for; None if not known, or more than half of all."""
    root, changed = store.root, [*since.changed]
    try:
        rows = index_of(since, store)
        digests = {one: _known(since.digest_of(one)) for one in rows.head.read if one not in changed}
        text, edited = "", dict[str, Stage]()
        if since.file in changed:
            data = read_regular(root / since.file) or b""
            text, digests[since.file] = data.decode("utf-8"), digest_bytes(data)
            if (found := edited_stages(rows, text)) is None:
                return None
            edited |= found
            for name, stage in edited.items():
                amend(rows, name, stage, lambda path: (root / path).is_file())
            changed.remove(since.file)
        names = reached_stages(rows, changed, lambda path: os.path.lexists(root / path), {*edited, *asked})
        plan = plan_of_part(rows, names)
    except (OutdatedIndexError, UnicodeError):
        return None
    return Part(since=since, rows=rows, names=names, plan=plan, text=text, digests=digests)


def _known(digest: Digest | None) -> Digest:
    if digest is None:
        raise OutdatedIndexError
    return digest


def amend(rows: DependencyIndex, name: str, stage: Stage, is_file: Callable[[str], bool]) -> None:
    """Amend the rows of an edited stage, and of the stages whose edges to it are new or gone.

    Raises:
        OutdatedIndexError: it writes something else, or its inputs change more than these edges.
    """
    row = rows.row(name)
    # The plan decides which chain stages with equal `edits` and inputs are in.
    stage = replace(stage, chain=row.node.chain)
    if _plan_facts(row.node) != _plan_facts(replace(stage, inputs=row.node.inputs)):
        raise OutdatedIndexError
    if stage.inputs != row.node.inputs:
        before, upstream = _makers(rows, row.node, is_file), _makers(rows, stage, is_file)
        # Edges along the order of the file change neither this order nor other edges, and make no cycle.
        if before != row.upstream or any(rows.row(up).number > row.number for up in upstream):
            raise OutdatedIndexError
        for up in {*before} ^ {*upstream}:
            after = sorted({*rows.row(up).downstream} ^ {name}, key=lambda one: rows.row(one).number)
            rows.amended[up] = replace(rows.row(up), downstream=tuple(after))
        row = replace(row, upstream=upstream)
    rows.amended[name] = replace(row, node=stage)


def _makers(rows: DependencyIndex, stage: Stage, is_file: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the stages that a stage waits for, in the order of the plan.

    Raises:
        OutdatedIndexError: that is not known, or an input is missing.
    """
    found, read = {*stage.needs}, {*map(normalize_pattern, (*reads_of(stage), *program_files_of(stage)))}
    is_listing = any(isinstance(one, ListInput) for one in stage.inputs)
    if is_listing or rows.head.patterns is None or any(map(is_glob, read)):
        raise OutdatedIndexError
    for path in read:
        makers = {up for up in rows.readers(path) if path in map(normalize_pattern, writes_of(rows.row(up).node))}
        if any(may_overlap(one, path) for one in rows.head.patterns) or not (makers or is_file(path)):
            raise OutdatedIndexError
        found |= makers
    return tuple(sorted(found - {stage.name}, key=lambda up: rows.row(up).number))


def _plan_facts(stage: Stage) -> tuple[object, ...]:
    """Return the facts of a stage that its place in the plan, the head of the index, or a first event depends on."""
    step = stage.step
    steps = (*step.of_attempts(stage.retry), *step.fallbacks()) if is_llm(step) else ()
    models = [(one.provider, one.model, one.transcripts) for one in steps]
    return (graph_facts_of(stage), stage.kind, stage.retry.max, models, stage.tool_caches, stage.network)


def plan_of_part(rows: DependencyIndex, names: Sequence[str]) -> Plan:
    """Return the plan of some stages and of those whose results they see."""
    reached = frozenset(names)
    found = {name: rows.row(name) for name in (*names, *_seen_by(rows, reached))}
    order = tuple(sorted(found, key=lambda name: found[name].number))
    nodes = {name: found[name].node for name in order}
    chains = dict.fromkeys(node.chain.chain for node in nodes.values() if node.chain is not None)
    groups = dict.fromkeys(found[name].group for name in names if found[name].group)
    families: dict[str, list[Stage]] = {name: [] for name in rows.head.empty}
    for node in nodes.values():
        families.setdefault(node.family, []).append(node)
    foreach = {name: one for name in families if (one := rows.family(name)) is not None}
    stages = tuple(foreach.get(name) or nodes[name] for name in families)
    return Plan(
        pipeline=replace(rows.head.pipeline, stages=stages),
        nodes=nodes,
        order=order,
        upstream={name: found[name].upstream if name in reached else () for name in order},
        downstream={name: tuple(one for one in found[name].downstream if one in reached) for name in order},
        expansions={name: tuple(families[name]) for name in foreach},
        chains={name: rows.chain(name) for name in chains},
        upstream_of_chains={name: found[name].above for name in order if found[name].above},
        groups={name: rows.group(name) for name in groups},
        whole=cache(rows.graph),
    )


def reached_stages(
    rows: DependencyIndex, changed: Iterable[str], is_there: Callable[[str], bool], edited: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the stages that a change of these paths may affect, and those that were edited, in the order of the plan.

    A path is a file, or the whole path of a listed directory. Only a stage that makes a removed file can decide what
    to do about it.

    Raises:
        OutdatedIndexError: that is not known, one was not selected, or these are more than half of all stages.
    """
    found = set(edited)
    for path in changed:
        found.update(readers_of(rows, path, lambda name: rows.row(name).makes, is_there))
    # A stage that was not selected is not built, whatever becomes of it.
    if not found or not all(rows.row(name).is_selected for name in found):
        raise OutdatedIndexError
    total, waiting = rows.head.ends.get("fresh", 0), list(found)
    while waiting:
        more = _decided_with(rows, waiting.pop()) - found
        found |= more
        waiting += more
        # Above half of all stages, a partial plan saves nothing: all are decided (ADR 31).
        if 2 * len(found) > total:
            raise OutdatedIndexError
    return tuple(sorted(found, key=lambda name: rows.row(name).number))


def readers_of(
    rows: DependencyIndex,
    path: str,
    made_by: Callable[[str], Collection[str]],
    is_there: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the nodes that looked at a changed path. `made_by` returns the files that a node makes.

    Raises:
        OutdatedIndexError: that does not show what the change affects.
    """
    readers = rows.readers(path)
    # A path without readers is new, and one that is not there was deleted: only a full decision shows what it affects.
    if not readers or not (is_there(path) or any(path in made_by(name) for name in readers)):
        raise OutdatedIndexError
    return readers


def _decided_with(rows: DependencyIndex, name: str) -> set[str]:
    """Return the stages that must be decided along with one: downstream, its chain, and its promotion group."""
    row = rows.row(name)
    # A changed list changes the items, and so the plan.
    if row.makes_list:
        raise OutdatedIndexError
    # A group is promoted together, and a chain is decided as a whole, with the readers of its originals (ADR 31).
    more = {*row.downstream, *(rows.group(row.group) if row.group else ())}
    if row.node.chain is not None:
        more.update(rows.chain(row.node.chain.chain), rows.above(row.node.chain.chain))
    return more


def _seen_by(rows: DependencyIndex, reached: frozenset[str]) -> set[str]:
    """Return the stages whose results these see, with their whole chains."""
    found = {one for name in reached for one in (*rows.row(name).upstream, *rows.row(name).beside)} - reached
    chains = {node.chain.chain for name in found if (node := rows.row(name).node).chain is not None}
    return found.union(*(rows.chain(chain) for chain in chains)) - reached
