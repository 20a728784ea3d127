"""Watch a stream of server-sent events for what a client library would drop in silence, or pass on in halves."""

from collections.abc import Iterable, Iterator

_NOTHING = (b"", b"[DONE]")


def named_events(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pass the pieces on, as long as each event that has data has a name.

    Raises:
        ValueError: one has none. Its name was lost on the way, and a part of the answer would be lost with it.

    """
    rest, named, filled = b"", False, False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"event":
                named = bool(value.strip())
            elif field == b"data":
                filled = filled or value.strip() not in _NOTHING
            elif not field and not value:
                if filled and not named:
                    message = "an event has data and no name"
                    raise ValueError(message)
                named = filled = False
        yield piece


def joined(texts: Iterable[str]) -> str:
    """Return the pieces of an answer as one text; a character of which each half came in a piece of its own is whole.

    Raises:
        ValueError: one half of a character never came: such a text cannot be written down.

    """
    text = "".join(texts)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
