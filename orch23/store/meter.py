"""The port by which hashing and copying tell how far they are; what hears of it decides whether anybody is told."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

Verb: TypeAlias = Literal["hashing", "copying", "checking"]
Advance: TypeAlias = Callable[[int], None]
"""Take how many bytes are done since the last call."""


class Meter(Protocol):
    """Whoever wants to know of the progress on files. May be called from any thread."""

    def __call__(self, verb: Verb, name: str, size_bytes: int, /) -> Advance:
        """Take the beginning of the work on a file, and return what takes its progress."""


def silent(_verb: Verb, _name: str, _size_bytes: int) -> Advance:
    """Tell nobody."""
    return _nothing


def _nothing(_size_bytes: int) -> None:
    """Take a step that nobody wants to know of."""
