"""Slices: what a heading or a pointer names, and what is said where it names nothing, or two things."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Json
from orch23.resolve.slices import load_data, resolve_pointer, take_slice
from orch23.resolve.text_slices import SliceError, markdown_section

TEXT = """\
intro
# One
first
## Deep
deeper
# Two ##
second
```
# Not a heading
```
## Deep two
end
"""
DATA: Json = {"tasks": [{"id": "T1", "n": 1}, {"id": "T2", "n": 2}], "a/b": {"~": 5}, "empty": []}


def no_yaml(text):
    raise ValueError(text)


def test_a_section_goes_to_the_next_heading_of_equal_or_higher_level():
    assert markdown_section(TEXT, "One") == "# One\nfirst\n## Deep\ndeeper\n"
    assert markdown_section(TEXT, "Deep") == "## Deep\ndeeper\n"
    assert markdown_section(TEXT, "Deep two") == "## Deep two\nend\n"


def test_closing_marks_and_spaces_are_no_part_of_a_title():
    assert markdown_section(TEXT, " Two ").startswith("# Two ##\nsecond\n")


def test_a_heading_in_a_fenced_block_is_text():
    with pytest.raises(SliceError, match="no heading is named `Not a heading`"):
        markdown_section(TEXT, "Not a heading")
    assert "# Not a heading" in markdown_section(TEXT, "Two")


@pytest.mark.parametrize("mark", ["```", "~~~", "````"])
def test_a_fence_is_closed_by_its_own_mark(mark):
    text = f"# A\n{mark}\n# x\n{mark}\n# B\nb\n"
    assert markdown_section(text, "A") == f"# A\n{mark}\n# x\n{mark}\n"
    assert markdown_section(text, "B") == "# B\nb\n"


def test_two_headings_of_one_name_are_an_error_with_both_lines():
    with pytest.raises(SliceError, match=r"2 headings are named `A` \(lines 1, 3\)"):
        markdown_section("# A\n\n## A\n", "A")


def test_a_typo_names_the_nearest_heading():
    with pytest.raises(SliceError) as caught:
        markdown_section(TEXT, "Tow")
    assert caught.value.hint == "did you mean `Two`?"


def test_without_a_near_one_all_headings_are_named():
    with pytest.raises(SliceError) as caught:
        markdown_section("# Aa\n# Bb\n", "zzzzzz")
    assert "Aa, Bb" in caught.value.hint


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DATA),
        ("/tasks/0/id", "T1"),
        ("/tasks/[id=T2]/n", 2),
        ("/tasks/[n=1]", {"id": "T1", "n": 1}),
        ("/a~1b/~0", 5),
        ("/empty", []),
    ],
)
def test_a_pointer_names_a_value(pointer, value):
    assert resolve_pointer(DATA, pointer) == value


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("/task", "nothing is at `/task`"),
        ("/tasks/2", "the list has 2 items"),
        ("/tasks/01", "nothing is at"),
        ("/tasks/-1", "nothing is at"),
        ("/tasks/[id=T9]", "no items match"),
        ("/tasks/0/id/0", "no list or mapping above it"),
        ("/empty/0", "the list has 0 items"),
    ],
)
def test_a_pointer_that_leads_nowhere_is_an_error_with_a_way_out(pointer, message):
    with pytest.raises(SliceError) as caught:
        resolve_pointer(DATA, pointer)
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_field_that_two_items_have_names_neither():
    with pytest.raises(SliceError, match="2 items match"):
        resolve_pointer([{"id": 1}, {"id": 1}], "/[id=1]")


def test_a_slice_of_data_is_canonical_so_that_formatting_changes_nothing():
    one = take_slice('{"a": {"y": 1, "x": [1, 2]}}', "f.json", "/a", no_yaml)
    assert one == take_slice('{\n "a":{"x":[1,2],"y":1}, "b": 2}\n', "f.json", "/a", no_yaml)
    assert one.text == '{"x":[1,2],"y":1}'


def test_yaml_is_read_by_the_reader_it_is_given():
    assert take_slice("whatever", "f.yml", "/k", lambda text: {"k": text}).text == '"whatever"'


@pytest.mark.parametrize(
    ("path", "message"), [("f.json", "not valid JSON"), ("f.yaml", "not valid YAML"), ("f.txt", "neither")]
)
def test_text_that_is_not_data_is_an_error(path, message):
    with pytest.raises(SliceError, match=message):
        load_data("{", path, no_yaml)


@pytest.mark.parametrize(
    ("pointer", "keys", "steps"),
    [
        ("/tasks/1/n", (), ("tasks", 1, "n")),
        ("/tasks/[id=T2]/n", (), ("tasks", ("id", "T2"), "n")),
        ("/years/2024", (1,), ("years", "2024")),
        ("/years/[a=b]/0", (1,), ("years", "[a=b]", 0)),
        ("/a~1b/~0", (), ("a/b", "~")),
    ],
)
def test_the_steps_of_a_slice_say_which_of_them_are_of_a_list(pointer, keys, steps):
    years: Json = {"2024": 1, "[a=b]": [2]}
    one = take_slice(
        json.dumps({"years": years, "tasks": [1, {"n": 1, "id": "T2"}], "a/b": {"~": 5}}), "f.json", pointer, no_yaml
    )
    assert (one.keys, one.steps) == (keys, steps)


def test_a_position_with_more_digits_than_any_list_has_items_is_none():
    with pytest.raises(SliceError, match="the list has 2 items"):
        resolve_pointer(DATA, f"/tasks/{'9' * 5000}")


@pytest.mark.parametrize("after", ["", "\n", "\n\n \n", "\n# B\n", "\n\n\n# B\nb\n", "  \n# B\n"])
def test_what_follows_a_section_and_how_far_away_changes_nothing_of_it(after):
    assert markdown_section(f"# A\n\na\n  - b{after}", "A") == "# A\n\na\n  - b\n"


words = st.text("abc", min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(1, 3), words, words), min_size=1, max_size=6, unique_by=lambda one: one[1]))
def test_the_sections_of_top_level_headings_are_the_whole_text(parts):
    text = "".join(f"{'#' * level} {title}\n{body}\n" for level, title, body in parts)
    for number, (level, title, _) in enumerate(parts):
        after = [n for n, (other, _, _) in enumerate(parts) if n > number and other <= level]
        end = after[0] if after else len(parts)
        wanted = "".join(f"{'#' * lv} {t}\n{b}\n" for lv, t, b in parts[number:end])
        assert markdown_section(text, title) == wanted


@given(
    st.recursive(
        st.integers() | words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
    )
)
def test_every_value_is_reached_by_the_pointer_that_spells_its_way(value):
    def walk(here, pointer):
        assert resolve_pointer(value, pointer) == here
        assert (
            json.loads(take_slice(json.dumps(value), "f.json", pointer or "/", no_yaml).text) == here
            if pointer
            else True
        )
        steps = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        for step, below in steps:
            walk(below, f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}")

    walk(value, "")
