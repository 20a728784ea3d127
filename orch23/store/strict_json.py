"""Read JSON that must be exactly what was written: no duplicate key, no NaN, no missing or unknown field."""

import json
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
