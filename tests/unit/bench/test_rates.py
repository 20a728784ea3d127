"""The bench of rate limits: the ideal, and what it prints."""

from dataclasses import replace
from typing import Any

import pytest

from bench import __main__ as bench
from bench import rates
from bench.ideal_rate import ideal_s
from bench.rates import CASES, Case, Outcome, main, play


@pytest.mark.parametrize(
    ("calls", "jobs", "call_s", "size", "per_s", "seconds"),
    [
        (10, 8, 0.0, 10, 1 / 6, 0.0),
        (20, 8, 0.0, 10, 1 / 6, 60.0),
        (20, 8, 5.0, 10, 1 / 6, 65.0),
        (300, 8, 0.1, 20, 20, 14.1),
        (8, 2, 1.0, 100, 100, 4.0),
    ],
)
def test_the_ideal_uses_every_token_and_every_job_at_once(
    calls: int, jobs: int, call_s: float, size: float, per_s: float, seconds: float
) -> None:
    assert ideal_s(calls, jobs, call_s, size, per_s) == pytest.approx(seconds)


def test_the_ideal_waits_for_a_server_that_is_down_and_for_calls_that_are_not_there_yet() -> None:
    assert ideal_s(3, 8, 1.0, 10, 1, down_s=8.0) == 9.0
    assert ideal_s(3, 8, 1.0, 1, 1, arrivals=(0.0, 5.0, 5.0)) == 7.0


def test_the_measured_cases_are_among_the_cases() -> None:
    found = {(one.stages, one.size, one.period_s, one.down_s) for one in CASES}
    assert {(20, 10, 60.0, 0.0), (300, 20, 1.0, 0.0), (20, 10**6, 1.0, 8.0)} <= found


def test_the_bench_of_rates_is_a_form_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "main", lambda: 7)
    assert bench.main(["rates"]) == 7


@pytest.mark.parametrize(
    ("change", "code"), [({}, 0), ({"code": 5}, 1), ({"accepted": 19}, 1), ({"calls_s": 100.0}, 1)]
)
def test_a_missed_goal_is_printed_and_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], code: int
) -> None:
    whole = Outcome(code=0, accepted=20, refused=9, calls_s=61.0, whole_s=63.0, printed="why")
    monkeypatch.setattr(rates, "play", lambda _case: replace(whole, **change))
    said: list[str] = []
    assert main((Case("twenty", 20, 10, 60.0),), said.append) == code
    assert ("missed" in said[1]) == bool(code)


@pytest.mark.slow
def test_a_short_case_is_played() -> None:
    found = play(Case("short", 12, 10, 0.5))
    assert (found.code, found.accepted) == (0, 12), found.printed
    assert 0 < found.calls_s < found.whole_s
