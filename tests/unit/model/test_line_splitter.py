"""A text that arrives in pieces is reported in lines, each as soon as it is complete."""

from hypothesis import given
from hypothesis import strategies as st

from orch23.model.text import _MAX_REPORTED, MAX_LINE_LENGTH, LineSplitter, displayable_part


class Heard(list[tuple[str, bool]]):
    def __call__(self, line: str, *, cut: bool = False) -> None:
        self.append((line, cut))


def lines_of(*pieces: str) -> list[tuple[str, bool]]:
    found = Heard()
    lines = LineSplitter(found)
    for piece in pieces:
        lines.feed(piece)
    lines.flush()
    return found


def test_a_line_is_handed_on_when_it_is_whole() -> None:
    found = Heard()
    lines = LineSplitter(found)
    lines.feed("on")
    assert found == []
    lines.feed("e\ntwo\r\nthr")
    assert found == [("one", False), ("two", False)]
    lines.flush()
    lines.flush()
    assert found == [("one", False), ("two", False), ("thr", False)]


@given(st.lists(st.text("ab\n", max_size=8), max_size=20))
def test_it_does_not_matter_where_the_pieces_are_cut(pieces: list[str]) -> None:
    text, found = "".join(pieces), lines_of(*pieces)
    assert found == lines_of(text)
    assert [line for line, _ in found] == (text.removesuffix("\n").split("\n") if text else [])
    assert not any(cut for _, cut in found)


@given(st.integers(_MAX_REPORTED - 2, _MAX_REPORTED + 2), st.lists(st.integers(1, 3_000), max_size=5))
def test_of_a_long_line_the_beginning_is_handed_on(length: int, sizes: list[int]) -> None:
    text, pieces = f"{'x' * length}\nnext", []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    beginning = "x" * min(length, _MAX_REPORTED)
    assert lines_of(*pieces, text) == [(beginning, length > _MAX_REPORTED), ("next", False)]


def test_of_a_long_line_the_first_characters_are_shown() -> None:
    def kept(text: str) -> str:
        return text

    assert displayable_part("x" * MAX_LINE_LENGTH, kept, cut=False) == ("x" * MAX_LINE_LENGTH, False)
    assert displayable_part("word " * MAX_LINE_LENGTH, kept, cut=False) == (
        ("word " * MAX_LINE_LENGTH)[:MAX_LINE_LENGTH],
        True,
    )
    assert displayable_part("short", kept, cut=True) == ("short", True), "the line was cut before"


def test_secrets_are_taken_out_before_a_line_is_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("secret...", "[redacted]...").replace("secret", "[redacted]")

    line = f"{'x' * (MAX_LINE_LENGTH - 3)}secret"
    assert displayable_part(line, redact, cut=False) == (f"{'x' * (MAX_LINE_LENGTH - 3)}[re", True)
    assert displayable_part("xsecret", redact, cut=True) == ("x[redacted]", True)
