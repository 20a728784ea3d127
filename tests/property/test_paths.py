"""`match` and `meets` against slow readings of the same rules that share nothing with them."""

import itertools
from functools import lru_cache

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from orch23.model.paths import PatternSet, match, may_overlap, normalize_pattern, static_prefix
from tests.ignored_paths import is_ignored

ALPHABET = "ab."
DEPTH = 4


@lru_cache(maxsize=1)
def _universe() -> tuple[str, ...]:
    """Return every path of up to four segments of up to two characters out of a small alphabet: 22,620 of them."""
    names = ["".join(p) for size in (1, 2) for p in itertools.product(ALPHABET, repeat=size)]
    return tuple("/".join(p) for depth in range(1, DEPTH + 1) for p in itertools.product(names, repeat=depth))


def _means(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Say the same as `match`, segment by segment, by trying everything."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        least = 1 if len(pattern) == 1 else 0
        return any(_means(pattern[1:], path[taken:]) for taken in range(least, len(path) + 1))
    return bool(path) and _spells(pattern[0], path[0]) and _means(pattern[1:], path[1:])


def _spells(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_spells(pattern[1:], name[taken:]) for taken in range(len(name) + 1))
    if pattern[0] == "[":
        body, _, rest = pattern[1:].partition("]")
        inside = body[:1] not in ("!", "^")
        chars = body if inside else body[1:]
        return bool(name) and ((name[0] in chars) is inside) and _spells(rest, name[1:])
    return bool(name) and pattern[0] in ("?", name[0]) and _spells(pattern[1:], name[1:])


def _patterns(pieces: list[str]) -> st.SearchStrategy[str]:
    segment = st.lists(st.sampled_from(pieces), min_size=1, max_size=3).map("".join)
    return st.lists(st.one_of(segment, st.just("**")), min_size=1, max_size=3).map("/".join)


PLAIN = _patterns(["a", "b", "*", "?"])
WITH_SETS = _patterns(["a", "b", "*", "?", "[ab]", "[!a]", "[^b]"])
PATHS = st.lists(st.text(ALPHABET, min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


def _reachable(a: str, b: str) -> bool:
    """Say whether two patterns without sets meet, by spelling all common paths letter by letter, ends merged."""
    waiting, seen = [(a, b)], set[tuple[str, str]]()
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        if _may_end(state[0]) and _may_end(state[1]):
            return True
        for letter in "ab/":
            waiting += itertools.product(_after(state[0], letter), _after(state[1], letter))
    return False


# A pattern is read as an automaton whose states are texts: what is left to spell. `<` stands before a segment that
# has no letter yet, so that no empty name is spelt; `>` is the inside of a segment that `**` took.


def _after(state: str, letter: str) -> set[str]:
    """Return what may be left of a pattern after one letter."""
    left: set[str] = set()
    for at_start, rest in _open(state):
        if letter == "/":
            left |= {"<" + rest[1:]} if rest.startswith("/") and not at_start else set()
            left |= {"<" + rest} if rest.startswith(">") and not at_start else set()
            continue
        if rest.startswith(">"):
            left.add(rest)
        elif rest and rest[0] in ("?", letter):
            left.add(rest[1:])
        elif rest.startswith("*"):
            left.add(rest)
    return left


def _may_end(state: str) -> bool:
    return any(rest in ("", ">") and not at_start for at_start, rest in _open(state))


def _open(state: str) -> set[tuple[bool, str]]:
    """Return the same state with what may be skipped skipped, and whether a name is still to begin."""
    found: set[tuple[bool, bool, str]] = set()
    at_start = state.startswith("<")
    waiting = [(at_start, at_start, state.removeprefix("<"))]  # at_start, and nothing of the segment is skipped yet
    while waiting:
        at_start, is_whole, rest = entry = waiting.pop()
        if entry in found:
            continue
        found.add(entry)
        if is_whole and (rest == "**" or rest.startswith("**/")):
            waiting.append((True, False, ">" + rest[2:]))
            if rest.startswith("**/"):
                waiting.append((True, True, rest[3:]))
        elif rest.startswith(">/") and not at_start:
            waiting.append((False, False, rest[1:]))
        elif rest.startswith("*"):
            waiting.append((at_start, False, rest[1:]))
    return {(at_start, rest) for at_start, _, rest in found}


@given(WITH_SETS, PATHS)
@example("**/a", "a")
@example("a/**", "a")
@example("a/**/b", "a/b")
@example("**", "a")
def test_match_says_what_a_reading_segment_by_segment_says(pattern: str, path: str) -> None:
    assert match(pattern, path) is _means(tuple(normalize_pattern(pattern).split("/")), tuple(path.split("/")))


@pytest.mark.slow
@given(WITH_SETS, WITH_SETS)
def test_patterns_that_share_a_path_meet(one: str, other: str) -> None:
    shared = next((path for path in _universe() if match(one, path) and match(other, path)), None)
    assert shared is None or may_overlap(one, other)


@given(PLAIN, PLAIN)
@example("**/a", "a/**")
@example("a/**", "a")
@example("**/a/**", "b/**/b")
@example("?*", "*a?")
@example("a/**", "***")  # three stars are one segment
def test_patterns_without_sets_meet_exactly_where_a_common_path_can_be_spelt(one: str, other: str) -> None:
    assert may_overlap(one, other) is _reachable("<" + normalize_pattern(one), "<" + normalize_pattern(other))


@given(WITH_SETS, PATHS)
def test_a_literal_path_meets_what_matches_it(pattern: str, path: str) -> None:
    assume(normalize_pattern(path) == path)  # as a pattern `./a` means `a`; as a path it is not spelt so
    assert may_overlap(pattern, path) is match(pattern, path)


@given(WITH_SETS, WITH_SETS)
def test_meeting_is_mutual_and_everything_meets_itself_and_all(one: str, other: str) -> None:
    assert may_overlap(one, other) is may_overlap(other, one)
    assert may_overlap(one, one)
    assert may_overlap(one, "**")


@given(st.lists(WITH_SETS | PATHS, max_size=4), WITH_SETS | PATHS)
@example(["a"], "./a")
@example(["./a"], "a")
@example(["a/"], "a/b")
@example(["a"], "")
def test_a_set_overlaps_what_one_of_its_patterns_overlaps(patterns: list[str], other: str) -> None:
    assert PatternSet(patterns).may_overlap(other) is any(may_overlap(one, other) for one in patterns)


@given(WITH_SETS, PATHS)
def test_what_matches_lies_below_the_static_prefix(pattern: str, path: str) -> None:
    assume(match(pattern, path))
    assert path.startswith(static_prefix(pattern))


@given(st.text("ab*?[]!^-\\/.&|~", max_size=12), st.text("ab]!^-\\.", min_size=1, max_size=6))
@example("[z-a]", "a")
@example("[!]", "!")
@example("[[a]&&b]", "a")
def test_no_pattern_is_too_odd_to_be_matched(pattern: str, path: str) -> None:
    assert match(pattern, path) is may_overlap(pattern, path)
    assert is_ignored(path, pattern) is False
