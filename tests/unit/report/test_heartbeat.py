"""What a log says about stages that run for long."""

from types import SimpleNamespace
from typing import Any

from orch23.model.event import AttemptStarted, Event, LlmRequest, StageStarted
from orch23.report.heartbeat import Heartbeat
from orch23.report.live import LiveScreen
from orch23.report.running import RunningStage, RunningStages


def beats(running: RunningStages, *, until: int, counts: bool = False) -> dict[int, list[str]]:
    heart = Heartbeat()
    said = {second: heart.lines(running, float(second), counts=counts) for second in range(until + 1)}
    return {second: lines for second, lines in said.items() if lines}


def stage(name: str, attempt: int = 1) -> RunningStage:
    return RunningStage(name=name, since=0.0, attempt=attempt, doing="waiting for openai m")


def test_a_line_comes_after_ten_seconds_and_then_less_and_less_often() -> None:
    said = beats(RunningStages(stages={"code": stage("code")}), until=600)
    assert [*said] == [10, 20, 40, 80, 160, 280, 400, 520]
    assert said[10] == ["still running: code (10.0s: waiting for openai m)"]
    assert said[160] == ["still running: code (2m 40s: waiting for openai m)"]


def test_stages_that_are_due_together_share_a_line() -> None:
    stages = {name: stage(name, attempt=2) for name in "abcdefg"}
    assert beats(RunningStages(stages=stages), until=12)[10] == [
        "still running: "
        + ", ".join(f"{name} (10.0s, attempt 2 for 10.0s: waiting for openai m)" for name in "abcde")
        + " and 2 more"
    ]


def test_a_stage_that_starts_again_is_quiet_for_ten_seconds_again() -> None:
    running, heart = RunningStages(stages={"a": stage("a")}), Heartbeat()
    assert heart.lines(running, 10.0, counts=False)
    running.stages.clear()
    assert not heart.lines(running, 11.0, counts=False)
    running.stages["a"] = RunningStage(name="a", since=11.0)
    assert not heart.lines(running, 20.0, counts=False)
    assert heart.lines(running, 21.0, counts=False)


def test_many_items_without_lines_are_counted_twice_a_minute_while_they_end() -> None:
    running = RunningStages(names=dict.fromkeys(map(str, range(1000))), done={"1", "2"})
    assert beats(running, until=100, counts=True) == {30: ["2 of 1,000 stages done"]}
    assert beats(running, until=100) == {}


def test_the_time_of_the_attempt_and_the_received_characters_are_shown() -> None:
    running = RunningStages(stages={"a": RunningStage(name="a", since=0.0)})
    for event in (AttemptStarted(attempt=2, max_attempts=3), LlmRequest(provider="openai", model="m")):
        running.notice(Event(data=event, message="", role="a"), 7.0)
    running.print("a", ["x" * 999, "", "y" * 99], "def")
    assert Heartbeat().lines(running, 10.0, counts=False) == [
        "still running: a (10.0s, attempt 2 for 3.0s: receiving from openai m, 1,104 characters)"
    ]


def test_a_step_that_began_before_anything_is_shown_is_not_shown_as_starting() -> None:
    view: Any = SimpleNamespace(area=None, clock=lambda: 0.0)
    screen: Any = SimpleNamespace(notice=lambda _event: None)
    live = LiveScreen(view=view, screen=screen, _is_watched=True)
    for name in ("a", "b"):
        live.notice(Event(StageStarted(), "", name))
    live.step("a", "make all")
    running = live._catch_up()
    live.step("b", "sleep 1 (no word from its worker for 45s)")
    assert Heartbeat().lines(running, 45.0, counts=False) == [
        "still running: a (45.0s: make all), b (45.0s: sleep 1 (no word from its worker for 45s))"
    ]
