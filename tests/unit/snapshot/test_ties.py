"""What an edit reaches, by what the stages looked at, and by the lines of their text."""

import pytest

from orch23.snapshot.ties import Tie, Ties, ties_from

TEXT = """\
version: 1
stages:
  a: {shell: [make, a]}
  b:
    # of b
    shell: [make, b]
  c: {shell: [make, c]}
  off: {if: false}
  d:
    shell: [make, d]
    desc: |
      text

jobs: 2
"""
LINES = {"a": [2, 3], "b": [3, 6], "c": [6, 7], "d": [8, 13]}


def tie(name: str, after: list[int], looked: str, *, named: list[int] | None = None, free: bool = True) -> Tie:
    return Tie(name, after, named or [], looked.split(), [f"{name}.out"], [f"key-{name}"], LINES[name], free)


def ties(*stages: Tie) -> Ties:
    return Ties(
        list(stages), newest=7, shelves={"00": 1}, began={"name": "p", "stages": 4}, skipped=[[7, 8]], text=TEXT
    )


@pytest.fixture
def four() -> Ties:
    """Return a before b before c, and d alone."""
    return ties(
        tie("a", [], "a.in a.out"), tie("b", [0], "a.out b.in"), tie("c", [1], "/src b.out"), tie("d", [], "d.in")
    )


def reached(these: Ties, *changed: str, gone: str = "") -> tuple[list[str], list[str]] | None:
    found = these.reach(changed, lambda path: path != gone)
    return None if found is None else (list(found.names), [these.stages[number].name for number in found.around])


def test_it_is_the_same_after_being_written_and_read(four: Ties) -> None:
    again = ties_from(four.to_bytes())
    assert again is not None
    assert all(getattr(again, name) == getattr(four, name) for name in Ties.__slots__)


def test_whatever_is_wrong_with_the_file_it_is_none_and_no_error(four: Ties) -> None:
    data = four.to_bytes()
    for at in range(0, len(data), 7):
        assert ties_from(data[:at]) is None
        assert ties_from(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    other = Ties([], newest=1, shelves={}, began={}, skipped=[], text="")
    other.stages = [("too", "short")]  # type: ignore[list-item]
    assert ties_from(other.to_bytes()) is None


def test_a_change_reaches_who_looked_at_it_and_all_that_follow_with_what_they_rest_on(four: Ties) -> None:
    assert reached(four, "d.in") == (["d"], [])
    assert reached(four, "/src") == (["c"], ["b"])
    assert reached(four, "b.in") == (["b", "c"], ["a"])
    assert reached(four, "d.in", "/src") == (["c", "d"], ["b"])


def test_what_is_named_in_the_text_of_a_stage_or_of_one_that_it_rests_on_is_around_it() -> None:
    first, second = tie("a", [], "a.in"), tie("b", [], "b.in", named=[0])
    found = ties(first, second, tie("c", [1], "c.in"), tie("d", [], "d.in", named=[2]))
    assert reached(found, "c.in") == (["c"], ["a", "b"])
    assert reached(found, "d.in") == (["d"], ["c"])


def test_where_it_is_not_known_or_nearly_everything_nothing_is_said(four: Ties) -> None:
    assert reached(four, "unknown") is None
    assert reached(four, "d.in", "unknown") is None
    assert reached(four, "a.in") is None  # three of four
    not_free = ties(tie("a", [], "a.in"), tie("b", [], "b.in", free=False), tie("c", [], "c.in"), tie("d", [], "d.in"))
    assert reached(not_free, "b.in") is None
    assert reached(not_free, "a.in") == (["a"], [])


def test_of_a_file_that_is_gone_only_who_makes_it_can_tell(four: Ties) -> None:
    assert reached(four, "d.in", gone="d.in") is None
    made = ties(tie("a", [], "a.in a.out"), tie("b", [], "b.in"), tie("c", [0], "a.out"), tie("d", [], "d.in"))
    assert reached(made, "a.out", gone="a.out") == (["a", "c"], [])


def test_the_text_of_what_is_reached_stands_where_it_stood(four: Ties) -> None:
    found = four.reach(["/src"], lambda _: True)
    assert found is not None
    kept = found.without_the_rest(TEXT).split("\n")
    before = TEXT.split("\n")
    assert len(kept) == len(before)
    assert {number for number, line in enumerate(kept) if line == "#"} == {2, 7, 8, 9, 10, 11, 12}
    assert all(line in ("#", was) for line, was in zip(kept, before, strict=True))


@pytest.mark.parametrize(
    ("old", "new", "stage", "lines"),
    [
        ("make, b]", "make, bb]", "b", {}),
        ("    # of b\n", "", "b", {"b": [3, 5], "c": [5, 6], "d": [7, 12]}),
        ("    # of b\n", "    # of b\n    # and more\n", "b", {"b": [3, 7], "c": [7, 8], "d": [9, 14]}),
        ("  c: {shell: [make, c]}", "  c: {shell: [make, c, again]}", "c", {}),
        ("  c: {shell: [make, c]}", "  other: {shell: [make, c]}", None, {}),
        ("      text\n", "      text\n      text\n", "d", {"d": [8, 14]}),
        ("jobs: 2", "jobs: 3", None, {}),
        ("version: 1", "# a note\nversion: 1", None, {}),
        ("make, b]\n  c: {shell: [make, c]}", "make, B]\n  c: {shell: [make, C]}", None, {}),
        ("{if: false}", "{if: true}", None, {}),
        ("", "", None, {}),
    ],
)
def test_an_edit_of_the_text_of_one_stage_is_told_from_others(
    four: Ties, old: str, new: str, stage: str | None, lines: dict[str, list[int]]
) -> None:
    text = TEXT.replace(old, new, 1)
    found = four.edited(text)
    if stage is None:
        assert found is None
        return
    assert found is not None
    after, number = found
    assert (after.stages[number].name, after.text) == (stage, text)
    assert {one.name: one.lines for one in after.stages} == LINES | lines
    reach = after.reach([], lambda _: True, [number])
    assert reach is not None or stage == "a"
