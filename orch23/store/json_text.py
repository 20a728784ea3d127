"""Write JSON: indented, or lines with a checksum and a MAC by the key that is registered for the store (ADR 60)."""

import json
from _blake2 import blake2b
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.json import Encoder as JsonEncoder
from msgspec.json import decode as decode_json
from msgspec.json import format as format_json

from orch23.model.digest import Json, canonical_json, digest_json, json_builtin
from orch23.model.parsing import JsonObject, Value, from_struct, parse_stored, refuse, to_struct
from orch23.snapshot.signatures import sha256_hex


def indented_json(value: Json, *, sort_keys: bool = False) -> str:
    """Return the text of a value, without a line break at its end.

    Raises:
        ValueError: it holds NaN, an infinity or a lone surrogate.
    """
    return format_json((_SORTED if sort_keys else _AS_GIVEN).encode(value), indent=1)


def compact_json(value: Json) -> str:
    """Return the text of a value on one line, without spaces, its keys in the order given; NaN is written as null."""
    try:
        return _COMPACT.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a number of more than 64 bits
        return _AS_GIVEN.encode(value)


_FORM: Final[dict[str, Any]] = {
    "separators": (",", ":"),
    "ensure_ascii": False,
    "allow_nan": False,
    "check_circular": False,  # takes more than half of the time, and values from texts have no cycles
    "default": json_builtin,
}
_COMPACT: Final = JsonEncoder(enc_hook=json_builtin)
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
    return b"".join((body, _MIDDLE, sha256_hex(inner + mac).encode(), _TAIL))


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
        refuse("does not match its checksum")
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
        refuse("does not match its checksum")
    return body


def parse_written(data: bytes) -> Json:
    """Return the value of a JSON text that orch23 wrote."""
    try:
        value: Json = decode_json(data)
    except DecodeError:  # half of a surrogate pair
        return parse_stored(data)
    return value


class Keys(Struct, frozen=True):
    """The keys of lines and of the index, empty without one. No index may be used if its key is None.

    `trusts_all`: a line without a MAC counts, too.
    """

    lines: bytes = b""
    sealing: bytes | None = b""
    trusts_all: bool = True


class StoreKey:
    """Makes and checks the MACs of a store. Its keys are read when they are first needed. By default, all counts."""

    def __init__(self, read: Callable[[], Keys] = Keys) -> None:
        """Read nothing yet."""
        self._read = read

    def refresh(self) -> None:
        """Read the keys again when they are next needed: the store may have got one."""
        vars(self).pop("_keys", None)

    @cached_property
    def _keys(self) -> Keys:
        return self._read()

    @property
    def sealing(self) -> bytes:
        """The key of the index.

        Raises:
            LookupError: the index must not be used.
        """
        if self._keys.sealing is None:
            raise LookupError
        return self._keys.sealing

    def encode(self, value: Json | Struct) -> bytes:
        """Return one line of JSON with a value, the SHA-256 of its text, and its MAC."""
        return self.line(canonical_json(from_struct(value) if isinstance(value, Struct) else value))

    def line(self, inner: bytes, *, sign: bool = True) -> bytes:
        """Return the line of a value that is canonical JSON, with its checksum and its MAC."""
        return add_checksum(inner, mac_of(inner, self._keys.lines) if sign else b"")

    def proves(self, inner: bytes, mac: bytes) -> bool:
        """Return whether a build of this user wrote a line."""
        return self._keys.trusts_all or (mac != b"" and mac == mac_of(inner, self._keys.lines))

    def decode(self, data: bytes, form: type[Value]) -> Value:
        """Return the value of a line as a Struct, or as another type that msgspec knows.

        Raises:
            ValueError: a byte of it has changed, no build of this user wrote it, or it has another form.
        """
        inner, mac = checked_line(data)
        if not self.proves(inner, mac):
            refuse("was not written by a build of yours")
        return to_struct(parse_stored(inner), form)


TRUSTED = StoreKey()
"""For what needs no MAC: every line counts, and none has one."""


def mac_of(inner: bytes, key: bytes) -> bytes:
    """Return the MAC of a line in hex; without a key it is empty."""
    return blake2b(inner, digest_size=_MAC_DIGITS // 2, key=key).hexdigest().encode() if key else b""
