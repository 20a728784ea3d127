"""The examples on the page about patterns are true."""

import re
from pathlib import Path

import pytest

from orch23.model.paths import IGNORED_NAMES, OWN_FOLDERS, escape_pattern, match, split_slice

PAGE = Path(__file__).parents[3] / "docs/patterns.md"
ROWS = [line.strip("| ").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
EXAMPLES = [
    (row[0].strip(" `"), name, position == 1)
    for row in ROWS
    for position in (1, 2)
    for name in re.findall(r"`([^`]+)`", row[position] if position < len(row) else "")
]


@pytest.mark.parametrize(("pattern", "path", "expected"), EXAMPLES)
def test_the_examples_are_true(pattern: str, path: str, expected: bool) -> None:
    assert match(pattern, path) is expected


def test_there_are_examples_of_each_sign() -> None:
    patterns = {pattern for pattern, _, _ in EXAMPLES}
    assert len(EXAMPLES) >= 35
    assert all(any(sign in pattern for pattern in patterns) for sign in ("*", "**", "?", "[", "[!", "/", "[#]"))


def test_the_page_names_all_folders_that_wildcards_skip() -> None:
    text = PAGE.read_text()
    assert [name for name in IGNORED_NAMES - OWN_FOLDERS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", ["[id].txt", "a#b.txt", "what?.md", "*", "a[b", "]", "[!x]", "plain"])
def test_an_escaped_name_means_that_file_alone(name: str) -> None:
    assert match(escape_pattern(name), name)
    assert not match(escape_pattern(name), "i.txt")
    assert split_slice(escape_pattern(name)) == (escape_pattern(name), "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.md#Top", ("a.md", "Top")),
        ("a.md#[x]#y", ("a.md", "[x]#y")),
        ("a[#]b", ("a[#]b", "")),
        ("a[#]b#c", ("a[#]b", "c")),
        ("a[b/c]#d", ("a[b/c]", "d")),
        ("a[", ("a[", "")),
    ],
)
def test_a_slice_begins_at_the_first_sign_outside_of_a_set(text: str, expected: tuple[str, str]) -> None:
    assert split_slice(text) == expected
