"""A draft-07 validator whose time is bounded: patterns by RE2, long lists by hashing.

Python's own engine goes back and tries again: `^(a+)+$` takes a longer time than there is for forty characters that a
model may write. Here all ways are followed at once, and which they are is remembered. Look-arounds and references back
cannot be followed so: a pattern of these is taken where the text is short and nothing in it repeats a repetition.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from re import _constants as signs  # type: ignore[attr-defined]  # in Python since 3.11, not in the stubs
from re import _parser as parser  # type: ignore[attr-defined]  # likewise
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from jsonschema import Draft7Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from orch23.model.digest import Json

MAX_STATES = 10_000
MAX_KNOWN = 20_000
MAX_TEXT = 2_000  # of what Python's own engine is given

_Tree: TypeAlias = Any
_Test: TypeAlias = Callable[[str], bool]
_States: TypeAlias = frozenset[int]
_FOUND = -1


class PatternError(ValueError):
    """A pattern that is none, or that no bound on its time is known for."""


@functools.lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a text holds a match.

    Raises:
        PatternError: the pattern is none, or too large, or cannot be searched for in a bounded time.

    """
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        message = f"`{pattern[:80]}` is no regular expression ({error})"
        raise PatternError(message) from None
    try:
        automaton = _Automaton(tree)
    except _BeyondError:
        return _short_search(pattern, tree)
    return lambda text: _Way(automaton).search(text)


class _BeyondError(Exception):
    """What no automaton can say."""


def _short_search(pattern: str, tree: _Tree) -> Callable[[str], bool]:
    """Return a search by Python's own engine, for short texts."""
    if _nested(tree, repeated=False):
        message = f"`{pattern[:80]}` repeats what repeats, or is too large; with look-arounds nothing bounds its time"
        raise PatternError(message)
    compiled = re.compile(pattern)

    def search(text: str) -> bool:
        if len(text) > MAX_TEXT:
            message = (
                f"`{pattern[:80]}` has look-arounds or is too large; such patterns are searched for in "
                f"{MAX_TEXT} characters at most"
            )
            raise PatternError(message)
        return compiled.search(text) is not None

    return search


def _nested(tree: Iterable[_Tree], *, repeated: bool) -> bool:
    """Say whether a repetition stands in a repetition, or a reference back beside one."""
    for sign, value in tree:
        repeats = sign in (signs.MAX_REPEAT, signs.MIN_REPEAT, signs.POSSESSIVE_REPEAT) and value[1] > 1
        if (repeats and repeated) or sign in (signs.GROUPREF, signs.GROUPREF_EXISTS):
            return True
        if any(_nested(part, repeated=repeated or repeats) for part in _parts(value)):
            return True
    return False


def _parts(value: _Tree) -> list[_Tree]:
    """Return the patterns inside of a node's value."""
    if isinstance(value, parser.SubPattern):
        return [value]
    if isinstance(value, list | tuple):
        return [part for one in value for part in _parts(one)]
    return []


class _Automaton:
    """Numbered states; each has tests that lead on over a character, and steps that lead on over none."""

    def __init__(self, tree: _Tree) -> None:
        self.tests: list[list[tuple[_Test, int]]] = []
        self.steps: list[list[tuple[str, int]]] = []
        if tree.state.flags & ~signs.SRE_FLAG_UNICODE:
            raise _BeyondError
        start = self._state()
        self.start, self.end = frozenset({start}), self._sequence(tree, start)

    def _state(self) -> int:
        if len(self.tests) >= MAX_STATES:
            raise _BeyondError
        self.tests.append([])
        self.steps.append([])
        return len(self.tests) - 1

    def _sequence(self, tree: Iterable[_Tree], at: int) -> int:
        for sign, value in tree:
            at = self._node(sign, value, at)
        return at

    def _node(self, sign: _Tree, value: _Tree, at: int) -> int:
        match sign:
            case signs.LITERAL | signs.NOT_LITERAL | signs.ANY | signs.IN:
                after = self._state()
                self.tests[at].append((_test(sign, value), after))
                return after
            case signs.SUBPATTERN:
                if value[1] or value[2]:
                    raise _BeyondError
                return self._sequence(value[3], at)
            case signs.BRANCH:
                after = self._state()
                for branch in value[1]:
                    self.steps[self._sequence(branch, at)].append(("", after))
                return after
            case signs.MAX_REPEAT | signs.MIN_REPEAT:
                return self._repeat(value, at)
            case signs.AT:
                after = self._state()
                self.steps[at].append((str(value), after))
                return after
            case _:
                raise _BeyondError

    def _repeat(self, value: _Tree, at: int) -> int:
        least, most, tree = value
        for _ in range(least):
            at = self._sequence(tree, at)
        if most is signs.MAXREPEAT:
            loop, after = self._state(), self._state()
            self.steps[at].append(("", loop))
            self.steps[loop].append(("", after))
            self.steps[self._sequence(tree, loop)].append(("", loop))
            return after
        after = self._state()
        for _ in range(most - least):
            self.steps[at].append(("", after))
            at = self._sequence(tree, at)
        self.steps[at].append(("", after))
        return after


class _Way:
    """One way through one text: which states may be reached, and what is known of the next step from there."""

    def __init__(self, automaton: _Automaton) -> None:
        self._automaton = automaton
        self._known: dict[tuple[int, str], int] = {}
        self._numbers: dict[tuple[_States, str], int] = {}
        self._places: list[tuple[_States, str]] = []

    def search(self, text: str) -> bool:
        """Say whether the text holds a match."""
        known, at, last = self._known, self._number(frozenset(), ""), len(text) - 1
        for place, character in enumerate(text):
            key = (at, "end" if place == last and character == "\n" else character)
            if key not in known:
                at = self._forget(at)
                key = (at, key[1])
                known[key] = self._next(at, character, nearly=key[1] == "end")
            at = known[key]
            if at == _FOUND:
                return True
        return self._next(at, "", nearly=True) == _FOUND

    def _next(self, at: int, character: str, *, nearly: bool) -> int:
        """Return where a character leads to from some states with the character before it."""
        states, before = self._places[at]
        closed = self._closed(states | self._automaton.start, _signs(before, character, last=nearly))
        if self._automaton.end in closed:
            return _FOUND
        moved = frozenset(
            after for one in closed for test, after in self._automaton.tests[one] if character and test(character)
        )
        return self._number(moved, "a" if _word(character) else " ")

    def _closed(self, states: _States, signs_here: frozenset[str]) -> _States:
        """Return what is reached without a character, where these signs hold."""
        reached, open_ = set(states), list(states)
        while open_:
            for sign, after in self._automaton.steps[open_.pop()]:
                if after not in reached and (not sign or sign in signs_here):
                    reached.add(after)
                    open_.append(after)
        return frozenset(reached)

    def _number(self, states: _States, before: str) -> int:
        """Return the number of some states after a character: none, one of a word, or another."""
        place = (states, before)
        if place not in self._numbers:
            self._numbers[place] = len(self._places)
            self._places.append(place)
        return self._numbers[place]

    def _forget(self, at: int) -> int:
        """Forget what is known where it has become too much, all but a place; return its number."""
        if len(self._known) < MAX_KNOWN:
            return at
        place = self._places[at]
        self._known.clear()
        self._numbers.clear()
        self._places.clear()
        return self._number(*place)


def _signs(before: str, after: str, *, last: bool) -> frozenset[str]:
    """Return the names of all that holds between two characters; `last` is before a newline at the end, too."""
    found = {"AT_BOUNDARY" if _word(before) != _word(after) else "AT_NON_BOUNDARY"}
    found |= set() if before else {"AT_BEGINNING", "AT_BEGINNING_STRING"}
    found |= {"AT_END"} if last else set()
    found |= set() if after else {"AT_END_STRING"}
    return frozenset(found)


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _test(sign: _Tree, value: _Tree) -> _Test:
    match sign:
        case signs.LITERAL:
            return chr(value).__eq__
        case signs.NOT_LITERAL:
            return chr(value).__ne__
        case signs.ANY:
            return "\n".__ne__
        case _:
            return _set(value)


def _set(members: list[_Tree]) -> _Test:
    negated = bool(members) and members[0][0] is signs.NEGATE
    tests = [_member(sign, value) for sign, value in members if sign is not signs.NEGATE]
    return lambda character: any(test(character) for test in tests) is not negated


def _member(sign: _Tree, value: _Tree) -> _Test:
    match sign:
        case signs.LITERAL:
            return chr(value).__eq__
        case signs.RANGE:
            low, high = value
            return lambda character: low <= ord(character) <= high
        case signs.CATEGORY:
            return _CATEGORIES[str(value)]
        case _:
            raise _BeyondError


_CATEGORIES: dict[str, _Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda character: not character.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda character: not character.isspace(),
    "CATEGORY_WORD": _word,
    "CATEGORY_NOT_WORD": lambda character: not _word(character),
}


def undeclared_keys(instance: Mapping[str, object], schema: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object that a schema names neither by themselves nor by a pattern."""
    known = schema.get("properties", {})
    searches = [compile_regex(pattern) for pattern in schema.get("patternProperties", {})]
    return [key for key in instance if key not in known and not any(search(key) for search in searches)]


# jsonschema's values are whatever a JSON document holds; nothing narrower is true of them.
_Value: TypeAlias = Any
_DATA = frozenset({"const", "enum", "default", "examples"})  # what stands below these is no schema
_SHOWN = 200
_NOTHING = object()
# An empty registry: without it a reference to elsewhere would be fetched over the network.
_NO_OTHER_FILES: Registry[Any] = Registry()


def make_validator(schema: Mapping[str, Json] | bool) -> Draft7Validator:  # noqa: FBT001 - a schema may be true or false
    """Return the validator of a schema, which may point inside itself only.

    Its walk raises `PatternError` for a pattern that cannot be searched for in a bounded time.
    """
    made: Draft7Validator = _BOUNDED(schema, registry=_NO_OTHER_FILES)
    return made


def schema_fault(schema: Json) -> tuple[str, str] | None:
    """Return what makes a value no schema of draft 7 that can be used, and where in it; None if it can."""
    try:
        Draft7Validator.check_schema(cast("Mapping[str, Any]", schema))
    except SchemaError as error:
        return f"this is no JSON schema of draft 7: {_first_line(error.message)}", _pointer(error.absolute_path)
    except RecursionError:
        return "the schema is nested too deeply", ""
    return next(_faults(schema, schema, ""), None)


def _faults(root: Json, value: Json, at: str) -> Iterator[tuple[str, str]]:
    """Give each reference that does not lead to a place inside, and each pattern that has no bound."""
    if isinstance(value, Mapping):
        target, pattern, patterns = value.get("$ref"), value.get("pattern"), value.get("patternProperties")
        if isinstance(target, str) and not _leads_inside(root, target):
            yield f"`$ref` leads to `{_first_line(target)}`, which is not in it", f"{at}/$ref"
        elif isinstance(target, str) and _comes_back(root, target):
            yield f"`$ref` leads to `{_first_line(target)}`, and from there back to itself", f"{at}/$ref"
        texts = [pattern] if isinstance(pattern, str) else []
        texts += list(patterns) if isinstance(patterns, Mapping) else []
        for text in texts:
            try:
                compile_regex(text)
            except PatternError as error:
                yield f"the pattern {error}", at
        for key, member in value.items():
            if key not in _DATA:
                yield from _faults(root, member, f"{at}/{key}")
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value):
            yield from _faults(root, member, f"{at}/{number}")


def _leads_inside(root: Json, target: str) -> bool:
    """Say whether a reference is a pointer to something in the schema; names (`$id`) are not looked for here."""
    name, _, pointer = target.partition("#")
    if name or (pointer and not pointer.startswith("/")):
        return (name or f"#{pointer}") in _names(root)
    return _at(root, pointer) is not _NOTHING


def _comes_back(root: Json, target: str) -> bool:
    """Say whether pointers lead from one to the next without end; beside `$ref` nothing else counts in draft 7."""
    seen: set[str] = set()
    while target.startswith("#") and target not in seen:
        seen.add(target)
        here = _at(root, target[1:])
        onward = here.get("$ref") if isinstance(here, Mapping) else None
        if not isinstance(onward, str):
            return False
        target = onward
    return target in seen


def _at(root: Json, pointer: str) -> _Value:
    """Return what a pointer names, or _NOTHING."""
    here: _Value = root
    for part in unquote(pointer).split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and step in here:
            here = here[step]
        elif isinstance(here, list | tuple) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            return _NOTHING
    return here


def _names(value: Json) -> frozenset[str]:
    """Return every `$id` in a schema."""
    if isinstance(value, Mapping):
        own = value.get("$id")
        below = frozenset[str]().union(*map(_names, value.values()))
        return below | {own} if isinstance(own, str) else below
    return frozenset[str]().union(*map(_names, value)) if isinstance(value, list | tuple) else frozenset()


def _pointer(path: Iterable[object]) -> str:
    return "".join(f"/{part}" for part in path)


def _first_line(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _pattern(validator: _Value, pattern: str, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not compile_regex(pattern)(value):
        yield ValidationError("does not match")


def _of_patterns(validator: _Value, patterns: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, below in patterns.items():
        search = compile_regex(pattern)
        for key, member in value.items():
            if search(key):
                yield from validator.descend(member, below, path=key, schema_path=pattern)


def _additional(validator: _Value, below: _Value, value: _Value, schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    extra = undeclared_keys(value, schema)
    if validator.is_type(below, "object"):
        for key in extra:
            yield from validator.descend(value[key], below, path=key)
    elif not below and extra:
        yield ValidationError("has keys that are not known")


def _unique(validator: _Value, wanted: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if wanted and validator.is_type(value, "array") and len({_text(one) for one in value}) < len(value):
        yield ValidationError("holds the same item twice")


def _text(value: _Value) -> str:
    """Return the one text of a value: 1 and 1.0 are the same number, and true is none."""
    return json.dumps(_numbered(value), sort_keys=True)


def _numbered(value: _Value) -> _Value:
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _numbered(one) for key, one in value.items()}
        case list() | tuple():
            return [_numbered(one) for one in value]
        case _:
            return value


_BOUNDED = validators.extend(  # type: ignore[no-untyped-call] # the stubs of jsonschema lack it
    Draft7Validator,
    {
        "pattern": _pattern,
        "patternProperties": _of_patterns,
        "additionalProperties": _additional,
        "uniqueItems": _unique,
    },
)
