"""Decide what is to be done about each node of a plan, once its upstream is done: the one walk of plan and build."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from orch23.decide.decisions import DecidedStage, StageDecider
from orch23.decide.stage_view import StageTree
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.paths import match_any
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Edited, Fresh, Plan, Restore, VerifyOnly
from orch23.model.plugins import plugin_error_of
from orch23.model.record import Record
from orch23.plan.nodes import Node, reads_of, writes_of
from orch23.plan.planner import Selection, list_producers

if TYPE_CHECKING:
    from orch23.language.expand import Expansion


class ReadyNodes:
    """The nodes that are ready, in plan order. A foreach waits only for its list."""

    def __init__(self, plan: Plan) -> None:
        """Start with all nodes."""
        self._taken: set[str] = set()
        self._passed: set[str] = set()
        self.replan(plan)

    def replan(self, plan: Plan, reopened: Collection[str] = ()) -> None:
        """Continue with another plan; nodes that were popped or released stay so, except the reopened ones."""
        self._plan = plan
        self._taken.difference_update(reopened)
        self._passed.difference_update(reopened)
        # Ready nodes are taken in plan order, whatever order they became ready in.
        self._position = {name: number for number, name in enumerate(plan.order)}
        self._waiting = {name: sum(up not in self._passed for up in _awaited(plan, name)) for name in plan.order}
        free = [name for name, count in self._waiting.items() if count == 0]
        self._ready = [self._position[name] for name in free if name not in self._taken and name not in self._passed]
        heapq.heapify(self._ready)

    def release(self, name: str) -> None:
        """Stop waiting for a node; a second call changes nothing."""
        if name in self._passed:
            return
        self._passed.add(name)
        for after in self._plan.downstream.get(name, ()):
            node = self._plan.nodes[after]
            # A stage waits for each node upstream, and may have thousands.
            if not isinstance(node, ForeachStage) or name in list_producers(self._plan, node):
                self._waiting[after] -= 1
                if self._waiting[after] == 0 and after not in self._taken:
                    heapq.heappush(self._ready, self._position[after])

    def is_ready(self, name: str) -> bool:
        """Return whether a node waits for no other one."""
        return self._waiting[name] == 0

    def has_passed(self, name: str) -> bool:
        """Return whether no node waits for this one any more."""
        return name in self._passed

    def first_of(self, names: Iterable[str]) -> str:
        """Return the first of some nodes in plan order."""
        return min(names, key=self._position.__getitem__)

    def pop(self) -> str | None:
        """Return the next ready node, or None. One that was released before is not taken."""
        while self._ready:
            name = self._plan.order[heapq.heappop(self._ready)]
            if name not in self._passed:
                self._taken.add(name)
                return name
        return None


def _awaited(plan: Plan, name: str) -> tuple[str, ...]:
    # A foreach needs only its list: its items wait for their own inputs (ADR 32).
    node = plan.nodes[name]
    return list_producers(plan, node) if isinstance(node, ForeachStage) else plan.upstream[name]


class Kept(Struct, frozen=True):
    """A stage that nothing has affected since the last build, and its result."""

    name: str
    record: Record


class PassedOver(Struct, frozen=True):
    """A node that is not selected; if it has a record, that counts as its result."""

    name: str
    record: Record | None


class HeldBack(Struct, frozen=True):
    """A node that these upstream nodes block; without any, no stage may start any more."""

    name: str
    by: tuple[str, ...]


class Undecided(Struct, frozen=True):
    """A node that cannot be decided or expanded: a tool is missing, or a plugin failed."""

    name: str
    error: ConfigurationError


class ItemsAdded(Struct, frozen=True):
    """The items of a foreach, which are in the plan now. The `unaffected` ones need no decision."""

    node: ForeachStage
    items: tuple[Stage, ...]
    unaffected: Collection[str] = ()


class NotExpanded(Struct, frozen=True):
    """A foreach whose list has errors. Without errors its bytes are lost, or a stage that would run makes it."""

    node: ForeachStage
    problems: tuple[Diagnostic, ...] = ()


NextStep: TypeAlias = Kept | PassedOver | HeldBack | Undecided | ItemsAdded | NotExpanded | DecidedStage
"""What is to be done about the next node of a plan."""


class PlanWalk:
    """Yields what is to be done about each node of a plan, in its order, as far as upstream nodes are done.

    Of a stage that is fresh, kept, passed over with a record or edited in place, the state has the result. The caller
    does what a step says, and calls `release` once other nodes need not wait for the node any more. `blocks` returns
    whether an upstream node prevents a decision on a node, `is_over` whether no stage may start any more. `wanted` are
    the selected nodes, `unaffected` those that need no decision.
    """

    def __init__(
        self,
        decider: StageDecider,
        selection: Selection,
        blocks: Callable[[str, Node], bool],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start before the first node."""
        self._decider, self._selection, self._blocks, self._is_over = decider, selection, blocks, is_over
        self._frontier = ReadyNodes(decider.state.plan)
        self.wanted: Collection[str] = selection.nodes(decider.state.plan)
        earlier = decider.earlier
        self.unaffected = frozenset[str]() if earlier is None else earlier.unaffected(decider.state)

    @property
    def is_waiting(self) -> bool:
        """Whether ready nodes wait for the shared cache."""
        return False

    def __iter__(self) -> Iterator[NextStep]:
        """Yield all steps, if each node is released at once."""
        while (found := self.step()) is not None or self.wait():
            if found is not None:
                yield found

    def step(self) -> NextStep | None:
        """Return what is to be done about the next ready node; None if there is none that can be handled now."""
        while (name := self._next()) is not None:
            if (found := self._handle(name)) is not None:
                return found
        return None

    def wait(self) -> bool:
        """Wait until `step` may return a node; return False if no ready node is left."""
        return False

    def _next(self) -> str | None:
        return self._frontier.pop()

    def _handle(self, name: str) -> NextStep | None:
        plan = self._decider.state.plan
        node = plan.nodes[name]
        stuck = tuple(up for up in _awaited(plan, name) if self._blocks(up, node))
        if stuck and name not in self.wanted:
            return PassedOver(name, None)
        # An edited chain is decided although it is blocked: it ends as `edited`, whatever its upstream does.
        if stuck and (isinstance(node, ForeachStage) or not self._decider.is_edited_chain(node)):
            return HeldBack(name, stuck)
        if isinstance(node, ForeachStage):
            return self._expand(node)
        if name not in self.wanted:
            return self._pass_over(name)
        if name in self.unaffected:
            return self._keep(name)
        return HeldBack(name, ()) if self._is_over() else self.decide(name)

    def decide(self, name: str) -> NextStep | None:
        """Decide a stage, possibly again; None if its result has to be looked up first."""
        state = self._decider.state
        stage = state.stage(name)
        try:
            decided = self._decider.decide(name, need_intermediate=_needs_intermediate(self._decider, stage))
        # A plugin may call `sys.exit`, which must end the stage and not the build.
        except (Exception, SystemExit) as error:
            if (fault := fault_of(error)) is None:
                raise
            return Undecided(name, fault)
        match decided.decision:
            case Fresh(record=record):
                state.settle(name, record)
            case Edited(record=record, paths=paths) if record is not None:
                state.settle(name, record)
                state.edited.update(paths)
        return decided

    def release(self, name: str) -> None:
        """Stop waiting for a node."""
        self._frontier.release(name)

    def reopen(self, names: Collection[str]) -> None:
        """Handle some nodes again."""
        self._frontier.replan(self._decider.state.plan, names)

    def _pass_over(self, name: str) -> PassedOver:
        # Selected stages downstream are decided on the last result of this one.
        record = self._decider.state.lock.records.get(name)
        if record is not None:
            self._decider.state.settle(name, record)
        return PassedOver(name, record)

    def _keep(self, name: str) -> Kept:
        """Take the last result of a stage over, with what it depends on."""
        earlier, state = self._decider.earlier, self._decider.state
        if earlier is not None:
            state.reads[name] = set(earlier.rows[name].looked)
        record = state.lock.records[name]
        state.settle(name, record)
        return Kept(name, record)

    def _expand(self, node: ForeachStage) -> NextStep:
        from orch23.decide.list_expansion import plan_with_items  # noqa: PLC0415 - few edits have a list

        # Not `expand_each`: a list is read only when its own node is ready, between the decisions on other nodes.
        state = self._decider.state
        # Only a plan has unsettled stages: a build waits for them.
        if any(up in state.unsettled for up in list_producers(state.plan, node)):
            return NotExpanded(node)
        try:
            found = expand_foreach(self._decider, node)
        except (Exception, SystemExit) as error:
            if (fault := fault_of(error)) is None:
                raise
            return Undecided(node.name, fault)
        plan, problems = plan_with_items(state.plan, {node.name: found}) if found is not None else (None, ())
        if plan is None or found is None:
            # Its list may be a file that a stage makes which is not selected either.
            return NotExpanded(node, problems) if node.name in self.wanted else PassedOver(node.name, None)
        state.extend(plan)
        # A selected foreach selects its items, which exist only now.
        self.wanted = self._selection.nodes(plan)
        self._frontier.replan(plan)
        earlier, items, known = self._decider.earlier, found.stages, self.unaffected
        more = frozenset[str]() if earlier is None else earlier.unaffected_items(state, items, known)
        self.unaffected |= more
        return ItemsAdded(node, items, more)


def fault_of(error: Exception | SystemExit) -> ConfigurationError | None:
    """Return the error that prevents a decision: something is missing, or a plugin's code failed; else None."""
    return error if isinstance(error, ConfigurationError) else plugin_error_of(error)


def expand_foreach(decider: StageDecider, node: ForeachStage) -> "Expansion | None":
    """Return the items of a foreach by its current list; None if the bytes of the list are lost."""
    from orch23.decide.list_expansion import items_of, missing_list  # noqa: PLC0415 - as above

    state, source = decider.state.tracked(node.name), node.foreach.source or ""
    entry = StageTree(state, node.name).version(source)
    if entry is None:
        return missing_list(state.plan, node, state.store.workspace.is_folder)
    try:
        return items_of(state.plan, node, state.read(source, entry), decider.read_yaml, decider.former_items(node))
    except MissingBytesError:
        return None


def may_access(node: Stage | ForeachStage, paths: Collection[str]) -> bool:
    """Return whether a node may read, write or start from one of these paths."""
    patterns = (*reads_of(node), *writes_of(node))
    return any(match_any(patterns, path) for path in paths)


def _needs_intermediate(decider: StageDecider, stage: Stage) -> bool:
    """Return whether a later item of the stage's chain must run, so that earlier versions are needed.

    The chain is walked with today's records as far as possible; the state is unchanged afterwards.
    """
    state = decider.state
    if stage.chain is None or len(state.plan.chains[stage.chain.chain]) == 1:
        return False
    # Each item would walk through the rest of its chain, which is quadratic: the result is kept for the chain.
    if stage.chain.chain in decider.stale_chains:
        return decider.stale_chains[stage.chain.chain]
    items = state.plan.chains[stage.chain.chain][stage.chain.index :]
    # A walk that had to wait for the shared cache goes on where it was.
    walked = decider.walked_chains.setdefault(stage.name, {})
    for name, record in walked.items():
        state.settle(name, record)
    try:
        for name in items[len(walked) :]:
            decision = decider.decide(name).decision
            if not isinstance(decision, Fresh | Restore | VerifyOnly):
                break
            if isinstance(decision, VerifyOnly) and not decision.is_final:
                break
            state.settle(name, decision.record)
            walked[name] = decision.record
    finally:
        for name in walked:
            state.unsettle(name)
    decider.stale_chains[stage.chain.chain] = len(decider.walked_chains.pop(stage.name)) < len(items)
    return decider.stale_chains[stage.chain.chain]
