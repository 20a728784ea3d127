"""Replace the long texts of an exchange by their digests, and back: transcripts have each of them once (ADR 61)."""

import re
from collections.abc import Callable, Mapping
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.digest import Json, digest_bytes
from orch23.model.llm import Exchange
from orch23.model.parsing import parse_stored, to_struct
from orch23.model.patterns import lazy_pattern
from orch23.model.text import escape_hidden
from orch23.store.json_text import indented_json

# A longer text is a file of its own, with `sha256:DIGEST` in its place. So no text in its place looks like that.
_LONGEST = 64
_VERSION = 3  # of transcripts with such references
_REFERENCE = lazy_pattern(r"sha256:([0-9a-f]{64})", re.ASCII)
_WITH_TEXTS = ("messages", "system", "sent", "sent_system")
# The characters of all texts of an exchange, with those that are there twice.
_MOST_CHARACTERS = 1 << 26


class _Lines(Struct, frozen=True):
    lines: tuple[str, ...] = ()


def shorten(exchange: Exchange, write: Callable[[str, bytes], None]) -> Exchange:
    """Return an exchange without its long texts; `write` gets the SHA-256 of each one, and the bytes of its file."""

    def shortened(text: str) -> str:
        if len(text) <= _LONGEST:
            return text
        sha256 = digest_bytes(text.encode()).sha256
        body: Json = {"lines": text.split("\n"), "orch23_exchange": _VERSION}
        write(sha256, f"{escape_hidden(indented_json(body))}\n".encode())
        return f"sha256:{sha256}"

    return _with_texts(exchange, shortened)


def complete(exchange: Exchange, read: Callable[[str], bytes | None]) -> Exchange:
    """Return an exchange with its long texts; `read` returns the bytes of a file by the SHA-256 of its text.

    Raises:
        ValueError: a text is missing or damaged, or they are too long.
    """
    left = _MOST_CHARACTERS

    @cache
    def text_of(sha256: str) -> str:
        text = "\n".join(to_struct(parse_stored(read(sha256) or b"{}"), _Lines).lines)
        if digest_bytes(text.encode("utf-8", "replace")).sha256 != sha256:
            message = f"its texts/{sha256}.json is missing or damaged"
            raise ValueError(message)
        return text

    def whole(text: str) -> str:
        nonlocal left
        if (found := _REFERENCE.fullmatch(text)) is None:
            return text
        text = text_of(found[1])
        left -= len(text)
        if left < 0:
            message = f"its texts have more than {_MOST_CHARACTERS:,} characters"
            raise ValueError(message)
        return text

    return _with_texts(exchange, whole)


def _with_texts(exchange: Exchange, change: Callable[[str], str]) -> Exchange:
    """Return an exchange with other texts: of the messages, the system prompts, the response and the files."""

    def changed(value: Json) -> Json:
        match value:
            case str():
                return change(value)
            case list() | tuple():
                return [changed(one) for one in value]
            case Mapping():
                return {name: changed(one) for name, one in value.items()}
            case _:
                return value

    request = {name: changed(one) if name in _WITH_TEXTS else one for name, one in exchange.request.items()}
    files = {path: None if text is None else change(text) for path, text in exchange.files.items()}
    return replace(exchange, request=request, response=change(exchange.response), files=files)
