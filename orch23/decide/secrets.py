"""Find the secrets of the environment in text that is sent or written, and redact them."""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from orch23.decide.secret_patterns import KEY_FORMATS, encodings_of

_LEAST: Final = 8
_CUT = re.compile(r"(?:\n|\\{1,2}n)?(?:\.{3}|\u2026)")
_RESUMED = re.compile(r"(?:\.{3}|\u2026)(?:\n|\\{1,2}n)?")


def find_cut_secrets(text: str, spellings: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Give the place of each beginning of a secret that ends in a cut, and of each end that a cut precedes.

    Fewer than 8 characters are no remains, nor is the head that all keys of a vendor have: prose may say `sk-ant-...`.
    """
    if "..." not in text and "\u2026" not in text:  # the search for these two is far quicker than that for a cut
        return
    ends = [match.start() for match in _CUT.finditer(text)]
    begins = [match.end() for match in _RESUMED.finditer(text)]
    around = _around(text, ends, max((len(spelling) for spelling, _ in spellings), default=0))
    for spelling, name in spellings:
        head, tail = _telling(spelling)
        if len(head) >= len(spelling) or not (head in around or tail in around):
            continue
        for start in _occurrences(text, head):
            number = bisect.bisect_left(ends, start + len(head))
            if number < len(ends) and spelling.startswith(text[start : min(ends[number], start + len(spelling) + 1)]):
                yield start, ends[number], name
        for start in _occurrences(text, tail):
            end = start + len(tail)
            number = bisect.bisect_right(begins, start) - 1
            if number >= 0 and spelling.endswith(text[max(begins[number], end - len(spelling) - 1) : end]):
                yield begins[number], end, name


def _around(text: str, cuts: Sequence[int], width: int) -> str:
    """Return what stands near the cuts: most texts have few of them, and most secrets are not there."""
    reach = width + _LEAST
    if 2 * reach * len(cuts) >= len(text):
        return text
    return "\n".join(text[max(0, cut - reach) : cut + reach] for cut in cuts)


@lru_cache(maxsize=32_768)
def _telling(spelling: str) -> tuple[str, str]:
    """Return the shortest beginning and end of a spelling that tell it from anything else."""
    vendors = max((len(form.head) for form in KEY_FORMATS if spelling.startswith(form.head)), default=0)
    return spelling[: vendors + _LEAST], spelling[-_LEAST:]


def _occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


_MIN_LENGTH: Final = 8
_MIN_DISTINCT: Final = 4
_WORD_LENGTH: Final = 12
_MIN_LINE: Final = 16

_NAMES = re.compile(
    r"(?:^|.*[_.-])(?:[A-Z0-9]*(?:PASSWORD|PASSWD|PASSPHRASE|SECRETS?|TOKEN|APIKEY|CREDENTIALS?)|[A-Z]*ACCESSKEY|KEYS?)"
    r"(?:[_.-].*)?|.+[_.-]P(?:WD|ASS)",
    re.DOTALL,
)
_NO_VALUE = re.compile(r".*[_.-](?:FILE|PATH|DIR|DIRECTORY|FOLDER|SOCK|SOCKET|URL|URI|TYPE|NAME|ALGORITHM|LENGTH|SIZE)")
_COMMON = frozenset(
    {
        "12345678", "123456789", "1234567890", "changeme!", "password1", "password123", "localhost:8080", "not-needed",
        "not_needed", "no-key-required", "sk-no-key-required", "no-key-needed",
    }
)  # fmt: skip
_PLACE = re.compile(
    r"(?:~|\.{1,2})?/(?:(?:bin|dev|etc|home|lib|media|mnt|opt|private|proc|root|run|srv|sys|tmp|usr|var|Users|app"
    r"|workspace)(?:/[\w.@+-]+)*/?)?|(?:~|\.{1,2})(?:/[\w.@+-]+)+/?"
)
_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@", re.IGNORECASE)

_ODD = re.compile(r"[^A-Za-z0-9_. -]")

# Encoded text is often wrapped: a break between two of its characters is read over.
_BREAK = re.compile(r"(?<=[A-Za-z0-9+/_=-])\r?\n[ \t]*+(?=[A-Za-z0-9+/_=-])")


class SecretFinding(Struct, frozen=True, order=True):
    """A secret in a text: its line, from 1, and what it is called (never its value)."""

    name: str
    line: int


class Secrets(Struct, frozen=True):
    """The values that must not leave the machine nor be written, by the name of the variable that holds each."""

    values: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Describe it without the values."""
        return "Secrets()"

    def names(self) -> tuple[str, ...]:
        """Return everything that a secret may be called, those of vendors' forms included."""
        return tuple(sorted({*self.values, *(form.name for form in KEY_FORMATS)}))

    def find(self, text: str) -> tuple[SecretFinding, ...]:
        """Return every secret in a text, and whatever has the form of a known vendor's key, in order."""
        found: dict[SecretFinding, None] = {}
        line, at = 1, 0
        for start, _, name in self._spans(text):
            line += text.count("\n", at, start)
            at = start
            found[SecretFinding(name, line)] = None
        return tuple(found)

    def may_contain(self, texts: Iterable[str]) -> bool:
        """Say whether some of these texts may have to be redacted: where not, `redact` changes none of them.

        All are searched as one, with NUL between them: no secret holds one, and it ends a word as an end of text does.
        """
        joined = _joined("\0".join(texts))[0]
        known = _known(tuple(sorted(self.values.items())))
        for spelling, _ in known.spellings:
            if spelling in joined:
                return True
        for form in KEY_FORMATS:
            if form.head in joined and form.may_match(joined):
                return True
        return any(True for _ in find_cut_secrets(joined, known.spellings))

    def redact(self, text: str) -> str:
        """Return a text without secrets, in whatever spelling they stand there. Doing it again changes nothing."""
        while spans := self._spans(text):  # what is left may be more visible than before: then there is a second round
            pieces: list[str] = []
            at = 0
            for start, end, name in spans:
                pieces += (text[at:start], redaction_mark(name))
                at = end
            text = "".join((*pieces, text[at:]))
        return text

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return the places of all secrets, merged where they overlap, but for what lies in a mark of ours."""
        known = _known(tuple(sorted(self.values.items())))
        joined, breaks = _joined(text)
        found = [
            (start, start + len(spelling), name)
            for spelling, name in known.spellings
            if spelling in joined
            for start in _places(joined, spelling)
        ]
        for form in KEY_FORMATS:
            if form.head in joined:
                found += ((start, end, form.name) for start, end in form.find(joined))
        found += find_cut_secrets(joined, known.spellings)
        if not found:
            return []
        there = [match.span() for match in re.finditer(known.marks, joined)]
        clear = sorted(span for span in found if not _touches(there, span[0], span[1]))
        return [(_before(breaks, start), _before(breaks, end - 1) + 1, name) for start, end, name in _merged(clear)]


def redaction_mark(name: str) -> str:
    """Return what stands in the place of a secret; safe inside of JSON, whatever the variable is called."""
    return f"[redacted {_ODD.sub('?', name)}]"


def secrets_from(environ: Mapping[str, str]) -> Secrets:
    """Return the secrets of an environment: the values of variables whose names say that they hold one.

    A value that would be found in any prose is none: shorter than 8 characters, one plain word, one of the usual
    placeholders, or a place in the file system. Of a URL with a password, the password is one, whatever it is called.
    """
    found: dict[str, str] = {}
    for name, value in environ.items():
        given = value.strip()
        match = _WITH_PASSWORD.match(given)
        if match is not None:
            given = match[1]
        elif not is_secret_name(name):
            continue
        if _is_telling(given):
            found[name] = given
    return Secrets(found)


def is_secret_name(name: str) -> bool:
    """Say whether the name of a variable says that it holds a secret."""
    upper = name.upper()
    return _NAMES.fullmatch(upper) is not None and _NO_VALUE.fullmatch(upper) is None


def _is_telling(value: str) -> bool:
    """Say whether a value is so much its own that a text which holds it must have it from here."""
    return not (
        len(value) < _MIN_LENGTH
        or len(set(value)) < _MIN_DISTINCT
        or (len(value) < _WORD_LENGTH and value.isalpha() and value[1:].islower())
        or value.lower() in _COMMON
        or _PLACE.fullmatch(value)
    )


# ---- where they stand --------------------------------------------------------------------------


class _Known(Struct, frozen=True):
    """What is looked for: spellings with their names, and the marks that are left alone."""

    spellings: tuple[tuple[str, str], ...]
    marks: str


@lru_cache(maxsize=8)
def _known(values: tuple[tuple[str, str], ...]) -> _Known:
    names = sorted({*(name for name, _ in values), *(form.name for form in KEY_FORMATS)})
    marks = "\n".join(redaction_mark(name) for name in names)
    found: dict[str, str] = {}
    for name, value in values:
        for part in _parts(value):
            for spelling in encodings_of(part):
                plain = _joined(spelling)[0]
                if plain not in marks and "[redacted " not in plain:
                    found.setdefault(plain, name)
    return _Known(tuple(found.items()), "|".join(re.escape(redaction_mark(name)) for name in names))


def _parts(value: str) -> Iterable[str]:
    """Give a value, and the lines of one that has several: a log may show a single one."""
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (one for one in lines if len(one) >= _MIN_LINE and not one.startswith("---") and " " not in one)


def _joined(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text without the breaks inside of words, and for each break its place there and what it moved."""
    if "\n" not in text:
        return text, []
    pieces: list[str] = []
    breaks: list[tuple[int, int]] = []
    at = moved = 0
    for match in _BREAK.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        breaks.append((match.start() - moved, moved + match.end() - match.start()))
        moved = breaks[-1][1]
    return "".join((*pieces, text[at:])), breaks


def _before(breaks: list[tuple[int, int]], place: int) -> int:
    """Return where a place of the joined text is in the text itself."""
    number = bisect.bisect_right(breaks, place, key=lambda one: one[0])
    return place + (breaks[number - 1][1] if number else 0)


def _places(text: str, spelling: str) -> Iterable[int]:
    at = text.find(spelling)
    while at >= 0:
        yield at
        at = text.find(spelling, at + 1)


def _touches(marks: list[tuple[int, int]], start: int, end: int) -> bool:
    number = bisect.bisect_right(marks, start, key=lambda one: one[0])
    return (number > 0 and marks[number - 1][1] > start) or (number < len(marks) and marks[number][0] < end)


def _merged(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    out: list[tuple[int, int, str]] = []
    for start, end, name in spans:
        if out and start < out[-1][1]:
            before = out[-1]
            out[-1] = (before[0], max(before[1], end), before[2])
        else:
            out.append((start, end, name))
    return out
