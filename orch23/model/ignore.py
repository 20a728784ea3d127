"""Say which files the `.gitignore` files of a project ignore: wildcards skip these (docs/patterns.md)."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".gitignore"


class IgnoreRules:
    """The rules of the `.gitignore` files from the root down to a folder. The nearest file decides first, as in git."""

    __slots__ = ("_levels",)

    def __init__(self, levels: tuple[tuple[str, "GitIgnoreSpec"], ...] = ()) -> None:
        """Take the folders with such a file (`""` or ending in `/`), the root first, each with its rules."""
        self._levels = levels

    def with_file(self, folder: str, data: bytes) -> "IgnoreRules":
        """Return these rules with those of the file in a folder below."""
        return IgnoreRules((*self._levels, (folder, _parsed(data))))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the rules ignore a path itself; whether a folder above it is ignored is for the caller."""
        for folder, rules in reversed(self._levels):
            below = path.removeprefix(folder)
            found = rules.check_file(f"{below}/" if is_folder else below).include
            if found is not None:
                return found
        return False


class _IgnoredFolder(IgnoreRules):
    """The rules below a folder that is ignored: as in git, nothing in it can be included again."""

    __slots__ = ()

    def with_file(self, folder: str, data: bytes) -> IgnoreRules:
        del folder, data
        return self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        del path, is_folder
        return True


NO_RULES = IgnoreRules()
BELOW_AN_IGNORED_FOLDER = _IgnoredFolder()


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where there is such a file

    lines = data.decode("utf-8", "surrogateescape").splitlines()
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git skips lines that mean nothing
        return GitIgnoreSpec.from_lines([line for line in lines if _is_sound(line)])


def _is_sound(line: str) -> bool:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - likewise

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
