"""Decide which inputs of a prompt are shown as pictures and PDFs: those that the model accepts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.model.media import Media, MediaKind, may_be_media, read_media

if TYPE_CHECKING:
    from orch23.resolve.prompt_inputs import PromptInput

_ACCEPTED: ContextVar[frozenset[MediaKind]] = ContextVar("orch23_accepted_media", default=frozenset())


@contextmanager
def accepting(kinds: frozenset[MediaKind] = frozenset()) -> Iterator[None]:
    """Show files of these kinds as pictures and PDFs in this context, and not as text; none in a system prompt."""
    token = _ACCEPTED.set(kinds)
    try:
        yield
    finally:
        _ACCEPTED.reset(token)


def media_of(one: object) -> Media | None:
    """Return an input as the picture or the PDF that a block of it shows; None if it is shown as text."""
    read_bytes, read, accepted = getattr(one, "read_bytes", None), getattr(one, "read", None), _ACCEPTED.get()
    # Without noting that the prompt shows the text.
    if read_bytes is None or read is None or not accepted or not may_be_media(_peek(read)):
        return None
    found = read_media(getattr(one, "path", ""), read_bytes())
    return found if found is not None and found.kind in accepted else None


def _peek(read: Callable[[], str]) -> str:
    peek: Callable[[], str] = getattr(read, "peek", read)
    return peek()


class NotedText(Struct, frozen=True):
    """The text of an input, which adds its path to `read` when it is read."""

    one: "PromptInput"
    paths: set[str]

    def __call__(self) -> str:
        """Return the text."""
        self.paths.add(self.one.path)
        return self.one.text

    def peek(self) -> str:
        """Return the text without noting it."""
        return _peek(self.one.read)
