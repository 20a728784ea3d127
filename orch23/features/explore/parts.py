"""Take the parts of files that a model asks for, search files, and find parts again in files that were edited."""

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from orch23.features.explore.repo_map import RepoMap
from orch23.model.diagnostic import nearest_names, question
from orch23.model.patterns import lazy_pattern
from orch23.resolve.text_slices import SliceError, TextPart, text_part

_RANGE = lazy_pattern(r"L?([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")
_COLON_RANGE = lazy_pattern(r"(.+?):L?([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")
_CONTEXT: Final = 8  # lines before and after a match outside of a short definition
_LONGEST_DEFINITION: Final = 60
_MOST_MATCHES: Final = 12  # places of one search that are shown
_MOST_COUNTED: Final = 1_000
_REGEX_MEMORY: Final = 1 << 20


class Part(Struct, frozen=True):
    """A part of a file that a model is shown: all of it without a selector, else these lines, from 0."""

    path: str
    selector: str
    start: int
    end: int

    @property
    def place(self) -> str:
        """The path with the selector."""
        return f"{self.path}#{self.selector}" if self.selector else self.path

    def covers(self, other: "Part") -> bool:
        """Return whether it has all lines of another part."""
        return self.path == other.path and self.start <= other.start and other.end <= self.end


def split_place(place: str) -> tuple[str, str]:
    """Return the path and the selector of a place; `PATH:10-40` is a range of lines, too."""
    place = place.removeprefix("./")
    if "#" in place:
        path, _, selector = place.partition("#")
        return path.strip(), selector.strip()
    lines = _COLON_RANGE.fullmatch(place)
    return (lines[1], f"L{lines[2]}-{lines[3] or lines[2]}") if lines else (place.strip(), "")


def find_part(text: str, path: str, selector: str, known: RepoMap, most: int) -> Part:
    """Return a part of a text, cut after a line if it has more than `most` characters.

    Raises:
        SliceError: there is no such part, or its first line is too long.
    """
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    if lines := _RANGE.fullmatch(selector):
        first, last = sorted((int(lines[1]), int(lines[2] or lines[1])))
        if first > total:
            message = f"the file has {total:,} lines"
            raise SliceError(message, f"the last line is `L{total}`")
        found = text_part(text, path, f"L{first}-{min(last, total)}")
        selector = f"L{first}-{min(last, total)}"
    elif selector:
        found, selector = _named(text, path, selector, known)
    else:
        found = TextPart(text, 0, total)
    if len(found.text) <= most:
        return Part(path, selector, found.start, found.end)
    end, size = found.start, 0
    for line in text.split("\n")[found.start : found.end]:
        size += len(line) + 1
        if size > most:
            break
        end += 1
    if end == found.start:
        message = "it is longer than what can still be shown"
        raise SliceError(message, "name fewer or smaller parts")
    return Part(path, f"L{found.start + 1}-{end}", found.start, end)


def _named(text: str, path: str, selector: str, known: RepoMap) -> tuple[TextPart, str]:
    """Return a definition or a section, and its selector: lines, for a definition that only the map knows."""
    try:
        return text_part(text, path, selector), selector
    except SliceError as error:
        name = selector.rsplit(maxsplit=1)[-1].removesuffix("()")
        of_file = [one.definition for one in known.ranked if one.path == path and one.definition.kind]
        named = [one for one in of_file if name in (one.name, one.name.rpartition(".")[2])]
        if len(named) == 1:
            lines = f"L{named[0].first}-{named[0].last}"
            return text_part(text, path, lines), lines
        places = [f"L{one.first}-{one.last}" for one in named] or nearest_names(name, [one.name for one in of_file])
        raise SliceError(str(error), question(places) if places else error.hint) from None


class Matches(Struct, frozen=True):
    """The places of a search: parts of files, and how many lines matched in all."""

    parts: tuple[Part, ...]
    lines: int


def search(texts: Mapping[str, str], query: str, known: RepoMap) -> Matches:
    """Search the lines of files for a text, or for a regular expression between slashes, in the order of the map.

    A match is shown with the definition that it is in, or some lines around it. Upper and lower case count only if a
    line matches with them.

    Raises:
        ValueError: it is not a regular expression.
    """
    import re2  # noqa: PLC0415 - only for searches

    is_regex = len(query) > 2 and query.startswith("/") and query.endswith("/")  # noqa: PLR2004 - two slashes
    pattern = query[1:-1] if is_regex else re2.escape(query)
    paths = dict.fromkeys((*(one for one in known.files if one in texts), *texts))
    lines = _matching_lines(texts, paths, pattern, is_exact=True) or _matching_lines(
        texts, paths, pattern, is_exact=False
    )
    parts: list[Part] = []
    for path, number in lines:
        if len(parts) >= _MOST_MATCHES:
            break
        part = _around(path, number, texts[path], known)
        if not any(one.covers(part) for one in parts):
            parts.append(part)
    return Matches(tuple(parts), len(lines))


def _matching_lines(
    texts: Mapping[str, str], paths: Iterable[str], pattern: str, *, is_exact: bool
) -> list[tuple[str, int]]:
    """Return path and number, from 0, of the first lines that a pattern matches."""
    import re2  # noqa: PLC0415 - only for searches

    options = re2.Options()
    options.max_mem, options.log_errors, options.case_sensitive = _REGEX_MEMORY, False, is_exact
    try:
        compiled = re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        said = error.args[0]
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(error)) from None
    matching = (path for path in paths if compiled.search(texts[path]) is not None)
    lines = ((path, number, line) for path in matching for number, line in enumerate(_lines(texts[path])))
    found = ((path, number) for path, number, line in lines if compiled.search(line) is not None)
    return list(islice(found, _MOST_COUNTED))


def _lines(text: str) -> list[str]:
    # What follows the last line break is not a line: no part can show it.
    return text.removesuffix("\n").split("\n") if text else []


def _around(path: str, number: int, text: str, known: RepoMap) -> Part:
    spans = [one.definition for one in known.ranked if one.path == path and one.definition.kind]
    inside = [one for one in spans if one.first <= number + 1 <= one.last]
    small = [one for one in inside if one.last - one.first < _LONGEST_DEFINITION]
    if small:
        widest = max(small, key=lambda one: one.last - one.first)
        start, end = widest.first - 1, widest.last
    else:
        start, end = max(0, number - _CONTEXT), number + _CONTEXT + 1
    total = text.count("\n") + (not text.endswith("\n"))
    return Part(path, f"L{start + 1}-{min(end, total)}", start, min(end, total))


def moved_lines(before: str, after: str, start: int, end: int) -> tuple[int, int]:
    """Return where some lines of a text, from 0 and to the number after the last one, are in its edited version."""
    old, new = before.split("\n"), after.split("\n")
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    tail = next((n for n in range(least - head) if old[-1 - n] != new[-1 - n]), least - head)
    # Without what is the same at both ends: the comparison takes long for large files.
    steps = difflib.SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    found = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in steps.get_opcodes()]
    same = ("equal", len(old) - tail, len(old), len(new) - tail, len(new))
    first, last, is_found = start, end, False
    for tag, a, b, c, d in (("equal", 0, head, 0, head), *found, same):
        if not is_found and (a <= start < b or a == b == start):
            first, is_found = c + (start - a if tag == "equal" else 0), True
        if a < end <= b or (a == b == end and tag != "equal"):
            last = c + end - a if tag == "equal" else d
    return first, max(first, last)
