"""Diagnostics: code, severity, location, message and hint; hints for misspelt names."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from orch23.model.patterns import lazy_pattern


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


def location_of_line(place: str) -> Location | None:
    """Return the location of a line, such as `vars.yaml:3`; None for a text of another form."""
    path, _, line = place.rpartition(":")
    return Location(path, int(line), 1) if path and line.isdecimal() else None


class Related(Struct, frozen=True):
    """A second location that a diagnostic refers to, such as the first of two equal keys."""

    message: str
    location: Location | None


Fix: TypeAlias = tuple[str, ...]
"""A text at the location of a diagnostic, or without one a word of the command line, then what may be meant by it.

Several texts are the readings of a text whose meaning is open.
"""


class Diagnostic(Struct, frozen=True):
    """An error, a warning or a note. `subject` is what it is about, such as a path, where there is no text location.

    `fix` is the change that probably corrects it; `hint` says it in words. `otherwise` is the hint without the change.
    """

    code: str
    message: str
    location: Location | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR
    related: tuple[Related, ...] = ()
    subject: str | None = None
    fix: Fix | None = None
    otherwise: str | None = None

    def __str__(self) -> str:
        """Return one line, without the source excerpt."""
        place = f"{self.location}: " if self.location else ""
        subject = f"{self.subject}: " if self.subject else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.severity}[{self.code}]: {subject}{self.message}{hint}"


def quoted_names(names: Iterable[object]) -> str:
    """Return names as messages list them: quoted, with commas."""
    return ", ".join(f"`{name}`" for name in names)


_NAMES = lazy_pattern(r"`([^`]+)`")


def question(names: Sequence[str]) -> str:
    """Return the hint that asks which of some names is meant."""
    return f"did you mean {' or '.join(f'`{name}`' for name in names)}?"


def fix_of_hint(wrong: str, hint: str | None) -> Fix | None:
    """Return the change from a wrong name to those that a hint asks about, as `question` does; else None."""
    names = _NAMES.findall(hint or "")
    return (wrong, *names) if names and hint == question(names) else None


def errors(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are errors."""
    return tuple(d for d in diagnostics if d.severity is Severity.ERROR)


# Characters. To compare two texts takes the product of their lengths, and checks compare words that a model wrote.
_LONGEST = 200
_MOST_COMPARED, _MOST_READINGS = 8, 3
_SEPARATORS = lazy_pattern(r"[^a-z0-9]+")
_DIGITS = lazy_pattern(r"[0-9]")


def nearest_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that are spelled almost like a word, several if they are equally near; or an empty list.

    Upper and lower case are not distinguished. A third of the letters of each part may differ, as in a misspelt word;
    names that differ in digits alone name different things.
    """
    if len(word) > _LONGEST:
        return []
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415 - only for misspelt words

    folded, words = word.casefold(), {one.casefold(): one for one in known}
    far: dict[str, tuple[int, bool, float]] = {}
    for one in get_close_matches(folded, list(words), n=_MOST_COMPARED):
        if (changes := _changes_in(folded, one)) is not None:
            far[one] = (changes, sorted(one) != sorted(folded), -SequenceMatcher(None, one, folded).ratio())
    near = [words[one] for one, found in far.items() if found == min(far.values())]
    return near if len(near) <= _MOST_READINGS else []


def _changes_in(word: str, other: str) -> int | None:
    """Return in how many letters a word is another one misspelt; None if it is not."""
    texts = [_SEPARATORS.split(one) for one in (word, other)]
    pairs = list(zip(*texts, strict=True) if len(texts[0]) == len(texts[1]) else [tuple(map("".join, texts))])
    counts = [_changed_letters(*pair) for pair in pairs]
    is_near = all(
        count <= max(map(len, pair)) // 3 and not (count and _differ_in_digits(*pair))
        for count, pair in zip(counts, pairs, strict=True)
    )
    return sum(counts) if is_near else None


def _differ_in_digits(one: str, other: str) -> bool:
    return bool(_DIGITS.search(one) and _DIGITS.search(other)) and _DIGITS.sub("", one) == _DIGITS.sub("", other)


def _changed_letters(one: str, other: str) -> int:
    """Return how many letters to add, remove, replace or swap with the next one make a word of another."""
    above = row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, above, row = above, row, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[j] = min(row[j], before[j - 2] + 1)
    return row[-1]


# Each takes some 30 µs: thousands of missing files among thousands of known ones would take minutes.
_MOST_COMPARISONS = 20_000


class Suggestions:
    """Suggests a known word for each of many unknown ones, until the comparisons would take too long."""

    def __init__(self, known: Iterable[str]) -> None:
        """Create it. The first word is compared with all known ones, however many there are."""
        self._known = sorted(set(known))
        self._comparisons_left = max(_MOST_COMPARISONS, len(self._known))

    def nearest(
        self, word: str, first: Sequence[str] = (), others: Iterable[str] = (), without: Iterable[str] = ()
    ) -> list[str]:
        """Return the known or other words that are nearest, as `nearest_names` does; never the word itself.

        A word of `first` is preferred to all others. Those of `without` are not suggested.
        """
        if self._comparisons_left < len(self._known):
            return []
        words = sorted({*self._known, *others} - {word, *without})
        self._comparisons_left -= len(words) + len(first)
        return nearest_names(word, first) or nearest_names(word, words)


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a hint that names the nearest known words; without any, the other hint."""
    near = nearest_names(word, sorted(set(known)))
    return question(near) if near else otherwise
