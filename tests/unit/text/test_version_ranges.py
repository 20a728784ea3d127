"""Ranges of versions: those of Python, those of npm that mean the same, and a refusal of all others."""

import pytest

from orch23.text.version_ranges import is_in_range, parse_range


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=22", ["22.0.0", "23.1", "22"], ["21.9.9"]),
        (">=20,<23", ["20.0.0", "22.9"], ["23.0.0", "19"]),
        (">=20 <23", ["20.0.0", "22.9"], ["23.0.0", "19.1"]),
        (">= 20, != 21", ["20.1.0", "22.0.0"], ["21.4.0", "19.0.0"]),
        ("^22.1", ["22.1.0", "22.9.9"], ["23.0.0", "22.0.9"]),
        ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("~1.2.3", ["1.2.3", "1.2.9"], ["1.3.0", "1.2.2"]),
        ("~1", ["1.0.0", "1.9.0"], ["2.0.0"]),
        ("~=1.2", ["1.2.0", "1.9.0"], ["2.0.0", "1.1.9"]),
        ("22", ["22.0.0", "22.9.9", "22"], ["23.0.0", "2.2"]),
        ("v22.x", ["22.0.0", "22.9.9"], ["23.0.0"]),
        ("=22.1.*", ["22.1.7"], ["22.2.0"]),
        ("22.1.0", ["22.1.0"], ["22.1.1"]),
    ],
)
def test_a_range_has_the_versions_that_its_form_says(text: str, inside: list[str], outside: list[str]) -> None:
    assert [is_in_range(one, text) for one in inside] == [True] * len(inside)
    assert [is_in_range(one, text) for one in outside] == [False] * len(outside)


@pytest.mark.parametrize(("version", "text"), [("22", ">=22.1"), ("22", "22.1"), ("", ">=1"), ("stable", ">=1")])
def test_a_version_that_is_not_exact_enough_is_not_decided(version: str, text: str) -> None:
    assert is_in_range(version, text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("latest", "lts/*", "*", "", " ", ",", "20 || 22", "1.2 - 1.4", ">=22.x", "^1.x", "22-rc1", ">", "22a", ">>1"),
        *("1.2.3.4.5.6.7", "9" * 10, ">=1;<2", "~~1", "x", "1..2"),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of versions"):
        parse_range(text)
