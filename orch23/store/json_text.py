"""Parse JSON strictly, and write indented JSON."""

import hashlib
import json
from typing import Any, Final

from msgspec.json import format as format_json

from orch23.model.digest import Json, digest_json, json_builtin
from orch23.model.parsing import JsonObject, to_struct


def indented_json(value: Json, *, sort_keys: bool = False) -> str:
    """Return the text of a value, without a line break at its end.

    Raises:
        ValueError: it holds NaN, an infinity or a lone surrogate.
    """
    return format_json((_SORTED if sort_keys else _AS_GIVEN).encode(value), indent=1)


def compact_json(value: Json) -> str:
    """Return the text of a value on one line, without spaces, its keys in the order given.

    Raises:
        ValueError: it holds NaN or an infinity.
    """
    return _AS_GIVEN.encode(value)


_FORM: Final[dict[str, Any]] = {
    "separators": (",", ":"),
    "ensure_ascii": False,
    "allow_nan": False,
    "check_circular": False,  # takes more than half of the time, and values from texts have no cycles
    "default": json_builtin,
}
_AS_GIVEN: Final = json.JSONEncoder(**_FORM)
_SORTED: Final = json.JSONEncoder(**_FORM, sort_keys=True)

_HEAD = b'{"body":'
_MIDDLE = b',"sha256":"'
_TAIL = b'"}\n'
_END_BYTES = len(_MIDDLE) + 64 + len(_TAIL)
_MAC = b',"mac":"'
_MAC_DIGITS = 32
_MAC_BYTES = len(_MAC) + _MAC_DIGITS + 1


def add_checksum(inner: bytes, mac: bytes = b"") -> bytes:
    """Return the line of a value that is canonical JSON, with its SHA-256.

    The line has the MAC too, if there is one: 32 hex digits, which its checksum covers.
    """
    body = b"".join((_HEAD, inner, _MAC, mac, b'"')) if mac else _HEAD + inner
    return b"".join((body, _MIDDLE, hashlib.sha256(inner + mac).hexdigest().encode(), _TAIL))


def checked_line(data: bytes) -> tuple[bytes, bytes]:
    """Return the value of a line, as canonical JSON, and its MAC, which is empty if it has none.

    Raises:
        ValueError: a byte of the line has changed.
    """
    inner, mac = data[len(_HEAD) : -_END_BYTES], b""
    # A JSON object ends with a brace.
    if inner[-1:] == b'"' and inner[-_MAC_BYTES : -_MAC_DIGITS - 1] == _MAC:
        inner, mac = inner[:-_MAC_BYTES], inner[-_MAC_DIGITS - 1 : -1]
    # The whole line is compared, not the checksum alone: a change in the text around the value is damage as well.
    if data != add_checksum(inner, mac):
        message = "does not match its checksum"
        raise ValueError(message)
    return inner, mac


def with_sum(body: JsonObject) -> JsonObject:
    """Return a JSON object with its digest as `sum`: the checksum of a file that is indented for reviews."""
    return {**body, "sum": digest_json(body)}


def without_sum(value: Json) -> JsonObject:
    """Return the object that `with_sum` took.

    Raises:
        ValueError: the value is not an object, or has changed.
    """
    body = to_struct(value, JsonObject)
    if body.pop("sum", None) != digest_json(body):
        message = "does not match its checksum"
        raise ValueError(message)
    return body
