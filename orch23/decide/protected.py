"""Say which paths steer tools, so that only a literal entry of a fence may admit them (safety.md, Paths)."""

from orch23.model.paths import is_glob, is_ignored, match, normal
from orch23.model.protected import protected_reason


def is_protected(path: str, also: tuple[str, ...] = ()) -> bool:
    """Say whether a path, or a directory above it, has a protected name; `also` are patterns of this project's own."""
    return protected_reason(path) is not None or any(match(pattern, path) for pattern in also)


def admits(patterns: tuple[str, ...], path: str, also: tuple[str, ...] = ()) -> bool:
    """Say whether a fence's patterns let a path be written: a protected one only where it is named literally."""
    if any(not is_glob(pattern) and normal(pattern) == path for pattern in patterns):
        return True
    if is_protected(path, also):
        return False
    return any(match(pattern, path) and not is_ignored(path, normal(pattern)) for pattern in patterns)
