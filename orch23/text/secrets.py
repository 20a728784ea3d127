"""Find the secrets of the environment in text that is sent or written, and redact them."""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

from msgspec import Struct, field

from orch23.model.patterns import lazy_pattern
from orch23.text.secret_patterns import KEY_FORMATS, encodings_of, formats_in

_MIN_REMAINS: Final = 8  # characters of a cut secret
_CUT = lazy_pattern(r"(?:\n|\\{1,2}n)?(?:\.{3}|\u2026)")
_RESUMED = lazy_pattern(r"(?:\.{3}|\u2026)(?:\n|\\{1,2}n)?")


def find_cut_secrets(text: str, spellings: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield the place of each start of a secret before a cut (`...`), and of each end of one after a cut.

    Eight characters are the minimum, and the head that all keys of a vendor have does not count: prose may contain
    `sk-ant-...`.
    """
    if "..." not in text and "\u2026" not in text:  # this search is much faster than that for a cut
        return
    ends = [match.start() for match in _CUT.finditer(text)]
    starts = [match.end() for match in _RESUMED.finditer(text)]
    around = _around(text, ends, max((len(spelling) for spelling, _ in spellings), default=0))
    for spelling, name in spellings:
        head, tail = _distinctive_ends(spelling)
        if len(head) >= len(spelling):
            continue
        if head in around:
            yield from ((start, end, name) for start, end in _cut_heads(text, spelling, head, ends))
        if tail in around:
            yield from ((start, end, name) for start, end in _cut_tails(text, spelling, tail, starts))


def _cut_heads(text: str, spelling: str, head: str, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    for start in _occurrences(text, head):
        number = bisect.bisect_left(cuts, start + len(head))
        if number < len(cuts) and spelling.startswith(text[start : min(cuts[number], start + len(spelling) + 1)]):
            yield start, cuts[number]


def _cut_tails(text: str, spelling: str, tail: str, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    for found in _occurrences(text, tail):
        end = found + len(tail)
        number = bisect.bisect_right(cuts, found) - 1
        if number >= 0 and spelling.endswith(text[max(cuts[number], end - len(spelling) - 1) : end]):
            yield cuts[number], end


def _around(text: str, cuts: Sequence[int], width: int) -> str:
    """Return the text near the cuts. Most secrets do not occur there, which saves searching the whole text for each."""
    reach = width + _MIN_REMAINS
    if 2 * reach * len(cuts) >= len(text):
        return text
    return "\n".join(text[max(0, cut - reach) : cut + reach] for cut in cuts)


@lru_cache(maxsize=32_768)
def _distinctive_ends(spelling: str) -> tuple[str, str]:
    """Return the shortest start and end of a spelling that no other text has by chance."""
    vendors = max((len(form.head) for form in KEY_FORMATS if spelling.startswith(form.head)), default=0)
    return spelling[: vendors + _MIN_REMAINS], spelling[-_MIN_REMAINS:]


def _occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


_MIN_LENGTH: Final = 8
_MIN_DISTINCT: Final = 4
_WORD_LENGTH: Final = 12
_MIN_LINE: Final = 16

_NAMES = lazy_pattern(
    r"(?:^|.*[_.-])(?:[A-Z0-9]*(?:PASSWORD|PASSWD|PASSPHRASE|SECRETS?|TOKEN|APIKEY|CREDENTIALS?)|[A-Z]*ACCESSKEY|KEYS?)"
    r"(?:[_.-].*)?|.+[_.-]P(?:WD|ASS)",
    re.DOTALL,
)
# A name without one of these does not match. Few names have one, and the pattern takes long to compile.
_NAME_PARTS = ("PASS", "SECRET", "TOKEN", "KEY", "CREDENTIAL", "_PWD", "-PWD", ".PWD")
_NO_VALUE = lazy_pattern(
    r".*[_.-](?:FILE|PATH|DIR|DIRECTORY|FOLDER|SOCK|SOCKET|URL|URI|TYPE|NAME|ALGORITHM|LENGTH|SIZE)"
)
_COMMON = frozenset(
    {
        "12345678", "123456789", "1234567890", "changeme!", "password1", "password123", "localhost:8080", "not-needed",
        "not_needed", "no-key-required", "sk-no-key-required", "no-key-needed",
    }
)  # fmt: skip
_PLACE = lazy_pattern(
    r"(?:~|\.{1,2})?/(?:(?:bin|dev|etc|home|lib|media|mnt|opt|private|proc|root|run|srv|sys|tmp|usr|var|Users|app"
    r"|workspace)(?:/[\w.@+-]+)*/?)?|(?:~|\.{1,2})(?:/[\w.@+-]+)+/?"
)
_WITH_PASSWORD = lazy_pattern(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@", re.IGNORECASE)

_ODD = lazy_pattern(r"[^A-Za-z0-9_. -]")
REDACTION_HEAD: Final = "[redacted "
"""The beginning of each redaction mark."""

# Encoded text is often wrapped: a break between two of its characters is ignored. The look-behinds come after the line
# break, so that `re` can search for it first. The carriage return before it is not in the match.
_BREAK = lazy_pattern(r"\n(?:(?<=[A-Za-z0-9+/_=-]\n)|(?<=[A-Za-z0-9+/_=-]\r\n))[ \t]*+(?=[A-Za-z0-9+/_=-])")


class SecretFinding(Struct, frozen=True, order=True):
    """A secret in a text: its line, from 1, and its name (never its value)."""

    name: str
    line: int


class Secrets(Struct, frozen=True, dict=True):
    """The values that must not leave the machine or be written to disk, by the names of their variables."""

    values: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Describe it without the values."""
        return "Secrets()"

    @cached_property
    def _spellings(self) -> tuple[tuple[str, str], ...]:
        return _spellings(tuple(sorted(self.values.items())))

    @cached_property
    def _marks(self) -> str:
        return "|".join(re.escape(redaction_mark(name)) for name in self.names())

    def names(self) -> tuple[str, ...]:
        """Return every name that a finding can have, including those of vendors' key formats."""
        return tuple(sorted({*self.values, *(form.name for form in KEY_FORMATS)}))

    def find(self, text: str) -> tuple[SecretFinding, ...]:
        """Return every secret in a text, and every text in the format of a vendor's key, in order."""
        found: dict[SecretFinding, None] = {}
        line, at = 1, 0
        for start, _, name in self._spans(text):
            line += text.count("\n", at, start)
            at = start
            found[SecretFinding(name, line)] = None
        return tuple(found)

    def may_contain(self, texts: Iterable[str]) -> bool:
        """Return whether `redact` may change one of these texts.

        All are searched as one text, with NUL between them: no secret contains it, and it ends a word as the end of a
        text does.
        """
        whole = "\0".join(texts)
        joined, breaks = _joined(whole)
        forms = formats_in(joined)
        return (
            any([spelling in joined for spelling, _ in self._spellings])  # noqa: C419 - faster than a generator
            or (bool(forms) and any(form.may_match(joined) for form in forms))
            or (bool(breaks) and any(form.may_match(whole) for form in formats_in(whole)))
            or next(find_cut_secrets(joined, self._spellings), None) is not None
        )

    def redact(self, text: str) -> str:
        """Return a text without secrets, in any encoding. A second call changes nothing."""
        # A redaction can make another secret visible, which a further round finds.
        while spans := self._spans(text):
            pieces: list[str] = []
            at = 0
            for start, end, name in spans:
                pieces += (text[at:start], redaction_mark(name))
                at = end
            text = "".join((*pieces, text[at:]))
        return text

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return the places of all secrets outside of redaction marks, merged where they overlap."""
        # Most commands print nothing.
        if not text:
            return []
        joined, breaks = _joined(text)
        found = self._outside_marks(joined, _found(joined, self._spellings))
        spans = [(_before(breaks, start), _before(breaks, end - 1) + 1, name) for start, end, name in found]
        if breaks:
            # In the joined text a key that is alone on its line is part of a longer word.
            spans += self._outside_marks(text, _found_keys(text))
        return _merged(sorted(spans))

    def _outside_marks(self, text: str, found: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        places = list(found)
        marked = [match.span() for match in re.finditer(self._marks, text)] if places else []
        return [place for place in places if not _touches(marked, place[0], place[1])]


def redaction_mark(name: str) -> str:
    """Return the text that replaces a secret. It is valid inside JSON strings, whatever the name of the variable."""
    return f"{REDACTION_HEAD}{_ODD.sub('?', name)}]"


def secrets_from(environ: Mapping[str, str]) -> Secrets:
    """Return the secrets of an environment: the values of variables with names such as `API_KEY` or `DB_PASSWORD`.

    A value that any prose may contain does not count: shorter than 8 characters, one plain word, a usual placeholder,
    or a path. The password in a URL counts, whatever the name of the variable.
    """
    found: dict[str, str] = {}
    for name, value in environ.items():
        given = value.strip()
        match = _WITH_PASSWORD.match(given) if "@" in given else None
        if match is not None:
            given = match[1]
        # Not by randomness: digests and fixtures would count too, and users would switch the check off (ADR 9).
        elif not is_secret_name(name):
            continue
        if _is_distinctive(given):
            found[name] = given
    return Secrets(found)


def is_secret_name(name: str) -> bool:
    """Return whether a variable holds a secret, by its name."""
    upper = name.upper()
    may_match = any(map(upper.__contains__, _NAME_PARTS))
    return may_match and _NAMES.fullmatch(upper) is not None and _NO_VALUE.fullmatch(upper) is None


def _is_distinctive(value: str) -> bool:
    """Return whether a text that contains the value must have it from this environment."""
    return not (
        len(value) < _MIN_LENGTH
        or len(set(value)) < _MIN_DISTINCT
        or (len(value) < _WORD_LENGTH and value.isalpha() and value[1:].islower())
        or value.lower() in _COMMON
        or _PLACE.fullmatch(value)
    )


@lru_cache(maxsize=8)
def _spellings(values: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the spellings to search for, with their names."""
    marks = "\n".join(map(redaction_mark, Secrets(dict(values)).names())) if values else ""
    found: dict[str, str] = {}
    for name, value in values:
        for part in _parts(value):
            for spelling in encodings_of(part):
                plain = _joined(spelling)[0]
                if plain not in marks and REDACTION_HEAD not in plain:
                    found.setdefault(plain, name)
    return tuple(found.items())


def _found(joined: str, spellings: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    for spelling, name in spellings:
        if spelling in joined:
            yield from ((start, start + len(spelling), name) for start in _occurrences(joined, spelling))
    yield from _found_keys(joined)
    yield from find_cut_secrets(joined, spellings)


def _found_keys(text: str) -> Iterator[tuple[int, int, str]]:
    for form in formats_in(text):
        yield from ((start, end, form.name) for start, end in form.find(text))


def _parts(value: str) -> Iterable[str]:
    """Yield a value, and each of its lines if it has several: a log may show a single line of a private key."""
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (one for one in lines if len(one) >= _MIN_LINE and not one.startswith("---") and " " not in one)


def _joined(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without line breaks inside words; and for each break its place and the length removed so far."""
    if "\n" not in text:
        return text, []
    pieces: list[str] = []
    breaks: list[tuple[int, int]] = []
    at = moved = 0
    for match in _BREAK.finditer(text):
        start = match.start() - (text[match.start() - 1] == "\r")
        pieces.append(text[at:start])
        at = match.end()
        breaks.append((start - moved, moved + at - start))
        moved = breaks[-1][1]
    return "".join((*pieces, text[at:])), breaks


def _before(breaks: list[tuple[int, int]], place: int) -> int:
    """Return the place in the original text of a place in the joined text."""
    number = bisect.bisect_right(breaks, place, key=lambda one: one[0])
    return place + (breaks[number - 1][1] if number else 0)


def _touches(marks: list[tuple[int, int]], start: int, end: int) -> bool:
    number = bisect.bisect_right(marks, start, key=lambda one: one[0])
    return (number > 0 and marks[number - 1][1] > start) or (number < len(marks) and marks[number][0] < end)


def _merged(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    out: list[tuple[int, int, str]] = []
    for start, end, name in spans:
        if out and start < out[-1][1]:
            first, last, label = out[-1]
            out[-1] = (first, max(last, end), label)
        else:
            out.append((start, end, name))
    return out
