"""Decide whether a stage may write a protected path: only an entry that names it allows that."""

from collections.abc import Iterable

from orch23.model.file_policy import protected_reason, sealed_reason, spells_protected_names, tool_file_name
from orch23.model.paths import PatternSet, is_glob, match, match_any, normalize_pattern

_UNNAMED = "no entry of `outputs` or `allowed_paths.write` names it"


def is_protected(path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether a path, or a directory above it, has a protected name; `also` are patterns of the project."""
    return protected_reason(path) is not None or match_any(also, path)


def allows_write(patterns: tuple[str, ...], path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether the patterns let a model write a path: a protected one only if it is named literally."""
    if sealed_reason(path) is not None:
        return False
    if any(not is_glob(pattern) and normalize_pattern(pattern) == path for pattern in patterns):
        return True
    # A model needs a literal entry: a pattern of a user does not mean `conftest.py` (ADR 26).
    return not is_protected(path, also) and match_any(patterns, path)


class DeclaredPatterns(PatternSet):
    """An index over the patterns that stages may write, for paths of protected names.

    An entry declares a path if it is that path, or a pattern that contains its protected names literally (ADR 26).
    """

    def __init__(self, patterns: Iterable[str], also: tuple[str, ...] = (), never: tuple[str, ...] = ()) -> None:
        """Index the patterns; `also` are patterns of protected files of the project, `never` of sealed files."""
        super().__init__(patterns)
        self._also = also
        self._never = never

    def write_error(self, path: str) -> str | None:
        """Return why a path may not be written or removed, or None. Only names are checked, not the write scope."""
        sealed = sealed_reason(path)
        if sealed is None and match_any(self._never, path):
            sealed = "only orch23 writes it"
        if sealed is not None or path in self.literal:
            return sealed
        if match_any(self._also, path):
            return f"it belongs to orch23, and {_UNNAMED}"
        reason = protected_reason(path)
        return None if reason is None or self._is_spelled(path) else f"{reason}, and {_UNNAMED}"

    def is_undeclared_tool_file(self, path: str) -> bool:
        """Return whether a path configures a tool and no pattern names it."""
        return not (tool_file_name(path) is None or path in self.literal or self._is_spelled(path, tools=True))

    def _is_spelled(self, path: str, *, tools: bool = False) -> bool:
        """Return whether a pattern matches a path and contains its protected names literally."""
        matching = (pattern for pattern in self.globs if match(pattern, path))
        return any(spells_protected_names(pattern, path, tools=tools) for pattern in matching)


NO_DECLARED_PATTERNS = DeclaredPatterns(())
