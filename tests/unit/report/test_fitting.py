"""Long lines on a terminal are broken between words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.report.fitting import fit_lines


@pytest.mark.parametrize(
    ("line", "fitted"),
    [
        ("short", "short"),
        (
            " ✔ code  llm  1.2s   2 calls   passed at attempt 3",
            " ✔ code  llm  1.2s   2 calls\n     passed at attempt 3",
        ),
        ("error: one two three four five six seven", "error: one two three four five\n    six seven"),
        ("  | one two three four five six seven", "  | one two three four five\n  | six seven"),
        (" 5 |   list: {shell: 'echo one two three'}", " 5 |   list: {shell: 'echo one\n   | two three'}"),
        ("x" * 70, "x" * 70),
        ("\x1b[31m" + "x" * 20 + "\x1b[0m 12345 789", "\x1b[31m" + "x" * 20 + "\x1b[0m 12345 789"),
    ],
)
def test_a_line_is_broken_between_facts_or_words(line: str, fitted: str) -> None:
    assert fit_lines(line, 30) == fitted


def test_a_terminal_that_is_very_narrow_breaks_lines_itself() -> None:
    assert fit_lines("one two three four five six seven", 10) == "one two three four five six seven"


@given(st.text(alphabet="ab |é \n", max_size=300), st.integers(24, 90))
def test_no_word_is_lost_or_broken(text: str, columns: int) -> None:
    fitted = fit_lines(text, columns)
    assert re.findall(r"[abé]+", fitted) == re.findall(r"[abé]+", text)
    longest = max(map(len, re.split(r"[ |\n]", text)))
    for line in fitted.split("\n"):
        assert len(line) <= columns or len(line.strip(" |")) <= longest or line in text.split("\n")
