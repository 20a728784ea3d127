"""Find the stages of a plan that nothing has affected since the last build with nothing to do.

They need no decision. `decide.partial_plan` makes a smaller plan from the index alone, if the graph is the same. This
is for a whole plan, after an edit of the graph or of a list.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.dependency_index import DependencyIndex, OutdatedIndexError, StageRow, head_of, is_open
from orch23.decide.partial_plan import Since, index_of, readers_of
from orch23.decide.project_state import ProjectState
from orch23.model.digest import Json, is_identical
from orch23.model.paths import with_folders
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.nodes import WriterIndex, grouped, writes_of
from orch23.store.project_store import ProjectStore


class EarlierBuild(Struct, frozen=True, dict=True):
    """The stages of a build with nothing to do, by name, and the paths that have changed since.

    `changed` are paths of files below `root`, and whole paths of listed directories. With `is_over`, the build that
    made the last of these changes is over. `families` are its foreach stages by name, `variables` the vars of its
    pipeline.
    """

    index: DependencyIndex
    rows: Mapping[str, StageRow]
    changed: frozenset[str]
    root: str
    families: Mapping[str, ForeachStage] = {}
    variables: Mapping[str, Json] = {}
    is_over: bool = False

    @cached_property
    def _names(self) -> Mapping[str, list[str]]:
        return grouped((family_of(name), name) for name in self.rows)

    def untouched(self, plan: Plan) -> frozenset[str]:
        """Return the stages of a plan that are declared as before, and of whose files and directories none has changed.

        Their inputs still exist and their outputs are still theirs, but stages upstream may have changed.
        """
        return frozenset(
            name
            for name, node in plan.nodes.items()
            if (row := self.rows.get(name)) is not None
            and row.is_recorded
            and row.node == node
            and self.changed.isdisjoint(row.looked)
            and self.changed.isdisjoint(row.makes)
        )

    def items_of(self, node: ForeachStage, variables: Mapping[str, Json]) -> Mapping[str, Stage]:
        """Return the items of a foreach, by name; none if the vars or its declaration were different, except its list.

        It reads no index, so all threads may call it.
        """
        before = self.families.get(node.name)
        if before is None or not _is_same_foreach(before, node) or not is_identical(self.variables, variables):
            return {}
        return {name: self.rows[name].node for name in self._names.get(node.name, ())}

    def after(self, written: Iterable[str]) -> "EarlierBuild":
        """Return this build with the changes of the current build, which wrote these paths and is over."""
        return replace(self, changed=self.changed.union(with_folders(self.root, written)), is_over=True)

    def unaffected(self, state: ProjectState) -> frozenset[str]:
        """Return the stages of a plan whose results are still those in the lock file, whatever other stages will do."""
        lists = {node.name: node for node in state.plan.unexpanded}
        former = [name for family, names in self._names.items() if family not in lists for name in names]
        # A list may have new items. Only their names show whether they make files that a stage looked at.
        writers_of = cache(WriterIndex(lists).writers_of)
        looked = ((name, path) for name, row in self.rows.items() if lists for path in row.looked)
        unclear = {name for name, path in looked if not path.startswith("/") and writers_of(path)}
        return self._unaffected(state, state.plan.order, former, frozenset(), unclear)

    def unaffected_items(self, state: ProjectState, items: Iterable[Stage], others: Collection[str]) -> frozenset[str]:
        """Return the unaffected stages among the items of a foreach, which are in the plan now.

        `others` are the other unaffected stages.
        """
        names = [item.name for item in items]
        former = self._names.get(family_of(names[0]), ()) if names else ()
        return self._unaffected(state, names, former, others, frozenset()) - frozenset(others)

    def _unaffected(
        self,
        state: ProjectState,
        names: Collection[str],
        former: Collection[str],
        others: Collection[str],
        unclear: Collection[str],
    ) -> frozenset[str]:
        plan, records = state.plan, state.lock.records
        same, written = self._compared(plan, names)
        gone = [self.rows[name] for name in former if name not in plan.nodes]
        if written is None or any(is_open(row.node) for row in gone):
            return frozenset()
        written.update(path for row in gone for path in row.makes)
        changed = self.changed.union(with_folders(self.root, written))
        found = set(others)

        @cache
        def news_of(name: str) -> frozenset[str] | None:
            """Return the paths of which the new result of a stage has other files; None if it has no result yet."""
            if name not in state.results or name in state.unsettled:
                return None
            return with_folders(self.root, _differences(records.get(name), state.results[name]))

        def is_affected_by(name: str, row: StageRow) -> bool:
            news = news_of(name)
            return news is None or not news.isdisjoint(row.looked)

        for name in names:  # those upstream of a stage come before it
            row = self.rows.get(name)
            if row is None or name not in same or name not in records or not changed.isdisjoint(row.looked):
                continue
            if name in unclear or not _has_same_place(plan, name, row):
                continue
            # Once the build is over, `changed` has everything: that stages are downstream of others says nothing more.
            if self.is_over or not any(up not in found and is_affected_by(up, row) for up in row.upstream):
                found.add(name)
        return frozenset(found)

    def _compared(self, plan: Plan, names: Iterable[str]) -> tuple[set[str], set[str] | None]:
        """Return the stages that are declared as before, and what all others write, or wrote; None if not known."""
        same: set[str] = set()
        written: set[str] = set()
        for name in names:
            node, row = plan.nodes[name], self.rows.get(name)
            if isinstance(node, ForeachStage):
                continue
            if row is not None and row.node == node:
                same.add(name)
            elif row is None or writes_of(row.node) != writes_of(node):
                # A pattern, or the files of a chain: only a result shows which stages these affect.
                if is_open(node) or (row is not None and is_open(row.node)):
                    return same, None
                written.update(writes_of(node), row.makes if row is not None else ())
        return same, written


def _is_same_foreach(before: ForeachStage, now: ForeachStage) -> bool:
    """Return whether two foreach stages differ at most in the values of their lists. Equal values have equal types."""
    one, other = (replace(node, foreach=replace(node.foreach, values=())) for node in (before, now))
    return is_identical(one, other)


def _has_same_place(plan: Plan, name: str, row: StageRow) -> bool:
    """Return whether a stage has the same neighbors as before, and is decided by itself."""
    return (
        row.upstream == plan.upstream[name]
        and row.node.chain is None
        and row.is_recorded
        and not (row.above or row.beside or row.group)
        and not plan.upstream_of_chains.get(name)
        and plan.group_of(name) is None
    )


def _differences(before: Record | None, now: Record | None) -> set[str]:
    """Return the paths of which two results have other files."""
    then, here = ({} if one is None else one.outputs for one in (before, now))
    found = {path for path in {*then, *here} if then.get(path) != here.get(path)}
    gone = [set() if one is None else set(one.deleted) for one in (before, now)]
    return found | (gone[0] ^ gone[1])


def earlier_build(since: Since, store: ProjectStore, pipeline: Pipeline) -> EarlierBuild | None:
    """Return what the index has of the last build; None if more than stages and files has changed since.

    `pipeline` is today's. If a path has changed that no stage looked at, only a full decision shows what it affects.
    """
    try:
        index = index_of(since, store)
        if index.head.pipeline != head_of(pipeline):
            return None
        rows, changed = index.stages(), frozenset(since.changed) - {since.file}
        for path in changed:
            readers_of(
                index,
                path,
                lambda name: rows[name].makes if name in rows else (),
                lambda path: os.path.lexists(store.root / path),
            )
        declared = (node.name for node in pipeline.stages if isinstance(node, ForeachStage))
        families = {name: known for name in declared if (known := index.family(name)) is not None}
        return EarlierBuild(index, rows, changed, str(store.root), families, index.head.pipeline.vars)
    except OutdatedIndexError:
        return None
