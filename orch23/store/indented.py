"""Write JSON for people: the text of `json.dumps(indent=1)`, which is written in Python alone and is slow."""

import json
from collections.abc import Mapping
from typing import Final

from msgspec.json import format as format_json

from orch23.model.digest import Json


def indented(value: Json, *, sort_keys: bool = False) -> str:
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
