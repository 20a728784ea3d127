"""Read JSON that must be exactly what was written: no duplicate key, no NaN, no missing or unknown field."""

import json
from collections.abc import Collection, Iterable, Mapping
from sys import intern

from orch23.model.digest import Json


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


def fields(value: object, names: Collection[str]) -> Mapping[str, Json]:
    """Return a JSON object that has these fields and no others.

    Raises:
        ValueError: it has others, or is none.

    """
    found = mapping(value)
    if found.keys() != set(names):
        odd = sorted(found.keys() ^ set(names))
        message = f"missing or unknown field: {', '.join(odd)}"
        raise ValueError(message)
    return found


def mapping(value: object) -> Mapping[str, Json]:
    """Return a JSON object.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, Mapping):
        return value
    raise ValueError(_odd("an object", value))


def texts(value: object) -> tuple[str, ...]:
    """Return a JSON list of strings.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, list):
        return tuple(text(item) for item in value)
    raise ValueError(_odd("a list", value))


def text(value: object) -> str:
    """Return a JSON string.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, str):
        return value
    raise ValueError(_odd("a string", value))


def one_of(value: object, choices: Iterable[str]) -> str:
    """Return a JSON string that is one of the choices.

    Raises:
        ValueError: it is none of them.

    """
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(_odd("a known word", value))


def whole(value: object) -> int:
    """Return a JSON number without a fraction, of zero or more.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(_odd("a whole number", value))


def number(value: object) -> float:
    """Return a JSON number.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(_odd("a number", value))


def truth(value: object) -> bool:
    """Return a JSON boolean.

    Raises:
        ValueError: it is none.

    """
    if isinstance(value, bool):
        return value
    raise ValueError(_odd("true or false", value))


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


def _odd(wanted: str, value: object) -> str:
    return f"expected {wanted}, found {type(value).__name__}"
