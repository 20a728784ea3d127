"""Entries of `inputs`: what they become, what an exclusion concerns, and what is complained of."""

import pytest

from orch23.language.document import VerifyDocument
from orch23.language.reading import independent_problems, read_document
from orch23.language.stage_fields import read_inputs
from orch23.model.fields import Problems
from orch23.model.pipeline import GlobInput, ListInput, PathInput, SliceInput
from orch23.resolve.expression_syntax import UNKNOWN_MARK


def problems_of(*entries):
    document, wrong = read_document({"inputs": list(entries)}, VerifyDocument, "stages/s")
    assert document is not None
    at = Problems("stages/s/inputs")
    return read_inputs(document.inputs, at), (*wrong, *independent_problems(wrong, at.found))


def read(*entries):
    found, problems = problems_of(*entries)
    return found, [(p.path.removeprefix("stages/s/inputs/"), p.code) for p in problems]


def reported(*entries):
    (problem,) = problems_of(*entries)[1]
    return problem


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("a", PathInput("a")),
        ("./a//b", PathInput("a/b")),
        ("a/*.py", GlobInput("a/*.py")),
        ("a/", GlobInput("a/**", folder=True)),
        ("a.md# A heading ", SliceInput("a.md", "A heading")),
        ("./a.json#/x", SliceInput("a.json", "/x")),
        ({"path": "a"}, PathInput("a")),
        ({"path": "a", "optional": True}, PathInput("a", optional=True)),
        ({"path": "a", "schema": "./s.json"}, PathInput("a", schema="s.json")),
        ({"path": "a.md#H", "optional": True}, SliceInput("a.md", "H", optional=True)),
        ({"path": "a/**"}, GlobInput("a/**")),
        ({"list": "a/"}, ListInput("a/**")),
        ({"list": "a"}, ListInput("a")),
    ],
)
def test_an_entry_is_a_file_a_pattern_a_slice_or_a_listing(entry, value) -> None:
    assert read(entry, entry) == ((value,), [])


@pytest.mark.parametrize(
    ("entry", "place", "code"),
    [
        (3, "0", "E811"),
        (None, "0", "E811"),
        ("../a", "0", "E850"),
        ("../a.md#H", "0", "E850"),
        ("a/*.md#H", "0", "E850"),
        ("a.md#", "0", "E850"),
        ("a.md#A\nB", "0", "E850"),
        ({}, "0", "E814"),
        ({"path": "a", "list": "b"}, "0", "E814"),
        ({"list": "/a"}, "0/list", "E850"),
        ({"list": 3}, "0/list", "E811"),
        ({"list": "a", "optional": True}, "0/optional", "E802"),
        ({"path": 3}, "0/path", "E811"),
        ({"path": "/a"}, "0/path", "E850"),
        ({"path": "a", "other": 1}, "0/other", "E802"),
        ({"path": "a", "optional": "yes"}, "0/optional", "E811"),
        ({"path": "a/*", "schema": "s"}, "0/schema", "E856"),
        ({"path": "a#/x", "schema": "s"}, "0/schema", "E856"),
        ("!a", "0", "E850"),
    ],
)
def test_an_input_of_another_form_is_reported_at_its_path(entry, place: str, code: str) -> None:
    assert read(entry)[1] == [(place, code)]


def test_an_exclusion_concerns_the_patterns_and_listings_before_it() -> None:
    given, problems = read("a/**", {"list": "a/"}, "b/*", "!a/x/*.py", "!a/y", "a/x/*")
    assert problems == []
    assert given == (
        GlobInput("a/**", exclude=("a/x/*.py", "a/y", "a/y/**")),
        ListInput("a/**", exclude=("a/x/*.py", "a/y", "a/y/**")),
        GlobInput("b/*"),
        GlobInput("a/x/*"),
    )


def test_an_exclusion_without_effect_is_reported_with_the_patterns_before_it() -> None:
    problem = reported("a/*", {"list": "b/"}, "!c/x")
    assert problem.path == "stages/s/inputs/2"
    assert problem.message == "`!c/x` excludes nothing: `a/*`, `b/**` cannot match it"
    assert problem.hint is not None
    assert '"./!c/x"' in problem.hint
    assert reported("!c/x", "c/*").message == "`!c/x` excludes nothing: no pattern is before it"


def test_what_an_item_will_say_may_be_a_pattern() -> None:
    assert read(f"{UNKNOWN_MARK}/a", "!c/x")[1] == []
    assert read("!c/x", f"{UNKNOWN_MARK}/a")[1] == [("0", "E850")]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (("a/*", "a/b", "!a/b"), "excludes `a/b`, which is listed before it as a single file"),
        (("a/b.md#H", "!a/"), "excludes `a/b.md`, which is listed before it as a single file"),
        (("a/b", "!a"), "excludes `a/b`, which is listed before it"),
        (("a/*", "!a/b.md#H"), "excludes a slice; only whole files can be excluded"),
    ],
)
def test_an_exclusion_of_what_is_named_is_refused(entries, words: str) -> None:
    problem = reported(*entries)
    assert (problem.code, words in problem.message) == ("E850", True)


def test_the_way_out_of_an_excluded_slice_names_the_file() -> None:
    assert reported("a/*", "!a/b.md#H").hint == 'write "!a/b.md", or remove the slice from the list'


def test_an_exclusion_with_a_bad_path_is_reported_once_and_excludes_nothing() -> None:
    assert read("a/**", "!../a") == ((GlobInput("a/**"),), [("1", "E850")])
