"""A text that comes in pieces is handed on in lines, each as soon as it is whole."""

from hypothesis import given
from hypothesis import strategies as st

from orch23.model.lines import MOST_CHARACTERS, Lines


def lines_of(*pieces: str) -> list[str]:
    found: list[str] = []
    lines = Lines(found.append)
    for piece in pieces:
        lines.take(piece)
    lines.end()
    return found


def test_a_line_is_handed_on_when_it_is_whole() -> None:
    found: list[str] = []
    lines = Lines(found.append)
    lines.take("on")
    assert found == []
    lines.take("e\ntwo\r\nthr")
    assert found == ["one", "two"]
    lines.end()
    lines.end()
    assert found == ["one", "two", "thr"]


@given(st.lists(st.text("ab\n", max_size=8), max_size=20))
def test_it_does_not_matter_where_the_pieces_are_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert lines_of(*pieces) == lines_of(text) == text.removesuffix("\n").split("\n") if text else lines_of() == []


def test_a_long_line_is_cut_at_a_blank_and_says_so() -> None:
    long = "word " * MOST_CHARACTERS
    assert lines_of(f"{long}\nnext\n") == [f"{long[:MOST_CHARACTERS].rpartition(' ')[0]}...", "next"]
    assert lines_of("x" * 9_000, "y" * 9_000, "\nnext") == ["...", "next"], "nothing of a word that may be a secret"
