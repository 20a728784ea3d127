"""Hold who comes after whom, and bring it into an order; what is more than that is the library's affair."""

import heapq
from collections.abc import Iterable, Mapping

Reasons = Mapping[str, Mapping[str, str]]


class Network:
    """A directed graph of names. An edge has a reason, that of the first who added it."""

    def __init__(self, names: Iterable[str]) -> None:
        """Begin without edges."""
        self._after: dict[str, dict[str, str]] = {name: {} for name in names}
        self._before: dict[str, list[str]] = {name: [] for name in self._after}

    def add(self, before: str, after: str, why: str) -> None:
        """Let one come after another, unless it does already."""
        if after not in self._after[before]:
            self._after[before][after] = why
            self._before[after].append(before)

    def after(self, name: str) -> Iterable[str]:
        """Return what comes right after a name."""
        return self._after[name]

    def before(self, name: str) -> Iterable[str]:
        """Return what comes right before a name."""
        return self._before[name]

    @property
    def edges(self) -> Reasons:
        """Give the edges with their reasons: before -> after -> why."""
        return self._after

    def descendants(self, name: str) -> set[str]:
        """Return all that comes after a name, without itself unless it is in a cycle."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for one in self._after[todo.pop()]:
                if one not in found:
                    found.add(one)
                    todo.append(one)
        return found

    def order(self) -> tuple[str, ...]:
        """Return the smallest topological order by name; names that are in a cycle, or after one, are not in it."""
        waiting = {name: len(before) for name, before in self._before.items()}
        ready = [name for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        found: list[str] = []
        while ready:
            name = heapq.heappop(ready)
            found.append(name)
            for one in self._after[name]:
                waiting[one] -= 1
                if not waiting[one]:
                    heapq.heappush(ready, one)
        return tuple(found)
