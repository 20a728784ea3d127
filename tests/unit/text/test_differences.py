"""Two long values of a failed test: only what differs is shown."""

import pytest

from orch23.text.differences import differing_values


def pair(first: str, second: str, names: tuple[str, str] = ("expected: ", "  actual: ")) -> str:
    return f"before\n{names[0]}{first}\n{names[1]}{second}\nafter\n"


NUMBERS = [f"'name_{n}': {n}" for n in range(60)]
ONE, OTHER = ", ".join(NUMBERS), ", ".join(NUMBERS).replace("': 17,", "': 3,")


@pytest.mark.parametrize("names", [("expected: ", "  actual: "), ("  left: ", " right: "), ("got = ", "want = ")])
def test_the_items_that_differ_are_shown_with_their_names(names: tuple[str, str]) -> None:
    around = "'name_15': 15, 'name_16': 16, "
    shown = pair(f"... {around}'name_17': 17 ...", f"... {around}'name_17': 3 ...", names)
    assert differing_values(pair(ONE, OTHER, names)) == shown


def test_of_two_long_texts_the_part_that_differs_is_shown() -> None:
    shown = differing_values(pair(f"{'x' * 500}a{'y' * 500}", f"{'x' * 500}b{'y' * 500}"))
    assert shown == pair(f"...{'x' * 40}a{'y' * 40}...", f"...{'x' * 40}b{'y' * 40}...")


def test_items_far_from_each_other_are_shown_without_the_equal_ones_between() -> None:
    shown = differing_values(pair(ONE, ONE.replace("': 1,", "': x,").replace("': 58,", "': y,")))
    assert shown == pair("... 'name_1': 1, 'name_58': 58 ...", "... 'name_1': x, 'name_58': y ...")


def test_a_value_in_lines_stays_in_lines() -> None:
    lines = [f"  key_{n}:\n    value: {n}" for n in range(60)]
    text = "expected:\n{}\nactual:\n{}\nstack: a".format(
        "\n".join(lines), "\n".join(lines).replace("value: 17", "value: 3")
    )
    shown = "{}: ...\n    value: 16\n  key_17:\n    value: {}\n..."
    assert differing_values(text) == f"{shown.format('expected', 17)}\n{shown.format('actual', 3)}\nstack: a"


@pytest.mark.parametrize(
    "text",
    [
        pair("1", "2"),
        "expected: 1\n",
        f"expected: {ONE}\nother: {OTHER}\n",
        f"left: {ONE}\n\nright: {OTHER}\n",
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert differing_values(text) == text


def test_shortened_values_stay_as_they_are() -> None:
    shown = differing_values(pair(ONE, OTHER))
    assert differing_values(shown) == shown
