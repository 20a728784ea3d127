"""Lines are told while they come, if somebody wants to know, and never more than a bound."""

from types import SimpleNamespace
from typing import Any, cast

from orch23.attempt.run_events import MAX_LINES, Reporter, StageReporter
from orch23.model.event import Event, LlmText, StepOutput


def reporter(reported: list[Event], *, live: bool) -> StageReporter:
    observer, artifacts = SimpleNamespace(notice=reported.append), cast("Any", None)
    return Reporter(observer=observer, artifacts=artifacts, live=live).of_stage("a")


def test_nothing_is_reported_if_live_output_is_disabled() -> None:
    reported: list[Event] = []
    live = reporter(reported, live=False)
    assert live.step_lines("make") is None
    live.response_lines(1).feed("one\ntwo\n")
    assert reported == []


def test_lines_of_each_step_and_each_response_are_reported_up_to_a_limit() -> None:
    reported: list[Event] = []
    live = reporter(reported, live=True)
    for _ in range(2):
        hear = live.step_lines("make")
        assert hear is not None
        for number in range(MAX_LINES + 5):
            hear(str(number))
    assert len(reported) == 2 * (MAX_LINES + 1)
    assert reported[MAX_LINES - 1].data == StepOutput(step="make", line=str(MAX_LINES - 1))
    assert reported[MAX_LINES].data == StepOutput(step="make", cut=True)
    assert reported[MAX_LINES].message == "more than 1,000 lines: the rest is not shown"
    live.response_lines(2).feed("one\n")
    assert reported[-1] == Event(LlmText(attempt=2, line="one"), "one", "a", "debug")


def test_a_line_without_blanks_is_not_lost() -> None:
    reported: list[Event] = []
    live = reporter(reported, live=True)
    hear = live.step_lines("make")
    assert hear is not None
    hear("x" * 3_000)
    hear("short, as it is without what it repeated", cut=True)
    live.response_lines(1).feed(f"{'y' * 9_000}\nnext\n")
    assert [event.data for event in reported] == [
        StepOutput(step="make", line="x" * 2_000, cut=True),
        StepOutput(step="make", line="short, as it is without what it repeated", cut=True),
        LlmText(attempt=1, line="y" * 2_000, cut=True),
        LlmText(attempt=1, line="next"),
    ]
    assert reported[0].message == f"{'x' * 2_000}..."
