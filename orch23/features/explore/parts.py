"""Take the parts of files that a model asks for; search files."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from orch23.features.explore.repo_map import RepoMap
from orch23.model.diagnostic import nearest_names, question
from orch23.model.digest import Json
from orch23.model.patterns import lazy_pattern
from orch23.proposal.response_parser import parse_json_response, without_thoughts
from orch23.resolve.text_slices import SliceError, TextPart, text_part

_LISTS: Final = ("show", "search")
_MOST_ENTRIES: Final = 40
_LONGEST_ENTRY: Final = 500
FORM: Final = '{"show": ["src/shop.py#def total", "src/cart.js#L10-40", "README.md"], "search": ["round", "/_sum$/"]}'
_TEXTS: Mapping[str, Json] = {"type": "array", "items": {"type": "string"}}
EXPLORE_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "show": {**_TEXTS, "description": "Files or parts of files to see: PATH, PATH#L10-40, or PATH#def NAME."},
        "search": {**_TEXTS, "description": "Texts to search for, or regular expressions between slashes."},
    },
    "required": list(_LISTS),
    "additionalProperties": False,
}

_PLACE = lazy_pattern(r"(?:\./)?(.+?)\s*(?:#\s*(.*)|:(L?[0-9]+(?:-L?[0-9]+)?))?")  # `PATH:10-40` is lines, too
_RANGE = lazy_pattern(r"L?([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")
_CONTEXT: Final = 8  # lines before and after a match outside of a short definition
_LONGEST_DEFINITION: Final = 60
_MOST_MATCHES: Final = 12  # places of one search that are shown


class Part(Struct, frozen=True):
    """A part of a file that a model is shown: all of it without a selector, else these lines, from 0."""

    path: str
    selector: str
    start: int
    end: int
    text: str

    def covers(self, other: "Part") -> bool:
        """Return whether it has all lines of another part."""
        return self.path == other.path and self.start <= other.start and other.end <= self.end


def read_answer(text: str) -> tuple[list[str], list[str]]:
    """Return the places and the searches of a response. Without thoughts and a code fence, it is one JSON object.

    Raises:
        ValueError: it has another form.
    """
    value, problem = parse_json_response(without_thoughts(text.removeprefix("\ufeff")))
    if isinstance(value, list | tuple):  # of places: weak models leave the object out
        value = {"show": value}
    reason = problem.message if problem is not None else "the response is not an object with `show` and `search`"
    lists = []
    if problem is None and isinstance(value, Mapping) and set(value) & set(_LISTS):
        for name in _LISTS:
            given = value.get(name) or ()
            texts = [given] if isinstance(given, str) else given
            if isinstance(texts, list | tuple) and all(isinstance(one, str) for one in texts):
                # Of an entry with several lines the first: the others would be lines of their own on a screen.
                entries = (one.splitlines()[0][:_LONGEST_ENTRY] for text in texts if (one := str(text).strip()))
                lists.append(list(dict.fromkeys(entries))[:_MOST_ENTRIES])
        reason = "`show` or `search` is not a list of texts"
    if len(lists) < len(_LISTS):
        message = f"{reason}; the form is {FORM}"
        raise ValueError(message)
    return lists[0], lists[1]


def split_place(place: str) -> tuple[str, str]:
    """Return the path and the selector of a place."""
    found = _PLACE.fullmatch(place)
    return (found[1], found[2] or found[3] or "") if found else (place, "")


def find_part(text: str, path: str, selector: str, known: RepoMap, most: int) -> Part:
    """Return a part of a text, cut after a line if it has more than `most` characters.

    Raises:
        SliceError: there is no such part, or its first line is too long.
    """
    total = text.count("\n") + (not text.endswith("\n") and bool(text))
    found = TextPart(text, 0, total)
    if lines := _RANGE.fullmatch(selector):
        first, last = sorted((int(lines[1]), int(lines[2] or lines[1])))
        selector = f"L{first}-{max(first, min(last, total))}"
        found = text_part(text, path, selector)
    elif selector:
        try:
            found = text_part(text, path, selector)
        except SliceError as error:
            return find_part(text, path, _lines_of_name(selector, path, known, error), known, most)
    if len(found.text) <= most:
        return Part(path, selector, found.start, found.end, found.text)
    end = found.start + found.text.count("\n", 0, max(most, 0))
    if end == found.start:
        message = "it is longer than what can still be shown"
        raise SliceError(message, "name fewer or smaller parts")
    selector = f"L{found.start + 1}-{end}"
    return Part(path, selector, found.start, end, text_part(text, path, selector).text)


def _lines_of_name(selector: str, path: str, known: RepoMap, error: SliceError) -> str:
    """Return the lines of a definition that only the map knows, or raise the error with what is similar."""
    name = selector.rsplit(maxsplit=1)[-1].removesuffix("()")
    named = [one for one in known.files[path] if name in (one.name, one.name.rpartition(".")[2])]
    places = [f"L{one.first}-{one.last}" for one in named]
    if len(places) == 1:
        return places[0]
    near = places or nearest_names(name, [one.name for one in known.files[path]])
    raise SliceError(str(error), question(near) if near else error.hint) from None


def search(texts: Mapping[str, str], query: str, known: RepoMap) -> list[Part]:
    """Search the lines of files for a text, or for a regular expression between slashes, in the order of the map.

    A match is shown with the definition that it is in, or some lines around it. Upper and lower case count only if a
    line matches with them.

    Raises:
        ValueError: it is not a regular expression, or one that is too large.
    """
    from orch23.checks.schema_validator import compile_regex  # noqa: PLC0415 - only for searches

    is_regex = len(query) > 2 and query.startswith("/") and query.endswith("/")  # noqa: PLR2004 - two slashes
    parts: list[Part] = []
    for flags in ("m", "mi"):
        has_match = compile_regex(f"(?{flags}){query[1:-1] if is_regex else re.escape(query)}")
        for path in known.files if not parts else ():
            lines = texts[path].split("\n") if has_match(texts[path]) else []
            small = [one for one in known.files[path] if lines and one.last - one.first < _LONGEST_DEFINITION]
            total = len(lines) - (lines[-1:] == [""])
            for number in (number for number, line in enumerate(lines[:total]) if has_match(line)):
                if parts and parts[-1].path == path and number < parts[-1].end:
                    continue
                inside = [(one.first - 1, one.last) for one in small if one.first <= number + 1 <= one.last]
                around = (max(0, number - _CONTEXT), number + _CONTEXT + 1)
                start, end = max(inside, key=lambda one: one[1] - one[0], default=around)
                end = min(end, total)
                selector = f"L{start + 1}-{end}"
                parts.append(Part(path, selector, start, end, text_part(texts[path], path, selector).text))
                if len(parts) == _MOST_MATCHES:
                    return parts
    return parts
