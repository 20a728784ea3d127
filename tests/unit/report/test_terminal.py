"""Lines of a terminal that are painted again, and long lines."""

import os
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.report.terminal import ProgressLine, TerminalArea, TerminalLine, fit_lines
from tests.terminal_screen import Terminal


def area_of(terminal: Terminal) -> TerminalArea:
    size = lambda: os.terminal_size((terminal.columns, terminal.lines))  # noqa: E731
    return TerminalArea(
        write=lambda text: terminal.feed(text.replace("\n", "\r\n")), size=size, reflows=terminal.reflows
    )


def rows(*texts: str) -> list[TerminalLine]:
    return [TerminalLine(text, len(text)) for text in texts]


def test_rows_replace_those_before() -> None:
    terminal = Terminal(40, 24)
    area = area_of(terminal)
    area.show(rows("one", "two", "three"))
    area.show(rows("four"))
    assert terminal.transcript() == ["four"]
    area.show(rows("five", "six"))
    area.clear()
    assert terminal.transcript() == [""]
    area.clear()


def test_lines_that_stay_are_above_the_rows() -> None:
    terminal = Terminal(40, 24)
    area = area_of(terminal)
    for number in range(3):
        area.show(rows("running", f"{number} of 3"))
        with area.cleared():
            terminal.feed(f"done {number}\r\n")
    area.show(rows("running"))
    assert terminal.transcript() == ["done 0", "done 1", "done 2", "running"]


@pytest.mark.parametrize("reflows", [True, False])
@pytest.mark.parametrize("narrow", [10, 17, 39])
def test_a_terminal_that_became_narrower_is_cleared_as_well(narrow: int, *, reflows: bool) -> None:
    terminal = Terminal(80, 24, reflows=reflows)
    area = area_of(terminal)
    with area.cleared():
        terminal.feed("stays\r\n")
    area.show(rows("x" * 40, "y" * 55))
    terminal.resize(narrow, 24)
    area.show(rows("z"))
    assert terminal.transcript() == ["stays", "z"]


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


def test_characters_that_are_wider_than_expected_neither_start_a_row_nor_lengthen_one() -> None:
    terminal = Terminal(20, 24)
    area = area_of(terminal)
    area.show([TerminalLine("क्षि" * 8 + "x", 17), TerminalLine("👍🏽" * 3, 6)])
    assert [len(row.cells) for row in terminal.rows] == [17, 6]
    area.clear()
    assert terminal.transcript() == [""]


MB = 1 << 20
GB = 1 << 30


@dataclass
class Screen:
    """What was written, by a clock that only a test moves."""

    written: list[str] = field(default_factory=list)
    now: float = 100.0
    terminal: Terminal = field(default_factory=lambda: Terminal(80, 24))

    def line(self, *, terminal: bool) -> ProgressLine:
        return ProgressLine(write=self.written.append, clock=lambda: self.now, area=self.area() if terminal else None)

    def area(self) -> TerminalArea:
        shown = area_of(self.terminal)

        def write(text: str) -> None:
            self.written.append(text)
            shown.write(text)

        return TerminalArea(write=write, size=shown.size)

    def work(self, line: ProgressLine, size: int, *, pieces: int, each_s: float, name: str = "in.bin") -> list[str]:
        """Hash a file; return what the terminal shows after each piece."""
        advance, shown = line("hashing", name, size), []
        for _ in range(pieces):
            self.now += each_s
            advance(size // pieces)
            shown += self.terminal.transcript()
        return shown


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.mark.parametrize("terminal", [True, False])
def test_work_of_less_than_a_second_is_not_shown(screen: Screen, terminal: bool) -> None:
    screen.work(screen.line(terminal=terminal), GB, pieces=9, each_s=0.11)
    assert screen.written == []


def test_a_terminal_shows_one_line_that_is_overwritten_and_removed(screen: Screen) -> None:
    shown = screen.work(screen.line(terminal=True), GB, pieces=16, each_s=0.25)
    assert shown[:3] == [""] * 3
    assert shown[3] == "hashing 25% of 1.1 GB: in.bin"
    assert shown[-2:] == ["hashing 93% of 1.1 GB: in.bin", ""]


def test_a_line_is_not_rewritten_more_often_than_can_be_read(screen: Screen) -> None:
    screen.work(screen.line(terminal=True), GB, pieces=4096, each_s=0.0009765625)
    assert 25 < len(screen.written) < 45


def test_elsewhere_one_line_is_written_and_no_more(screen: Screen) -> None:
    screen.work(screen.line(terminal=False), GB, pieces=40, each_s=0.25)
    assert screen.written == ["hashing in.bin (1.1 GB)\n"]


def test_many_small_files_are_counted_together(screen: Screen) -> None:
    line = screen.line(terminal=True)
    for number in range(3000):
        screen.work(line, 1000, pieces=1, each_s=0.001, name=f"f{number}")
    assert screen.terminal.transcript() == ["hashed 3,000 files, 3.0 MB"]
    plain = Screen()
    line = plain.line(terminal=False)
    for number in range(3000):
        plain.work(line, 1000, pieces=1, each_s=0.001, name=f"f{number}")
    assert plain.written == ["hashing many files\n"]


def test_a_pause_resets_the_count(screen: Screen) -> None:
    line = screen.line(terminal=False)
    for _ in range(20):
        screen.work(line, MB, pieces=2, each_s=0.4)
        screen.now += 0.6
    assert screen.written == []


def test_quiet_says_nothing(screen: Screen) -> None:
    line = screen.line(terminal=True)
    line.is_quiet = True
    screen.work(line, GB, pieces=40, each_s=0.25)
    assert screen.written == []


@pytest.mark.parametrize("name", ["a\x1b[2J\nb\tc", "folder/" * 40, "一二三四五六七八九十" * 9])
def test_no_name_takes_more_than_a_line_of_the_terminal(screen: Screen, name: str) -> None:
    line = screen.line(terminal=True)
    for columns in (80, 40, 200):
        screen.terminal.resize(columns, 24)
        shown = screen.work(line, GB, pieces=16, each_s=0.25, name=name)
        assert len(shown) == 16
        assert shown[-1] == ""


def test_a_secret_in_a_name_is_not_shown() -> None:
    screen = Screen()
    line = screen.line(terminal=True)
    line.redact = lambda text: text.replace("s3cr3t", "[redacted]")
    assert not any("s3cr3t" in one for one in screen.work(line, GB, pieces=16, each_s=0.25, name="s3cr3t"))
