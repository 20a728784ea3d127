"""Know which node of a plan can be taken next: the first in order of those that wait for nothing any more."""

import heapq

from orch23.engine.expansion import source_producers
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan


class Frontier:
    """The nodes that are ready, smallest in plan order first. A foreach waits for its list alone."""

    def __init__(self, plan: Plan) -> None:
        """Start with nothing taken, and nothing passed."""
        self._taken: set[str] = set()
        self._passed: set[str] = set()
        self.replan(plan)

    def replan(self, plan: Plan) -> None:
        """Go on with another plan; what was taken, or has passed, is so in it too."""
        self._plan = plan
        self._position = {name: number for number, name in enumerate(plan.order)}
        self._waiting = {name: sum(up not in self._passed for up in _awaited(plan, name)) for name in plan.order}
        free = [name for name, count in self._waiting.items() if count == 0]
        self._ready = [self._position[name] for name in free if name not in self._taken and name not in self._passed]
        heapq.heapify(self._ready)

    def let_pass(self, name: str) -> None:
        """Let what waits for a node wait no longer; a second time changes nothing."""
        if name in self._passed:
            return
        self._passed.add(name)
        for after in self._plan.downstream.get(name, ()):
            if _awaits(self._plan, after, name):
                self._waiting[after] -= 1
                if self._waiting[after] == 0:
                    heapq.heappush(self._ready, self._position[after])

    def take(self) -> str | None:
        """Return the next ready node and take it out, or None."""
        if not self._ready:
            return None
        name = self._plan.order[heapq.heappop(self._ready)]
        self._taken.add(name)
        return name


def _awaited(plan: Plan, name: str) -> tuple[str, ...]:
    node = plan.nodes[name]
    return source_producers(plan, node) if isinstance(node, ForeachStage) else plan.upstream[name]


def _awaits(plan: Plan, after: str, name: str) -> bool:
    """Say whether a node waits for one upstream of it: a stage does for each of what may be thousands."""
    node = plan.nodes[after]
    return not isinstance(node, ForeachStage) or name in source_producers(plan, node)
