"""Walk through a plan with a shared cache: no decision waits for a lookup while another one can be made (ADR 57)."""

from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import cast

from orch23.decide.decisions import StageDecider
from orch23.decide.plan_walk import NextStep, PlanWalk, ReadyNodes, fault_of
from orch23.features.cache.claims import Lookup, PendingLookupError
from orch23.features.cache.results import CacheResults
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Record
from orch23.plan.nodes import Node
from orch23.plan.planner import Selection

_READY = 256
"""At most so many ready nodes are taken before they are handled."""
_AHEAD = 256
"""At most so many stages are looked up before they are ready."""

_NOTHING: Mapping[str, Record] = MappingProxyType({})


class SharedWalk(PlanWalk):
    """A walk that looks up stages before it decides them.

    Ready nodes whose lookups have finished are handled first, in plan order. Further stages are looked up before they
    are ready, if the results of their upstream stages are expected: from an entry whose files are not here yet, or from
    a record. A wrong expectation costs a lookup, since a decision looks up the key that its stage has then.
    """

    def __init__(
        self,
        decider: StageDecider,
        selection: Selection,
        blocks: Callable[[str, Node], bool],
        is_over: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        """Start before the first node. `wake` is called from any thread after a lookup has made progress."""
        super().__init__(decider, selection, blocks, is_over)
        self._wake = wake
        self._shared = cast("CacheResults", decider.state.shared)
        self._ahead = ReadyNodes(decider.state.plan)
        self._expected: dict[str, Record] = {}
        self._lookups: dict[str, Lookup] = {}
        # Stages that were looked up before they were ready, and are not ready yet.
        self._early: set[str] = set()
        # Ready nodes that are not handled yet, and those of them whose lookup has not finished.
        self._taken: set[str] = set()
        self._waiting: set[str] = set()
        self._news: SimpleQueue[str] = SimpleQueue()
        self._is_woken = False

    @property
    def is_waiting(self) -> bool:
        """Whether ready nodes wait for the shared cache."""
        return bool(self._waiting)

    def _next(self) -> str | None:
        """Return the next node whose lookup has finished; None if there is none now."""
        self._shared.go_on()
        # Before the news are taken: those that come later wake the caller again.
        self._is_woken = False
        while self._take_news(is_blocking=False):
            pass
        self._look_ahead()
        free = self._taken - self._waiting if self._waiting else self._taken
        if not free:
            if self._waiting:
                self._shared.await_lookups()
            return None
        name = self._frontier.first_of(free)
        self._taken.discard(name)
        return name

    def wait(self) -> bool:
        """Wait until `step` may handle a node; return False if no ready node is left."""
        if self._waiting:
            self._take_news(is_blocking=True)
            return True
        return False

    def decide(self, name: str) -> NextStep | None:
        """Decide a stage, possibly again; later, if its result has to be looked up first."""
        try:
            return super().decide(name)
        except PendingLookupError as pending:
            self._taken.add(name)
            self._watch(name, pending.lookup)
            return None

    def release(self, name: str) -> None:
        """Stop waiting for a node."""
        super().release(name)
        self._ahead.release(name)
        self._expected.pop(name, None)
        self._lookups.pop(name, None)

    def _expand(self, node: ForeachStage) -> NextStep:
        found = super()._expand(node)
        self._ahead.replan(self._decider.state.plan)
        return found

    def _look_ahead(self) -> None:
        """Take ready nodes, and start lookups of their stages and of those after them."""
        while len(self._taken) < _READY and (ready := self._frontier.pop()) is not None:
            self._early.discard(ready)
            self._taken.add(ready)
            lookup = self._lookups.get(ready)
            if lookup is None:
                self._look_up(ready, _NOTHING)
            elif not lookup.is_finished:
                self._waiting.add(ready)
        while len(self._early) < _AHEAD and (name := self._ahead.pop()) is not None:
            if not self._frontier.is_ready(name) and self._is_expected(name) and self._look_up(name, self._expected):
                self._early.add(name)

    def _is_expected(self, name: str) -> bool:
        upstream = self._decider.state.plan.upstream[name]
        return all(up in self._expected or self._frontier.has_passed(up) for up in upstream)

    def _look_up(self, name: str, expected: Mapping[str, Record]) -> bool:
        """Start to look up a stage, unless its decision needs no lookup; return whether a result may be expected."""
        node = self._decider.state.plan.nodes[name]
        if name not in self.wanted or name in self.unaffected or not isinstance(node, Stage):
            return False
        try:
            lookup, known = self._shared.look_ahead(self._decider, name, expected)
        except (Exception, SystemExit) as error:
            # The decision on the stage reports it.
            if fault_of(error) is None:
                raise
            return False
        if known is not None:
            self._expect(name, known)
        if lookup is not None:
            self._watch(name, lookup)
        return lookup is not None or known is not None

    def _expect(self, name: str, record: Record) -> None:
        self._expected[name] = record
        self._ahead.release(name)

    def _watch(self, name: str, lookup: Lookup) -> None:
        self._lookups[name] = lookup
        if name in self._taken:
            self._waiting.add(name)
        lookup.watch(partial(self._report, name))

    def _report(self, name: str) -> None:
        self._news.put(name)
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _take_news(self, *, is_blocking: bool) -> bool:
        try:
            name = self._news.get(is_blocking)
        except Empty:
            return False
        lookup = self._lookups.get(name)
        if lookup is None:
            return True
        if lookup.expected is not None and name not in self._expected:
            self._expect(name, lookup.expected.record)
        if lookup.is_finished:
            self._waiting.discard(name)
        return True
