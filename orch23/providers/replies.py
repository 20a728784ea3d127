"""Take parts out of a reply of which nothing is certain but that it is JSON."""

from collections.abc import Mapping

from orch23.model.digest import Json

_MOST_TOKENS = 10**12  # far beyond any request: a number that is more is no count


def at(value: Json, *path: str | int) -> Json:
    """Return what lies at a path of a JSON value, None where there is nothing."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list | tuple) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def listed(value: Json, *path: str | int) -> tuple[Json, ...]:
    """Return the list at a path, an empty one where there is none."""
    found = at(value, *path)
    return tuple(found) if isinstance(found, list | tuple) else ()


def text_at(value: Json, *path: str | int) -> str:
    """Return the text at a path, an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def count(value: Json, *path: str | int) -> int:
    """Return the number of tokens at a path, 0 where there is none."""
    return tokens(at(value, *path))


def tokens(value: object) -> int:
    """Return a number of tokens; 0, as where nobody counted, for all that is none. Less would give money back."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0
