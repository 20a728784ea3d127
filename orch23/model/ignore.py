"""Say which files the `.gitignore` files of a project ignore: wildcards skip these (docs/patterns.md)."""

import re
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

IGNORE_FILE = ".gitignore"
_MOST_KEPT = 1 << 18


class _Rule(Struct, frozen=True):
    """One line: what it matches, whether folders alone, and whether that is ignored or, after a `!`, is not.

    The library's pattern has one group at most: the `/` of a folder that matches, in which a path lies.
    """

    pattern: re.Pattern[str]
    of_folders: bool
    ignores: bool

    def matches(self, path: str) -> bool:
        """Return whether a path itself matches, not a folder above it."""
        if self.of_folders:
            return any(found.end() == len(path) + 1 for found in self.pattern.finditer(f"{path}/"))
        found = self.pattern.search(path)
        return found is not None and found.lastindex is None


class IgnoreRules:
    """The rules of the `.gitignore` files from the root down to a folder. The nearest file decides first, as in git.

    Rules and answers are kept, since many patterns list the same folders.
    """

    __slots__ = ("_answers", "_below", "_levels")

    def __init__(self, levels: tuple[tuple[str, tuple[_Rule, ...]], ...] = ()) -> None:
        """Take the folders with such a file (`""` or ending in `/`), the root first, each with its rules."""
        self._levels = levels
        self._below: dict[tuple[str, bytes], IgnoreRules] = {}
        self._answers: dict[tuple[str, bool], bool] = {}

    def with_file(self, folder: str, data: bytes) -> "IgnoreRules":
        """Return these rules with those of the file in a folder below."""
        if (folder, data) not in self._below:
            if len(self._below) >= _MOST_KEPT:
                self._below.clear()
            self._below[folder, data] = IgnoreRules((*self._levels, (folder, _parsed(data))))
        return self._below[folder, data]

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the rules ignore a path itself; whether a folder above it is ignored is for the caller."""
        if not self._levels:
            return False
        if (path, is_folder) not in self._answers:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            self._answers[path, is_folder] = self._answer(path, is_folder=is_folder)
        return self._answers[path, is_folder]

    def _answer(self, path: str, *, is_folder: bool) -> bool:
        for folder, rules in reversed(self._levels):
            below = path.removeprefix(folder)
            for rule in reversed(rules):
                if (is_folder or not rule.of_folders) and rule.matches(below):
                    return rule.ignores
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
def _parsed(data: bytes) -> tuple[_Rule, ...]:
    """Return the rules of a file in their order, the last of which decides; git skips lines that mean nothing."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where there is such a file

    rules: list[_Rule] = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        of_folders = line.rstrip().endswith("/")
        with suppress(ValueError):
            for one in GitIgnoreSpec.from_lines([line]).patterns:
                if one.include is not None and one.regex is not None:  # else it is a comment
                    rules += [_Rule(one.regex, of_folders, one.include)]
    return tuple(rules)
