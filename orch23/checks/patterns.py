"""Search a text for a regular expression in a time that grows with the text alone, never with what can be tried.

Python's own engine goes back and tries again: `^(a+)+$` takes a longer time than there is for forty characters that a
model may write. Here all ways are followed at once, and which they are is remembered. Look-arounds and references back
cannot be followed so: a pattern of these is taken where the text is short and nothing in it repeats a repetition.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from re import _constants as signs  # type: ignore[attr-defined]  # in Python since 3.11, not in the stubs
from re import _parser as parser  # type: ignore[attr-defined]  # likewise
from typing import Any, TypeAlias

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
def searcher(pattern: str) -> Callable[[str], bool]:
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


def unmatched_keys(instance: Mapping[str, object], schema: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object that a schema names neither by themselves nor by a pattern."""
    known = schema.get("properties", {})
    searches = [searcher(pattern) for pattern in schema.get("patternProperties", {})]
    return [key for key in instance if key not in known and not any(search(key) for search in searches)]
