"""Parse JSON strictly, and write indented JSON."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from msgspec.json import format as format_json

from orch23.model.digest import Json, canonical_json
from orch23.model.parsing import parse_stored


def indented_json(value: Json, *, sort_keys: bool = False) -> str:
    """Return the text of a value, without a line break at its end.

    Raises:
        ValueError: it holds NaN, an infinity or a lone surrogate.

    """
    return format_json((_SORTED if sort_keys else _AS_GIVEN).encode(value), indent=1)


def _plain(value: object) -> object:
    """Show json the mappings and sequences that are not dict and list."""
    return dict(value) if isinstance(value, Mapping) else list(value)  # type: ignore[call-overload] # a sequence


_AS_GIVEN: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
_SORTED: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain, sort_keys=True
)


_HEAD = b'{"body":'


_MIDDLE = b',"sha256":"'


_TAIL = b'"}\n'


_SEAL_SIZE = len(_MIDDLE) + 64 + len(_TAIL)


def encode_with_checksum(body: Json) -> bytes:
    """Return a value as one line of JSON that carries the sha256 of its own body."""
    return add_checksum(canonical_json(body))


def add_checksum(inner: bytes) -> bytes:
    """Return the sealed line of a value that is canonical JSON already."""
    return b"".join((_HEAD, inner, _MIDDLE, hashlib.sha256(inner).hexdigest().encode(), _TAIL))


def decode_with_checksum(data: bytes) -> Json:
    """Return the value of a sealed line.

    Raises:
        ValueError: a single byte of it is not as it was written.

    """
    inner, rest = data[len(_HEAD) : -_SEAL_SIZE], data[-_SEAL_SIZE:]
    seal_of_inner = b"".join((_MIDDLE, hashlib.sha256(inner).hexdigest().encode(), _TAIL))
    if not data.startswith(_HEAD) or rest != seal_of_inner:
        message = "does not match its checksum"
        raise ValueError(message)
    return parse_stored(inner)
