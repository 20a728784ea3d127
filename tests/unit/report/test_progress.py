from dataclasses import dataclass, field

import pytest

from orch23.report.progress import ProgressLine

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
