"""Pictures and PDFs of a request: their types, which a prompt shows as such, and their places in its text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from orch23.model.digest import digest_bytes

MediaKind: TypeAlias = Literal["image", "pdf"]
PDF_TYPE: Final = "application/pdf"

# A WebP file has its size between the two parts of its mark.
_MARKS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF_TYPE),
)
_WEBP: Final = (b"RIFF", b"WEBP")
_REPLACED: Final = "\ufffd"
# How such files begin if they are read as text.
_BEGINNINGS: Final = (f"{_REPLACED}PNG", _REPLACED * 3, "GIF8", "RIFF", "%PDF-")
_ACCEPTED: ContextVar[frozenset[MediaKind]] = ContextVar("orch23_accepted_media", default=frozenset())


class Media(Struct, frozen=True, kw_only=True):
    """A picture or a PDF of a message. It follows the line `marker`, which is once in the text of the message."""

    path: str
    type: str
    data: bytes
    sha256: str
    marker: str = ""

    def __repr__(self) -> str:
        """Describe it without its bytes."""
        return f"Media(path={self.path!r}, type={self.type!r}, size_bytes={len(self.data)})"

    @property
    def kind(self) -> MediaKind:
        """Return what a model must accept."""
        return "pdf" if self.type == PDF_TYPE else "image"

    @property
    def text(self) -> str:
        """Return the text in place of its bytes: in requests, keys and recordings."""
        return f"[{self.type}, {len(self.data):,} bytes]"


def media_type(data: bytes) -> str | None:
    """Return the media type of a PNG, JPEG, GIF, WebP or PDF file by its first bytes; None for any other file."""
    if data[:4] == _WEBP[0] and data[8:12] == _WEBP[1]:
        return "image/webp"
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def may_be_media(text: str) -> bool:
    """Return whether a file may be a picture or a PDF, by its bytes read as text."""
    return text.startswith(_BEGINNINGS)


def read_media(path: str, data: bytes) -> Media | None:
    """Return a file as a picture or a PDF; None if it is neither."""
    found = media_type(data)
    return None if found is None else Media(path=path, type=found, data=data, sha256=digest_bytes(data).sha256)


def split_text(text: str, media: Sequence[Media], ends: Sequence[int] = ()) -> Iterator[tuple[str | Media, bool]]:
    """Yield the parts of a text and its media, in order, each with whether one of the `ends` is after it."""
    places = sorted((text.index(one.marker) + len(one.marker), number) for number, one in enumerate(media))
    cuts = sorted({*ends, *(place for place, _ in places), len(text)})
    start = 0
    for cut in cuts:
        if cut > start:
            yield text[start:cut], cut in ends
        yield from ((media[number], False) for place, number in places if place == cut)
        start = cut


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
    if read_bytes is None or read is None or not accepted or not may_be_media(peeked(read)):
        return None
    found = read_media(getattr(one, "path", ""), read_bytes())
    return found if found is not None and found.kind in accepted else None


def peeked(read: Callable[[], str]) -> str:
    """Return a text without noting that a prompt shows it."""
    peek: Callable[[], str] = getattr(read, "peek", read)
    return peek()
