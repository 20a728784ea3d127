"""The rows at the bottom of a terminal during a build."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from rich.cells import cell_len

from orch23.model.event_data import StageStatus
from orch23.report.frame import Frame
from orch23.report.running import RunningStage, RunningStages
from orch23.report.values import ASCII, Style


def running(count: int = 1, *, lines: tuple[str, ...] = (), doing: str = "make all") -> RunningStages:
    stages = {f"s{n}": RunningStage(name=f"s{n}", since=10.0, doing=doing) for n in range(count)}
    for stage in stages.values():
        stage.lines.extend(lines)
    names = dict.fromkeys((*stages, "done", "later"))
    return RunningStages(
        stages=stages, kinds=dict.fromkeys(stages, "shell"), names=names, ended={"done": StageStatus.BUILT}
    )


def rows(
    of: RunningStages,
    *,
    columns: int = 80,
    lines: int = 40,
    style: Style | None = None,
    redact: Callable[[str], str] = str,
    left_s: float | None = None,
) -> list[str]:
    frame = Frame(
        running=of,
        now=12.5,
        since=5.0,
        columns=columns,
        lines=lines,
        style=style or Style(),
        redact=redact,
        left_s=left_s,
    )
    drawn = frame.rows()
    assert not any(char in row.text for row in drawn for char in "\n\r\t")
    assert all(row.columns == cell_len(row.text) < columns for row in drawn if "\x1b" not in row.text)
    return [row.text for row in drawn]


def test_a_stage_shows_its_kind_its_time_what_it_does_and_its_last_lines() -> None:
    assert rows(running(lines=("compiling", "linking"))) == [
        " > s0  shell       2.5s   make all",
        "   | compiling",
        "   | linking",
        " 1 of 3 stages done, 1 running   7.5s",
    ]


def test_the_attempt_shows_from_the_second_on() -> None:
    of = running()
    of.stages["s0"].attempt, of.stages["s0"].attempts = 2, 3
    assert rows(of)[0].endswith("2.5s   attempt 2 of 3, make all")


def test_the_totals_have_failures_money_and_the_expected_rest() -> None:
    of = running()
    of.calls, of.cost, of.limit = 3, Decimal("0.12"), Decimal(2)
    of.ended = {"done": StageStatus.FAILED, "later": StageStatus.BLOCKED}
    assert "\n".join(rows(of, left_s=95.0, columns=120)[-2:]) == (
        " 1 of 3 stages done, 1 failed, 1 blocked, 1 running   7.5s   3 calls, $0.12 of $2.00\n     up to 1m 35s left"
    )


@pytest.mark.parametrize("columns", [20, 60, 100, 200])
@pytest.mark.parametrize("lines", [5, 12, 24, 60])
def test_a_frame_fits_into_every_terminal(columns: int, lines: int) -> None:
    drawn = rows(running(40, lines=("一二三四五六七八九十" * 9, "x" * 300)), columns=columns, lines=lines)
    assert len(drawn) <= max(3, min(24, lines - 2))
    totals = next(number for number, row in enumerate(drawn) if row.startswith(" 1 of 42"))
    assert " more" in drawn[totals - 1]
    assert len(drawn) - totals == 1 or (columns < 60 and lines > 9)


def test_with_few_lines_stages_come_before_their_output() -> None:
    drawn = rows(running(4, lines=("one", "two")), lines=12)
    assert [row.strip().split()[0] for row in drawn] == [">", ">", ">", ">", "1"]


def test_colors_and_cursor_movements_of_a_program_do_not_reach_the_terminal() -> None:
    drawn = rows(running(lines=("\x1b[31mred\x1b[0m", "\x1b[2J\x1b[1;1H\rgone\x07")))
    assert drawn[1] == "   | red"
    assert not any("\x1b" in row or "\r" in row or "\x07" in row for row in drawn)


@pytest.mark.parametrize("text", ["a\nb\n", "a\tb", "a\x0bb\x0cc\x85d\u2028e", "a\rb\r\n", "क्षि👍🏽❤\ufe0f🇩🇪\n" * 40])
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_text_takes_one_row(text: str, columns: int) -> None:
    of = running(doing=text, lines=(text,))
    of.stages["s0"].line = text
    drawn = rows(of, columns=columns)
    assert len(drawn) == 4
    assert len(rows(running(doing=f"bash -euo pipefail -c '{text}'"), columns=columns)) == 2


def test_a_row_is_not_wider_than_what_a_narrow_terminal_breaks_into_three() -> None:
    assert len(rows(running(doing="x" * 500), columns=300)[0]) == 100


@pytest.mark.parametrize(("columns", "lines"), [(200, 24), (200, 50), (80, 24), (60, 12)])
def test_a_frame_stays_on_the_screen_if_the_terminal_becomes_narrow(columns: int, lines: int) -> None:
    drawn = rows(running(20, doing="x" * 500, lines=("y" * 500,) * 2), columns=columns, lines=lines)
    assert sum(-(-cell_len(row) // 40) for row in drawn) <= lines


def test_a_secret_is_redacted_before_a_line_is_cut() -> None:
    of = running(lines=("token " + "s3cr3t" * 20,), doing="login " + "s3cr3t" * 20)
    drawn = rows(of, columns=30, redact=lambda text: text.replace("s3cr3t" * 20, "[redacted]"))
    assert "s3cr3t" not in "".join(drawn)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    drawn = rows(running(doing="x" * 200), style=Style(marks=ASCII))
    assert "".join(drawn).isascii()
    drawn = rows(running(doing="\u2014" * 200, lines=("\u2014" * 200,)), style=Style(marks=ASCII), columns=60)
    assert [len(row) for row in drawn[:2]] == [59, 59], "escapes are wider than what they replace"
    assert "\\u2014" in drawn[1]


def test_a_text_for_bash_is_shown_as_its_author_wrote_it() -> None:
    assert rows(running(doing="bash -euo pipefail -c 'echo '\"'\"'hi'\"'\"''"))[0].endswith("   echo 'hi'")


def test_colors_do_not_count_as_width() -> None:
    frame = Frame(running=running(doing="x" * 200), now=12.5, since=5.0, columns=40, lines=20, style=Style(color=True))
    assert [row.columns for row in frame.rows()] == [39, 37]
    assert all("\x1b[" in row.text for row in frame.rows())
