"""Turn parsed JSON into Structs and back. Text is read by a strict reader first: msgspec accepts duplicate keys."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from orch23.model.plain import Json

Object: TypeAlias = dict[str, Any]
"""A JSON object whose values are not looked into."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A JSON number without a fraction, of zero or more."""

_Value = TypeVar("_Value")

_NOT_JSON: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)
"""Types that msgspec would write as text. They are left as they are, and the writer of JSON refuses them."""


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
