"""Watch the bytes of a stream of server-sent events for what a client library would drop in silence."""

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
