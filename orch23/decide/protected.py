"""Say which paths steer tools, so that only an entry of the pipeline that names them admits them (ADR 26)."""

from collections.abc import Iterable

from orch23.model.paths import is_glob, match, match_any, normal
from orch23.model.protected import protected_reason, sealed_reason, spells, tool_name

_UNNAMED = "no entry of `outputs` or `allowed_paths.write` names it"


def is_protected(path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether a path, or a directory above it, has a protected name; `also` are patterns of this project's."""
    return protected_reason(path) is not None or match_any(also, path)


def admits(patterns: tuple[str, ...], path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether the patterns let a model write a path: a protected one only where it is named literally."""
    if sealed_reason(path) is not None:
        return False
    if any(not is_glob(pattern) and normal(pattern) == path for pattern in patterns):
        return True
    return not is_protected(path, also) and match_any(patterns, path)


class Declared:
    """An index over the patterns that stages may write, for paths of protected names.

    A path is declared by an entry that is that path, or by a pattern that spells out its protected names.
    """

    def __init__(self, patterns: Iterable[str], also: tuple[str, ...] = (), never: tuple[str, ...] = ()) -> None:
        """Index the patterns; `also` are patterns of protected files of this project's, `never` of sealed ones."""
        known = dict.fromkeys(patterns)
        self._literal = frozenset(normal(pattern) for pattern in known if not is_glob(pattern))
        self._globs = tuple(pattern for pattern in known if is_glob(pattern))
        self._also = also
        self._never = never

    def refusal(self, path: str) -> str | None:
        """Return why a path may not be written or removed, or None; of names alone, not of the write scope."""
        sealed = sealed_reason(path)
        if sealed is None and match_any(self._never, path):
            sealed = "orch23 alone writes it"
        if sealed is not None or path in self._literal:
            return sealed
        if match_any(self._also, path):
            return f"it is orch23's own, and {_UNNAMED}"
        reason = protected_reason(path)
        if reason is None or any(match(pattern, path) and spells(pattern, path) for pattern in self._globs):
            return None
        return f"{reason}, and {_UNNAMED}"

    def configures_unnamed(self, path: str) -> bool:
        """Return whether a path configures a tool and no pattern names it."""
        if tool_name(path) is None or path in self._literal:
            return False
        return not any(match(pattern, path) and spells(pattern, path, tools=True) for pattern in self._globs)


NOTHING_DECLARED = Declared(())
