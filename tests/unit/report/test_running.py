"""What runs, and the lines about stages that run for long."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from orch23.model.event import AttemptStarted, Event, LlmRequest, StageStarted, parse_event
from orch23.model.event_data import StageStatus
from orch23.report.live import LiveScreen
from orch23.report.running import Heartbeat, RunningStage, RunningStages


def told(*events: tuple[str, str, dict[str, Any]], running: RunningStages | None = None) -> RunningStages:
    running = running or RunningStages()
    for number, (kind, role, data) in enumerate(events):
        running.notice(parse_event(kind, kind, role=role, data=data), float(number))
    return running


PLAN = (
    "plan",
    "orch23",
    {"stages": {"a": "shell", "rows": "llm", "z": "shell"}, "needs": {"rows": ["a"], "z": ["rows"]}},
)


@pytest.mark.parametrize(
    ("kind", "data", "doing"),
    [
        ("stage_started", {}, "starting"),
        ("llm_request", {"provider": "openai", "model": "m"}, "waiting for openai m"),
        ("llm_request", {"provider": "openai", "model": "m", "recorded": True}, "reading the recorded response"),
        ("rate_limit_wait", {"provider": "openai", "wait_s": 6.0}, "waiting for a rate limit of openai, about 6.0s"),
        ("http_retry", {"status": 529, "delay_s": 2.5}, "sending the request again in 2.5s (529)"),
        ("http_retry", {"code": "E410", "delay_s": 1.0}, "sending the request again in 1.0s (E410)"),
        ("llm_response", {}, "checking the response"),
    ],
)
def test_a_stage_says_what_it_does(kind: str, data: dict[str, Any], doing: str) -> None:
    assert told(("stage_started", "a", {}), (kind, "a", data)).stages["a"].doing == doing


def test_the_end_of_a_wait_for_a_rate_limit_shows() -> None:
    running = told(("stage_started", "a", {}), ("rate_limit_wait", "a", {"provider": "p"}), ("call_reserved", "a", {}))
    assert running.stages["a"].doing == "sending the request"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("stage_finished", {"status": "built"}),
        ("stage_held", {}),
        ("stage_awaiting", {}),
        ("stage_decided", {"decision": "run"}),
    ],
)
def test_a_stage_that_ended_or_waits_does_not_run(kind: str, data: dict[str, Any]) -> None:
    assert not told(("stage_started", "a", {}), (kind, "a", data)).stages


def test_items_take_the_place_of_their_foreach_and_count() -> None:
    running = told(PLAN, ("stages_added", "rows", {"items": ["rows@1", "rows@2"]}))
    assert [*running.names] == ["a", "rows@1", "rows@2", "z"]
    assert running.kind_of("rows@2") == "llm"


def test_output_belongs_to_the_step_that_printed_it() -> None:
    running = told(("stage_started", "a", {}))
    running.step("a", "make")
    running.print("a", ["one", "two", "three"], "fo")
    assert running.stages["a"].last_lines(2) == ["three", "fo"]
    assert running.stages["a"].last_lines(0) == []
    running.step("a", "pytest -q")
    assert (running.stages["a"].doing, running.stages["a"].last_lines(2)) == ("pytest -q", [])
    running.print("a", ["", "  "], "")
    assert running.stages["a"].last_lines(2) == []
    running.print("b", ["of a stage that does not run"], "")


def test_money_is_known_or_possible() -> None:
    running = told(
        ("run_started", "orch23", {"limits": {"max_cost_usd": "2"}}),
        ("call_reserved", "a", {"fingerprint": "f", "calls": 1, "cost": "0.5"}),
        ("call_reserved", "b", {"fingerprint": "f", "calls": 1, "cost": "0.25"}),
    )
    assert (running.cost, running.possible_cost, running.limit) == (Decimal(0), Decimal("0.75"), Decimal(2))
    told(("call_settled", "a", {"fingerprint": "f", "calls": 1, "cost": "0.125"}), running=running)
    assert (running.cost, running.possible_cost, running.calls) == (Decimal("0.125"), Decimal("0.25"), 1)
    told(("call_settled", "b", {"fingerprint": "f", "calls": 1, "forfeited": True}), running=running)
    assert (running.cost, running.possible_cost, running.calls) == (Decimal("0.125"), Decimal("0.25"), 2)
    told(
        ("call_reserved", "b", {"fingerprint": "g", "calls": 1, "cost": "1"}),
        ("call_settled", "b", {"fingerprint": "g", "released": True}),
        running=running,
    )
    assert (running.cost, running.possible_cost, running.calls) == (Decimal("0.125"), Decimal("0.25"), 2)


@pytest.mark.parametrize(
    ("jobs", "usual", "left"),
    [
        (1, {"a": 2.0, "rows": 3.0, "z": 5.0}, 13.0),
        (4, {"a": 2.0, "rows": 3.0, "z": 5.0}, 10.0),
        (4, {"a": 2.0, "rows": 3.0, "rows@2": 7.0, "z": 5.0}, 14.0),
        (4, {"a": 2.0, "rows": 3.0}, None),
        (0, {"a": 2.0, "rows": 3.0, "z": 5.0}, 13.0),
    ],
)
def test_the_rest_of_a_build_is_simulated_from_usual_durations(
    jobs: int, usual: dict[str, float], left: float | None
) -> None:
    running = told(
        ("run_started", "orch23", {"jobs": jobs}), PLAN, ("stages_added", "rows", {"items": ["rows@1", "rows@2"]})
    )
    assert running.left_s(usual, 0.0) == left


def test_what_a_running_stage_has_done_counts() -> None:
    running = told(PLAN, ("stage_started", "a", {}))
    usual = {"a": 6.0, "rows": 3.0, "z": 5.0}
    assert running.left_s(usual, 1.0) == 14.0
    assert running.left_s(usual, 4.0) == 11.0
    # Slower than ever: what comes after it is still to be done.
    assert running.left_s(usual, 60.0) == 8.0


def test_on_a_cluster_as_many_stages_count_as_run_now() -> None:
    running = told(
        ("run_started", "orch23", {"jobs": 0}), PLAN, ("stages_added", "rows", {"items": ["rows@1", "rows@2"]})
    )
    usual = {"a": 2.0, "rows": 3.0, "z": 5.0}
    told(("stage_finished", "a", {"status": "built"}), running=running)
    told(("stage_started", "rows@1", {}), ("stage_started", "rows@2", {}), running=running)
    assert running.left_s(usual, 1.0) == 8.0


def test_only_what_ran_counts_as_done() -> None:
    stages = dict.fromkeys(("built", "fresh", "failed", "blocked", "cancelled", "skipped", "later"), "shell")
    running = told(("plan", "orch23", {"stages": stages}))
    assert running.progress() == "0 of 7 stages done"
    told(*(("stage_finished", name, {"status": name}) for name in [*stages][:-1]), running=running)
    assert running.progress() == "3 of 6 stages done, 1 failed, 1 blocked, 1 cancelled"


def test_a_model_that_writes_is_not_waited_for() -> None:
    running = told(("stage_started", "a", {}), ("llm_request", "a", {"provider": "openai", "model": "m"}))
    running.print("a", (), "def")
    assert running.stages["a"].doing == "receiving from openai m"


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


def test_a_command_of_several_lines_is_in_one() -> None:
    script = "\n".join(f"echo {number}\t" for number in range(99))
    running = RunningStages(
        stages={"code": RunningStage(name="code", since=0.0, doing=f"bash -euo pipefail -c '{script}'")}
    )
    (line,) = beats(running, until=10)[10]
    assert line.startswith("still running: code (10.0s: echo 0\\t\\necho 1\\t\\n")
    assert line.endswith("...)")
    assert len(line) < 150


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
    running = RunningStages(
        names=dict.fromkeys(map(str, range(1000))), ended={"1": StageStatus.BUILT, "2": StageStatus.FAILED}
    )
    assert beats(running, until=100, counts=True) == {30: ["2 of 1,000 stages done, 1 failed"]}
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
    view: Any = SimpleNamespace(area=None, clock=lambda: 0.0, watch=lambda _: None)
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
