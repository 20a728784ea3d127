"""Parse YAML strictly into plain values, with the location of every node.

libyaml scans the text; the values are made here, from its events, without recursion, aliases and tags. The text may be
hostile: a nested alias would expand to gigabytes, and a tag would construct objects. Values are those that a reader
expects, without the surprises of YAML 1.1: `on`, `1:30`, `0o17` and `2024-01-01` are strings.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeAlias

from msgspec import Struct

from orch23.load.yaml_errors import (
    DATA_LIMITS,
    PIPELINE_LIMITS,
    QUOTE_EXPRESSION_HINT,
    TAB_REFUSED,
    Mark,
    TextLimits,
    location_at,
    syntax_error,
    tab_errors,
    text_error,
)
from orch23.model.diagnostic import Diagnostic, Location, Related
from orch23.model.digest import Json
from orch23.model.fields import path_below

MAX_YAML_DEPTH = 64
MAX_INTEGER = 2**63 - 1
_DEPTH_OF_LIBYAML = "exceeded maximum nesting depth"

# YAML 1.1 reads 010 as 8 and 1_000 as 1000; here both are strings.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None, "~": None, "": None}
# The stubs of PyYAML have no common type for events.
_Event: TypeAlias = Any


@cache
def _yaml() -> ModuleType:
    """Return PyYAML, which is imported with the first text: most commands after an edit read none."""
    return importlib.import_module("yaml")


_UPPER = 2


class NodeLocations(Mapping[str, Location]):
    """The locations of the nodes of a text, by path. Few are used, so a Location is made when it is looked up.

    `spans` has line, column and length of each.
    """

    __slots__ = ("_file", "spans")

    def __init__(self, file: str) -> None:
        """Create an empty mapping for a file."""
        self._file = file
        self.spans: dict[str, tuple[int, int, int]] = {}

    def __getitem__(self, path: str) -> Location:
        """Return the location of a node."""
        return Location(self._file, *self.spans[path])

    def __contains__(self, path: object) -> bool:
        """Return whether a node has a location of its own."""
        return path in self.spans

    def __iter__(self) -> Iterator[str]:
        """Yield the paths."""
        return iter(self.spans)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.spans)


class LazyLocations(Mapping[str, Location]):
    """The locations of the nodes of a valid text: those of its two upper levels are stored.

    They suffice for most messages. For a deeper one the text is parsed again, so that a stored pipeline does not need
    all of them.
    """

    __slots__ = ("_file", "_text", "_whole", "upper")

    def __init__(self, text: str, file: str, places: Mapping[str, Location]) -> None:
        """Set a text, its name, and the locations of all its nodes, or of those of the two upper levels."""
        self._text, self._file = text, file
        self.upper = {path: places[path] for path in places if path.count("/") < _UPPER}
        self._whole: Mapping[str, Location] | None = None

    def __getitem__(self, path: str) -> Location:
        """Return the location of a node."""
        return (self.upper if path.count("/") < _UPPER else self._read())[path]

    def __iter__(self) -> Iterator[str]:
        """Yield the paths."""
        return iter(self._read())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._read())

    def _read(self) -> Mapping[str, Location]:
        if self._whole is None:
            self._whole = parse_yaml(self._text, self._file, PIPELINE_LIMITS).positions
        return self._whole


class ParsedText(Struct, frozen=True):
    """A parsed text. Locations of values and of keys are found by a path such as `stages/code/outputs/0`."""

    tree: Json
    positions: Mapping[str, Location]
    key_positions: Mapping[str, Location]
    diagnostics: tuple[Diagnostic, ...] = ()
    text: str = ""

    def location_of(self, path: str, key: str | None = None) -> Location | None:
        """Return the location of a node, or of a key in it. The location of a mapping is its key.

        A node without a location has the location of the nearest node above it.
        """
        if key is not None and (at_key := self.key_positions.get(path_below(path, key))) is not None:
            return at_key
        while path and path not in self.positions:
            path = path.rpartition("/")[0]
        return self.positions.get(path)

    def text_at(self, place: Location) -> str:
        """Return the text at a place, in its line."""
        start = place.column - 1
        return self.text.split("\n")[place.line - 1][start : start + place.length]


def parse_yaml(text: str, file: str, caps: TextLimits = DATA_LIMITS) -> ParsedText:
    """Parse one YAML document. Errors of the text are not raised, but in `diagnostics`.

    After a syntax error `tree` is None. If only rules were broken (a duplicate key, an anchor) it is complete, so that
    all other errors can be reported at the same time.
    """
    text = text.removeprefix("\ufeff")
    refused = text_error(text, file, caps)
    if refused is not None:
        return ParsedText(None, {}, {}, (refused,))
    # Not `yaml.safe_load`, which gives no locations and takes the last of two equal keys.
    building = _Building(text, file, caps)
    try:
        for event in _events(text):
            act = _TAKING.get(type(event).__name__)
            if act is not None and not act(building, event):
                break
    except _yaml().MarkedYAMLError as error:
        if _DEPTH_OF_LIBYAML in (error.problem or "") and error.problem_mark is not None:
            # libyaml 0.2.6 scans ahead and stops at 1,000 levels, before it gives any event. The text before that
            # position is deeper than our own limit, which then reports the location.
            return parse_yaml(text[: error.problem_mark.index], file, caps)
        refused = syntax_error(error, text, file)
        tabs = tab_errors(text, file, partial(_line_of_tab, file)) if refused.message == TAB_REFUSED else ()
        building.diagnostics += tuple(tabs) or (refused,)
        building.tree = None
    return ParsedText(building.tree, building.positions, building.key_positions, tuple(building.diagnostics), text)


def _line_of_tab(file: str, text: str) -> int | None:
    """Return the line, from 0, where a text is refused because of a tab, else None."""
    try:
        list(_events(text))
    except _yaml().MarkedYAMLError as error:
        refused = syntax_error(error, text, file)
        return refused.location.line - 1 if refused.message == TAB_REFUSED and refused.location else None
    return None


def parse_yaml_scalar(text: str) -> Json:
    """Parse a text as one plain scalar of YAML: `3`, `true`, `null`; any other text is itself."""
    value = _plain(text)
    return text if isinstance(value, _OutOfRange) else value


def _events(text: str) -> Iterator[_Event]:
    yaml = _yaml()
    # The parser in C is much faster, but some installations of PyYAML do not have it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


class _OutOfRange(Struct, frozen=True):
    """A number that not every reader of YAML and JSON keeps exactly."""

    message: str


def _plain(text: str) -> "Json | _OutOfRange":
    if text in _WORDS:
        return _WORDS[text]
    if not text[-1].isascii() or text[0] not in "-0123456789":
        return text
    if _INTEGER.fullmatch(text):
        # The length is checked first: int() refuses texts of over 4,300 digits with an exception.
        if len(text) > 20 or abs(int(text)) > MAX_INTEGER:  # noqa: PLR2004 - the digits of 2**64, and a sign
            return _OutOfRange("the number does not fit in 64 bits")
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if abs(value) != float("inf") else _OutOfRange("the number is too large")
    return text


class _Frame(Struct):
    """A list or mapping that is being filled. `key` is the key whose value comes next; with `skip` it was refused."""

    path: str
    value: list[Json] | dict[str, Json]
    start: Mark
    flow: bool
    key: str | None = None
    skip: bool = False


class _Building:
    """The state of one pass over the events of a document. A method returns False if parsing must stop."""

    def __init__(self, text: str, file: str, caps: TextLimits) -> None:
        self.tree: Json = None
        self.positions = NodeLocations(file)
        self.key_positions = NodeLocations(file)
        self.diagnostics: list[Diagnostic] = []
        self._text = text
        self._file = file
        self._caps = caps
        self._last_line = text.count("\n")
        self._frames: list[_Frame] = []
        self._nodes = 0
        self._paths = 0
        self._documents = 0

    def _document(self, event: _Event) -> bool:
        self._documents += 1
        if self._documents == 1:
            return True
        self._report("E804", "the file holds a second document", event, "keep one document a file; remove the `---`")
        return False

    def _scalar(self, event: _Event) -> bool:
        self._refuse_properties(event)
        plain = _plain(event.value) if event.implicit[0] else event.value
        if isinstance(plain, _OutOfRange):
            self._report("E807", plain.message, event, "put it in quotes to keep it as text")
        value: Json = event.value if isinstance(plain, _OutOfRange) else plain
        frame = self._awaiting_key()
        if frame is not None:
            self._key(frame, event, value)
            return True
        self._add(value, event)
        return self._within_limits(event)

    def _awaiting_key(self) -> _Frame | None:
        frame = self._frames[-1] if self._frames else None
        return frame if frame is not None and frame.key is None and isinstance(frame.value, dict) else None

    def _key(self, frame: _Frame, event: _Event, value: Json) -> None:
        """Take the next key of a mapping; a refused one still gets its value read."""
        name = value if isinstance(value, str) else str(event.value)
        path = path_below(frame.path, name)
        frame.key, frame.skip = name, self._is_refused(frame, event, value, path)
        if path not in self.key_positions and not frame.skip:
            self.key_positions.spans[path] = self._span(event.start_mark, event.end_mark)

    def _is_refused(self, frame: _Frame, event: _Event, value: Json, path: str) -> bool:
        """Report what is wrong with a key; return whether its value is left out."""
        if event.value == "<<" and event.implicit[0]:
            hint = "write the keys out, or put what stages share under `defaults`"
            self._report("E804", "merge keys (`<<`) are not allowed", event, hint)
            return True
        if not isinstance(value, str):
            self._report("E806", f"the key `{event.value}` is not a string", event, f'write "{event.value}" in quotes')
            return False
        # YAML readers differ in which of the two values they use.
        if isinstance(frame.value, dict) and value in frame.value:
            first = Related("first here", self.key_positions.get(path))
            self._report("E803", f"the key `{value}` appears twice", event, "remove one of the two", first)
            return True
        return False

    def _start(self, event: _Event) -> bool:
        self._refuse_properties(event)
        if self._awaiting_key() is not None:
            # `{` begins a mapping, but an author who writes it here means an expression.
            line = self._text.split("\n", event.start_mark.line + 1)[event.start_mark.line]
            is_brace = line.startswith("{", event.start_mark.column)
            hint = QUOTE_EXPRESSION_HINT if is_brace else "a key is one word or a quoted string"
            return self._stop("E806", "a key may not be a list or a mapping", event, hint)
        value: list[Json] | dict[str, Json] = {} if isinstance(event, _yaml().MappingStartEvent) else []
        path = self._add(value, event)
        self._frames.append(_Frame(path, value, event.start_mark, bool(event.flow_style)))
        if len(self._frames) > MAX_YAML_DEPTH:
            return self._stop("E805", f"the nesting is over {MAX_YAML_DEPTH} levels deep", event, "flatten it")
        return self._within_limits(event)

    def _end(self, event: _Event) -> bool:
        frame = self._frames.pop()
        if frame.flow and self.positions.spans.get(frame.path) == self._span(frame.start, frame.start):
            self.positions.spans[frame.path] = self._span(frame.start, event.end_mark)
        return True

    # With an alias, a file means something else than it shows, and a nested one can expand to gigabytes.
    def _alias(self, event: _Event) -> bool:
        name = f"*{event.anchor}"
        hint = f'write the value out; if a pattern is meant, put it in quotes: "{name}"'
        self._report("E804", f"aliases (`{name}`) are not allowed", event, hint)
        frame = self._awaiting_key()
        if frame is not None:
            frame.key, frame.skip = name, True
        else:
            self._add(None, event)
        return True

    def _add(self, value: Json, event: _Event) -> str:
        scalar = not isinstance(value, (dict, list))
        span = self._span(event.start_mark, event.end_mark if scalar else None)
        if not self._frames:
            self.tree = value
            self.positions.spans[""] = span
            return ""
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            path = path_below(frame.path, str(len(frame.value)))
            frame.value.append(value)
            self._paths += len(path)
            self.positions.spans[path] = span
            return path
        name, skip = frame.key or "", frame.skip
        path = path_below(frame.path, name)
        self._paths += len(path)
        frame.key, frame.skip = None, False
        if skip:
            return f"{path}/~"  # a refused value is not in the tree
        frame.value[name] = value
        key = self.key_positions.spans.get(path) if value is None or isinstance(value, dict) else None
        self.positions.spans[path] = key or span
        return path

    def _refuse_properties(self, event: _Event) -> None:
        if event.anchor is not None:
            hint = "write the value out where it is needed, or make it a var"
            self._report("E804", f"anchors (`&{event.anchor}`) are not allowed", event, hint)
        if event.tag is not None:
            self._report("E804", "tags (`!…`) are not allowed", event, "remove the tag; quotes make a string")

    def _within_limits(self, event: _Event) -> bool:
        self._nodes += 1
        if self._nodes > self._caps.nodes:
            return self._stop("E805", f"the file holds over {self._caps.nodes} values", event, "split it")
        if self._paths > self._caps.paths:
            message = f"the keys are too long: the paths of all values have over {self._caps.paths} characters"
            return self._stop("E805", message, event, "shorten the keys that have many values below them")
        return True

    def _stop(self, code: str, message: str, event: _Event, hint: str) -> bool:
        self._report(code, message, event, hint)
        self.tree = None
        return False

    def _report(self, code: str, message: str, event: _Event, hint: str, *related: Related) -> None:
        place = Location(self._file, *self._span(event.start_mark, event.end_mark))
        self.diagnostics.append(Diagnostic(code, message, place, hint, related=related))

    def _span(self, start: Mark, end: Mark) -> tuple[int, int, int]:
        line, column = start.line, start.column
        if line > self._last_line:  # libyaml sees a line break at the end of every text
            place = location_at(self._file, self._text, len(self._text))
            return place.line, place.column, place.length
        length = end.column - column if end is not None and end.line == line else 1
        return line + 1, column + 1, max(1, length)


# By the names of the classes, so that PyYAML is imported with the first text. A table of bound methods in the object
# would be a reference cycle: the object, with all locations of a text, would stay in memory until the garbage collector
# runs, which is seldom (ADR 18).
_TAKING: Mapping[str, Callable[[_Building, _Event], bool]] = {
    "ScalarEvent": _Building._scalar,  # noqa: SLF001 - of this module
    "MappingStartEvent": _Building._start,  # noqa: SLF001 - as above
    "SequenceStartEvent": _Building._start,  # noqa: SLF001 - as above
    "MappingEndEvent": _Building._end,  # noqa: SLF001 - as above
    "SequenceEndEvent": _Building._end,  # noqa: SLF001 - as above
    "AliasEvent": _Building._alias,  # noqa: SLF001 - as above
    "DocumentStartEvent": _Building._document,  # noqa: SLF001 - as above
}
