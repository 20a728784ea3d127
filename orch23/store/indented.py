"""Write JSON for people, as `json.dumps(indent=1)` does, but quickly: that one works in Python alone."""

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Final

from orch23.model.digest import Json

_NO_NAN: Final = json.JSONEncoder(allow_nan=False)
_LEVEL: Final = 2
"""At the second level what is said of a name becomes one text at once: many small ones take several times the room."""

_WORDS: Final = {None: "null", True: "true", False: "false"}


def indented(value: Json, *, sort_keys: bool = False) -> str:
    """Return the text of a value, without a line break at its end.

    Raises:
        ValueError: it holds NaN or an infinity.

    """
    parts: list[str] = []
    _write(value, "\n", parts, sort_keys=sort_keys)
    return "".join(parts)


def _write(value: Json, edge: str, parts: list[str], *, sort_keys: bool) -> None:
    """Add the pieces of a value; `edge` is the line break before a line of its level."""
    if isinstance(value, str):
        parts.append(encode_basestring(value))
    elif value is None or value is True or value is False:
        parts.append(_WORDS[value])
    elif isinstance(value, int | float):
        parts.append(_NO_NAN.encode(value))
    elif isinstance(value, dict | Mapping):
        _write_mapping(value, edge, parts, sort_keys=sort_keys)
    elif not value:
        parts.append("[]")
    else:
        _write_list(value, edge, parts, sort_keys=sort_keys)


def _write_mapping(value: Mapping[str, Json], edge: str, parts: list[str], *, sort_keys: bool) -> None:
    if not value:
        parts.append("{}")
        return
    inner = f"{edge} "
    before = f"{{{inner}"
    for name in sorted(value) if sort_keys else value:
        pieces = [] if len(edge) == _LEVEL else parts
        pieces.append(f"{before}{encode_basestring(name)}: ")
        _write(value[name], inner, pieces, sort_keys=sort_keys)
        if pieces is not parts:
            parts.append("".join(pieces))
        before = f",{inner}"
    parts.append(f"{edge}}}")


def _write_list(value: Sequence[Json], edge: str, parts: list[str], *, sort_keys: bool) -> None:
    inner = f"{edge} "
    before = f"[{inner}"
    for one in value:
        parts.append(before)
        _write(one, inner, parts, sort_keys=sort_keys)
        before = f",{inner}"
    parts.append(f"{edge}]")
