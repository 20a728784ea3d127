"""Read JSON that must be exactly what was written: no duplicate key, no NaN, no missing or unknown field."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from sys import intern
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from orch23.model.digest import Json

Object: TypeAlias = dict[str, Any]
"""A JSON object whose values are not looked into."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A JSON number without a fraction, of zero or more."""

_Value = TypeVar("_Value")

_NOT_JSON: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)
"""Types that msgspec would write as text. They are left as they are, and the writer of JSON refuses them."""


def parse(text: str | bytes) -> Json:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, names a key twice, holds NaN or an infinity, or is nested too deep.

    """
    try:
        value: Json = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        message = "nested too deep"
        raise ValueError(message) from error
    return value


def decode(value: Json, form: type[_Value]) -> _Value:
    """Return a parsed value as a Struct, or as another type that msgspec knows.

    Raises:
        ValueError: a field is missing, unknown or of another type. Only the first error is named.

    """
    try:
        return convert(value, form)
    except ValidationError as error:
        message = f"is not valid: {error}"
        raise ValueError(message) from None


def fields(value: Json, names: Collection[str]) -> Mapping[str, Json]:
    """Return a JSON object that has these fields and no others. For `stat_cache` alone.

    Raises:
        ValueError: it has others, or is not an object.

    """
    found = decode(value, Object)
    if found.keys() != set(names):
        message = f"missing or unknown field: {', '.join(sorted(found.keys() ^ set(names)))}"
        raise ValueError(message)
    return found


def texts(value: Json) -> tuple[str, ...]:
    """Return a JSON list of strings. For `stat_cache` alone.

    Raises:
        ValueError: it is not one.

    """
    return decode(value, tuple[str, ...])


def text(value: Json) -> str:
    """Return a JSON string. For `stat_cache` alone.

    Raises:
        ValueError: it is not one.

    """
    return decode(value, str)


def encode(value: Struct) -> Object:
    """Return a Struct as a JSON object, as `canonical_json` and `indented` take it.

    Raises:
        TypeError: it holds a value that is not JSON.

    """
    found: Object = to_builtins(value, builtin_types=_NOT_JSON, enc_hook=_plain)
    return found


def _plain(value: object) -> object:
    """Return a mapping or sequence that is neither dict nor list as one."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    message = f"BUG: {type(value).__name__} is not JSON"
    raise TypeError(message)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = {intern(name) if name.isidentifier() else name: value for name, value in pairs}  # few, and in each record
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the key {twice!r} is there twice"
        raise ValueError(message)
    return found


def _no_constant(name: str) -> Json:
    message = f"{name} is no JSON number"
    raise ValueError(message)
