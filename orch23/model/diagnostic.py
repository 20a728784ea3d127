"""Diagnostics: code, severity, location, message and hint; hints for misspelt names."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct


class Severity(StrEnum):
    """How much a diagnostic matters: an error blocks, a warning does not, a note explains."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Location(Struct, frozen=True, order=True):
    """A position in a text file; line and column count from 1, `length` is the number of characters to underline."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        """Return `file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"


class Related(Struct, frozen=True):
    """A second location that a diagnostic refers to, such as the first of two equal keys."""

    message: str
    location: Location | None


Fix: TypeAlias = tuple[str, str]
"""A text at the location of a diagnostic, or without one a word of the command line, and what to write in its place."""


class Diagnostic(Struct, frozen=True):
    """An error, a warning or a note. `subject` is what it is about, such as a path, where there is no text location.

    `fix` is the change that probably corrects it; `hint` says it in words.
    """

    code: str
    message: str
    location: Location | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR
    related: tuple[Related, ...] = ()
    subject: str | None = None
    fix: Fix | None = None

    def __str__(self) -> str:
        """Return one line, without the source excerpt."""
        place = f"{self.location}: " if self.location else ""
        subject = f"{self.subject}: " if self.subject else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.severity}[{self.code}]: {subject}{self.message}{hint}"


def quoted_names(names: Iterable[object]) -> str:
    """Return names as messages list them: quoted, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def fix_of_hint(wrong: str, hint: str | None) -> Fix | None:
    """Return the change from a wrong name to the one that a hint asks about, ``did you mean `name`?``; else None."""
    head, tail = "did you mean `", "`?"
    is_question = hint is not None and hint.startswith(head) and hint.endswith(tail)
    return (wrong, hint[len(head) : -len(tail)]) if hint is not None and is_question else None


def errors(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are errors."""
    return tuple(d for d in diagnostics if d.severity is Severity.ERROR)


# Characters. To compare two texts takes the product of their lengths, and checks compare words that a model wrote.
_LONGEST = 200


def nearest_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the most similar known word as a list of one; an empty list if none is similar, or the word is long.

    Upper and lower case are not distinguished. A word with the same letters in another order comes first.
    """
    if len(word) > _LONGEST:
        return []
    from difflib import get_close_matches  # noqa: PLC0415 - only for misspelt words

    words = {one.casefold(): one for one in known}
    letters = sorted(word.casefold())
    swapped = next((one for one in words if len(one) == len(letters) and sorted(one) == letters), None)
    if swapped is not None:
        return [words[swapped]]
    return [words[near] for near in get_close_matches(word.casefold(), list(words), n=1)]


# Each takes some 30 µs: thousands of missing files among thousands of known ones would take minutes.
_MOST_COMPARISONS = 20_000


class Suggestions:
    """Suggests a known word for each of many unknown ones, until the comparisons would take too long."""

    def __init__(self, known: Iterable[str]) -> None:
        """Create it. The first word is compared with all known ones, however many there are."""
        self._known = sorted(set(known))
        self._comparisons_left = max(_MOST_COMPARISONS, len(self._known))

    def hint(self, word: str) -> str | None:
        """Return a hint that names the nearest known word, or None. The word itself is not suggested."""
        near = self.nearest(word)
        return f"did you mean `{near[0]}`?" if near else None

    def nearest(
        self, word: str, first: Sequence[str] = (), others: Iterable[str] = (), without: Iterable[str] = ()
    ) -> list[str]:
        """Return the most similar known or other word as a list of one, or an empty list; never the word itself.

        A word of `first` is preferred to all others. Those of `without` are not suggested.
        """
        if self._comparisons_left < len(self._known):
            return []
        words = sorted({*self._known, *others} - {word, *without})
        self._comparisons_left -= len(words) + len(first)
        return nearest_names(word, first) or nearest_names(word, words)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the nearest known word, or None."""
    near = nearest_names(word, sorted(set(known)))
    return f"did you mean `{near[0]}`?" if near else None
