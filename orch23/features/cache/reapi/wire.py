"""Encode values as protobuf messages, and decode messages that may be hostile.

A message is a Struct. The annotation of each field has its number: `Annotated[str, 1]`. Fields are text, bytes, bool,
int (int64; with the mark INT32 an int32 or an enum), another message or None, and tuples of these, which are repeated.
Equal values have equal bytes: fields are ordered by number, and those with their default value are left out.
"""

import types
import typing
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from msgspec import Struct

INT32: Final = "int32"

MAX_MESSAGE_BYTES: Final = 64 << 20
"""The maximum size of a message that is decoded."""

MAX_FIELDS: Final = 1_000_000
"""The maximum number of values in a message, with the messages in it: they take about 2 s and 100 MB to decode."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_UINT64, _MAX_NUMBER = (1 << 64) - 1, (1 << 29) - 1
_VARINT_BYTES = 10


class DecodeError(ValueError):
    """The bytes are not a message of this kind, or exceed a limit."""


def refuse(text: str) -> NoReturn:
    """Raise DecodeError."""
    raise DecodeError(text)


class Proto(Struct, frozen=True, kw_only=True):
    """A message. A subclass has a default for each field."""


M = TypeVar("M", bound=Proto)


class _Field(NamedTuple):
    name: str
    number: int
    kind: type
    bits: int
    is_repeated: bool

    @property
    def wire_type(self) -> int:
        return _VARINT if self.kind in (int, bool) else _LENGTH


@cache
def fields_of(kind: type[Proto]) -> tuple[_Field, ...]:
    """Return the fields of a kind of message, by number."""
    found = []
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        number, *marks = hint.__metadata__
        inner = hint.__origin__
        is_repeated = typing.get_origin(inner) is tuple
        if is_repeated or isinstance(inner, types.UnionType):  # a message or None
            inner = typing.get_args(inner)[0]
        found.append(_Field(name, number, inner, 32 if INT32 in marks else 64, is_repeated))
    return tuple(sorted(found, key=lambda field: field.number))


def encode(message: Proto) -> bytes:
    """Return the canonical bytes of a message.

    Raises:
        ValueError: a text is not valid Unicode, or a number has too many bits.
    """
    out = bytearray()
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if not field.is_repeated:
            if value:
                _write(out, field, value)
        elif value and field.wire_type == _VARINT:  # packed
            packed = bytearray()
            for one in value:
                _write_varint(packed, _unsigned(field, one))
            _write_tagged(out, field.number, bytes(packed))
        else:
            for one in value:
                _write(out, field, one)
    return bytes(out)


def _write(out: bytearray, field: _Field, value: Any) -> None:
    if field.wire_type == _VARINT:
        _write_varint(out, field.number << 3 | _VARINT)
        _write_varint(out, _unsigned(field, value))
    elif field.kind is str:
        _write_tagged(out, field.number, value.encode("utf-8"))
    else:
        _write_tagged(out, field.number, value if field.kind is bytes else encode(value))


def _write_tagged(out: bytearray, number: int, data: bytes) -> None:
    _write_varint(out, number << 3 | _LENGTH)
    _write_varint(out, len(data))
    out += data


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004 - seven bits in each byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _unsigned(field: _Field, value: int) -> int:
    if not -(1 << field.bits - 1) <= value < 1 << field.bits - 1:
        message = f"{field.name} has more than {field.bits} bits: {value}"
        raise ValueError(message)
    return value & _UINT64


def decode(kind: type[M], data: bytes) -> M:
    """Return the message that some bytes are. Unknown fields are skipped; the bytes need not be canonical.

    Raises:
        DecodeError: the bytes are truncated, a field has another type or is there twice, a text is not UTF-8, a number
            has too many bits, or the message exceeds MAX_MESSAGE_BYTES or MAX_FIELDS.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        refuse(f"the message has {len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
    return _Decoder(data).message(kind, 0, len(data))


class _Decoder:
    """Decodes one message. It recurses into known fields only: the classes of messages limit the depth."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MAX_FIELDS

    def message(self, kind: type[M], at: int, end: int) -> M:
        """Return the message between two positions."""
        known = _by_number(kind)
        found: dict[str, Any] = {}
        while at < end:
            tag, at = self._varint(at, end)
            number, wire_type = tag >> 3, tag & 7
            if not 1 <= number <= _MAX_NUMBER:
                refuse(f"a field has the number {number}")
            value, start, at = self._extent(wire_type, at, end)
            self._count()
            field = known.get(number)
            if field is None:
                continue
            if field.is_repeated:
                values = found.setdefault(field.name, [])
                if wire_type == _LENGTH and field.wire_type == _VARINT:
                    self._unpack(field, start, at, values)
                else:
                    values.append(self._value(field, wire_type, value, start, at))
            elif field.name in found:
                refuse(f"{kind.__name__}.{field.name} is there twice")
            else:
                found[field.name] = self._value(field, wire_type, value, start, at)
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            refuse(f"the message has more than {MAX_FIELDS} values")

    def _extent(self, wire_type: int, at: int, end: int) -> tuple[int, int, int]:
        """Return the number of a value that is one, where the bytes of a value start, and where it ends."""
        value, start = 0, at
        if wire_type == _VARINT:
            value, stop = self._varint(at, end)
        elif wire_type == _LENGTH:
            size, start = self._varint(at, end)
            stop = start + size
        elif wire_type in (_FIXED64, _FIXED32):
            stop = at + (8 if wire_type == _FIXED64 else 4)
        else:
            refuse(f"its bytes cannot be decoded as a message: a value has the unknown type {wire_type}")
        if stop > end:
            refuse("the message is truncated")
        return value, start, stop

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        data, value, shift = self._data, 0, 0
        if at < end and data[at] <= 0x7F:  # noqa: PLR2004 - most numbers: a third of the time
            return data[at], at + 1
        for position in range(at, min(end, at + _VARINT_BYTES)):
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:  # noqa: PLR2004 - seven bits in each byte
                at, shift = position + 1, -1
                break
            shift += 7
        if shift >= 0 or value > _UINT64:
            refuse("a number is truncated or has more than 64 bits")
        return value, at

    def _value(self, field: _Field, wire_type: int, value: int, start: int, end: int) -> object:
        if wire_type != field.wire_type:
            refuse(f"its bytes cannot be decoded as a message: {field.name} has a value of the type {wire_type}")
        if wire_type == _VARINT:
            return _number(field, value)
        if field.kind is bytes:
            return self._data[start:end]
        if field.kind is str:
            try:
                return self._data[start:end].decode("utf-8")
            except UnicodeDecodeError:
                refuse(f"{field.name} is not UTF-8")
        return self.message(field.kind, start, end)

    def _unpack(self, field: _Field, at: int, end: int, values: list[object]) -> None:
        while at < end:
            value, at = self._varint(at, end)
            self._count()
            values.append(_number(field, value))


def _number(field: _Field, value: int) -> int | bool:
    if field.kind is bool:
        return value != 0
    signed = value - (1 << 64) if value >> 63 else value
    if not -(1 << field.bits - 1) <= signed < 1 << field.bits - 1:
        refuse(f"{field.name} has more than {field.bits} bits")
    return signed


@cache
def _by_number(kind: type[Proto]) -> dict[int, _Field]:
    return {field.number: field for field in fields_of(kind)}
