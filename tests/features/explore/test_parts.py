"""Responses that explore, and the parts of files that they name."""

import pytest

from orch23.features.explore.outlines import outline_of
from orch23.features.explore.parts import FORM, find_part, read_answer, search, split_place
from orch23.features.explore.repo_map import RepoMap, map_of
from orch23.resolve.text_slices import SliceError

CODE = "def f():\n    return 1\n\n\nclass C:\n    def g(self):\n        return f()\n"
TEXTS = {"a.py": CODE, "b.md": "# Title\nthe Total\n"}


def map_for(texts: dict[str, str]) -> RepoMap:
    return map_of("call g", [outline_of(path, text) for path, text in texts.items()])


MAP = map_for(TEXTS)


@pytest.mark.parametrize(
    ("text", "show", "search"),
    [
        (FORM, ("src/shop.py#def total", "src/cart.js#L10-40", "README.md"), ("round", "/_sum$/")),
        ('<think>Hm {"show": []}</think>\n```json\n{"show": ["a.py"]}\n```', ("a.py",), ()),
        ('["a.py", " b.md ", "a.py", ""]', ("a.py", "b.md"), ()),
        ('{"show": "a.py", "search": null}', ("a.py",), ()),
        ('{"show": [], "search": []}', (), ()),
        ('{"show": ["a.py\\n \u2714 fix"], "search": [" x = 1\\r\\ny"]}', ("a.py",), ("x = 1",)),
    ],
)
def test_a_response_names_places_and_texts(text: str, show: tuple[str, ...], search: tuple[str, ...]) -> None:
    assert read_answer(text) == ([*show], [*search])


@pytest.mark.parametrize("text", ["", "I need a.py", "{}", '{"files": ["a.py"]}', '{"show": [1]}', "7", "[" * 5_000])
def test_any_other_response_is_an_error_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="the form is") as caught:
        read_answer(text)
    assert str(caught.value).endswith(FORM)


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("a.py", ("", 0, 7)),
        ("a.py#def f", ("def f", 0, 2)),
        ("./a.py#def C.g", ("def C.g", 5, 7)),
        ("a.py#def g", ("L6-7", 5, 7)),
        ("a.py#C", ("L5-7", 4, 7)),
        ("a.py#L2-99", ("L2-7", 1, 7)),
        ("a.py:3", ("L3-3", 2, 3)),
        ("a.py#7-6", ("L6-7", 5, 7)),
        ("b.md#Title", ("Title", 0, 2)),
    ],
)
def test_a_place_is_a_part_of_a_file(place: str, part: tuple[str, int, int]) -> None:
    path, selector = split_place(place)
    found = find_part(TEXTS[path], path, selector, MAP, 1_000)
    assert (found.selector, found.start, found.end) == part


@pytest.mark.parametrize("place", ["a.py#def h", "a.py#L8", "b.md#Other", "b.md#def f"])
def test_a_place_that_is_not_there_is_an_error_with_a_way_out(place: str) -> None:
    path, selector = split_place(place)
    with pytest.raises(SliceError) as caught:
        find_part(TEXTS[path], path, selector, MAP, 1_000)
    assert caught.value.hint


def test_a_part_is_cut_after_a_line() -> None:
    assert find_part(CODE, "a.py", "", MAP, 30).selector == "L1-4"
    with pytest.raises(SliceError, match="longer than what can still be shown"):
        find_part(CODE, "a.py", "", MAP, 5)


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("return", ["a.py#L5-7", "a.py#L1-2"]),
        ("total", ["b.md#L1-2"]),
        ("f(", ["a.py#L5-7", "a.py#L1-2"]),
        ("/^def/", ["a.py#L1-2"]),
        ("nothing", []),
    ],
)
def test_a_search_finds_the_definitions_around_its_matches(query: str, places: list[str]) -> None:
    assert sorted(f"{one.path}#{one.selector}" for one in search(TEXTS, query, MAP)) == sorted(places)


def test_an_empty_file_and_the_end_of_a_text_have_no_line_that_a_search_finds() -> None:
    texts = {"empty.txt": "", "one.txt": "a\n"}
    assert [f"{one.path}#{one.selector}" for one in search(texts, "/^/", map_for(texts))] == ["one.txt#L1-1"]


def test_a_search_is_bounded() -> None:
    many = {f"{n}.txt": "x\n" * 500 for n in range(50)}
    assert len(search(many, "x", map_for(many))) == 12
    long = {"a.txt": "a" * 100_000}
    assert len(search(long, "/(a*)*$/", map_for(long))) == 1  # in linear time
