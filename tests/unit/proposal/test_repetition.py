"""A text that repeats itself to its end is found; ordinary code and prose are not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.proposal.omissions import repeated_end

ROOT = Path(__file__).parents[3]
LINE = '    slug = slug.replace(".", "").replace("-", "")\n'
START = "```python\nimport hashlib\n\ndef slugify(title):\n    slug = title.lower()\n"


def test_a_line_that_is_repeated_until_the_text_is_cut() -> None:
    assert repeated_end(START + LINE * 30) == LINE
    assert repeated_end(START + LINE * 30 + LINE[:20]) == LINE
    assert repeated_end(START + '.replace("-", "")' * 60 + ".rep") == '.replace("-", "")'
    assert repeated_end("So:" + "\n" * 400) == "\n"


def test_a_block_of_several_lines_begins_with_a_line() -> None:
    block = "def a():\n    return 1\n\n\n"
    assert sorted(repeated_end(f"x{block * 20}def a").splitlines()) == sorted(block.splitlines())


def test_a_few_repetitions_are_not_enough() -> None:
    assert repeated_end(START + LINE * 5) == ""
    assert repeated_end("ab" * 100) == ""
    assert repeated_end("") == ""


def test_a_table_of_equal_rows_is_not_most_of_the_text() -> None:
    code = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(40))
    assert repeated_end(code + "ZEROS = [\n" + "    [0, 0, 0, 0, 0, 0],\n" * 20) == ""


def test_a_repetition_that_ended_is_not_one() -> None:
    assert repeated_end(START + LINE * 30 + "    return slug\n") == ""


@pytest.mark.slow
def test_no_file_of_this_project_repeats_itself_wherever_it_is_cut() -> None:
    files = [*sorted((ROOT / "orch23" / "text").glob("*.py")), *sorted((ROOT / "docs").glob("*.md"))]
    assert len(files) > 40
    for file in files:
        text = file.read_text()
        for end in range(1000, len(text), max(1000, len(text) // 4)):
            assert repeated_end(text[:end]) == "", (file.name, end)


@given(st.lists(st.text("abcdefghij (),.=\n", min_size=1, max_size=80), min_size=1, max_size=60, unique=True))
def test_different_lines_are_no_repetition(lines: list[str]) -> None:
    text = "\n".join(f"{number}: {line}" for number, line in enumerate(lines))
    assert repeated_end(text) == ""


@given(st.text(max_size=100), st.text(min_size=1, max_size=60), st.integers(min_value=0, max_value=59))
def test_every_repetition_is_found_and_its_block_is_part_of_it(before: str, block: str, cut: int) -> None:
    end = block * (300 // len(block) + 7) + block[:cut]
    found = repeated_end(before + end)
    assert found
    assert found in end
    assert len(found) <= len(block)
