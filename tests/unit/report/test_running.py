"""What runs during a build, as the events and the output of steps tell it."""

from decimal import Decimal
from typing import Any

import pytest

from orch23.model.event import parse_event
from orch23.report.running import RunningStages


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


def test_a_model_that_writes_is_not_waited_for() -> None:
    running = told(("stage_started", "a", {}), ("llm_request", "a", {"provider": "openai", "model": "m"}))
    running.print("a", (), "def")
    assert running.stages["a"].doing == "receiving from openai m"
