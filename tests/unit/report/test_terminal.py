"""Lines of a terminal that are painted again, and long lines."""

import os
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.report.terminal import ProgressLine, TerminalArea, TerminalLine, fit_lines


class Terminal:
    """The lines of a terminal that understands what an area writes; a line that is too long is broken."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.text = ""

    def write(self, text: str) -> None:
        while text:
            if text.startswith("\x1b["):
                end = 2 + len(text[2:]) - len(text[2:].lstrip("0123456789"))
                number, letter, text = int(text[2:end] or 1), text[end], text[end + 1 :]
                self._move(number) if letter == "A" else self._clear()
            elif text[0] == "\r":
                self.text, text = self.text[: self.text.rfind("\n") + 1], text[1:]
            else:
                self.text, text = self.text + text[0], text[1:]

    def _move(self, lines: int) -> None:
        """Move up: the area always clears all that is below."""
        shown = self.shown()
        self.text = "\n".join(shown[: len(shown) - lines])

    def _clear(self) -> None:
        assert self.text == "" or self.text.endswith("\n") or "\n" not in self.text

    def shown(self) -> list[str]:
        broken = []
        for line in self.text.split("\n"):
            broken += [line[at : at + self.columns] for at in range(0, max(1, len(line)), self.columns)]
        return broken

    def size(self) -> os.terminal_size:
        return os.terminal_size((self.columns, 24))


def area_of(terminal: Terminal) -> TerminalArea:
    return TerminalArea(write=terminal.write, size=terminal.size)


def rows(*texts: str) -> list[TerminalLine]:
    return [TerminalLine(text, len(text)) for text in texts]


def test_rows_replace_those_before() -> None:
    terminal = Terminal(40)
    area = area_of(terminal)
    area.show(rows("one", "two", "three"))
    area.show(rows("four"))
    assert terminal.shown() == ["four"]
    area.show(rows("five", "six"))
    area.clear()
    assert terminal.shown() == [""]
    area.clear()


def test_lines_that_stay_are_above_the_rows() -> None:
    terminal = Terminal(40)
    area = area_of(terminal)
    for number in range(3):
        area.show(rows("running", f"{number} of 3"))
        with area.cleared():
            terminal.write(f"done {number}\n")
    area.show(rows("running"))
    assert terminal.shown() == ["done 0", "done 1", "done 2", "running"]


@pytest.mark.parametrize("narrow", [10, 17, 39])
def test_a_terminal_that_became_narrower_is_cleared_as_well(narrow: int) -> None:
    terminal = Terminal(80)
    area = area_of(terminal)
    with area.cleared():
        terminal.write("stays\n")
    area.show(rows("x" * 40, "y" * 55))
    terminal.columns = narrow
    area.show(rows("z"))
    assert terminal.shown() == ["stays", "z"]


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


MB = 1 << 20
GB = 1 << 30


@dataclass
class Screen:
    """What was written, by a clock that only a test moves."""

    written: list[str] = field(default_factory=list)
    now: float = 100.0

    def line(self, *, terminal: bool) -> ProgressLine:
        return ProgressLine(write=self.written.append, clock=lambda: self.now, is_terminal=terminal)

    def work(self, line: ProgressLine, size: int, *, pieces: int, each_s: float, name: str = "in.bin") -> None:
        advance = line("hashing", name, size)
        for _ in range(pieces):
            self.now += each_s
            advance(size // pieces)


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.mark.parametrize("terminal", [True, False])
def test_work_of_less_than_a_second_is_not_shown(screen: Screen, terminal: bool) -> None:
    screen.work(screen.line(terminal=terminal), GB, pieces=9, each_s=0.11)
    assert screen.written == []


def test_a_terminal_shows_one_line_that_is_overwritten_and_removed(screen: Screen) -> None:
    screen.work(screen.line(terminal=True), GB, pieces=16, each_s=0.25)
    *shown, last = screen.written
    assert shown[0] == "\r\x1b[Khashing in.bin  25% of 1.1 GB"
    assert shown[-1] == "\r\x1b[Khashing in.bin  100% of 1.1 GB"
    assert all(text.startswith("\r\x1b[K") and "\n" not in text for text in shown)
    assert last == "\r\x1b[K"


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
    assert screen.written[-1] == "\r\x1b[Khashed 3,000 files, 3.0 MB"
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
    line.clear()
    assert screen.written == []


def test_a_name_cannot_write_on_the_terminal(screen: Screen) -> None:
    screen.work(screen.line(terminal=True), GB, pieces=16, each_s=0.25, name="a\x1b[2J\nb")
    assert all("\x1b[2J" not in text and "\n" not in text for text in screen.written)


def test_it_is_cleared_once_before_something_else_is_written(screen: Screen) -> None:
    line = screen.line(terminal=True)
    screen.work(line, 10 * GB, pieces=8, each_s=0.25)
    advance = line("hashing", "more", 10 * GB)
    screen.now += 0.2
    advance(GB)
    before = len(screen.written)
    line.clear()
    line.clear()
    assert screen.written[before:] == ["\r\x1b[K"]
