"""A mapping that knows its names, and makes a value when it is first asked for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

_Value = TypeVar("_Value")


class OnDemand(Mapping[str, _Value]):
    """What there is by name, in the order of the names; a name that is not known is never made."""

    __slots__ = ("_made", "_make", "_names")

    def __init__(self, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        """Take the names, and what makes the value of one."""
        self._names, self._make = tuple(names), make
        self._made: dict[str, _Value] = {}

    def __getitem__(self, name: str) -> _Value:
        """Return the value of a name, the same each time."""
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        """Say whether there is such a name, and make nothing."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Give the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Count the names."""
        return len(self._names)
