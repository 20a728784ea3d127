"""What earlier runs leave to the next: failures, the answers and the ends of a run that was cut off."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from orch23.model.digest import Json
from orch23.model.event import Event, parse_event
from orch23.model.event_data import UsageTotals
from orch23.model.plan import RunHistory
from orch23.store.history import read_history
from orch23.store.run_logs import Journal


def run(logs: Path, second: int, *events: Event, lock: str = "l1", pipeline: str = "p.yaml") -> None:
    journal = Journal(logs, f"20260101T0000{second:02d}Z-abcdef01", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    journal.notice(parse_event("run_started", "", data={"pipeline": pipeline, "lock": lock}))
    for event in events:
        journal.notice(event)
    journal.close()


def ended(stage: str, status: str, key: str) -> Event:
    return parse_event("stage_finished", "", role=stage, data={"status": status, "key": key})


def answered(fingerprint: str, *, replayed: bool, mode: str = "cached") -> Event:
    return parse_event(
        "llm_response", "", role="a", data={"fingerprint": fingerprint, "replayed": replayed, "mode": mode}
    )


def asked(fingerprint: str, *, mode: str = "cached") -> Event:
    return parse_event("llm_request", "", role="a", data={"fingerprint": fingerprint, "recorded": False, "mode": mode})


FINISHED = parse_event("run_finished", "", data={"status": "failed", "exit_code": 1})


def test_a_pipeline_that_never_ran_has_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path, "p.yaml", "l1") == RunHistory()


def test_a_run_that_came_to_its_end_leaves_its_failures_alone(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "failed", "k1"), ended("b", "built", "k2"), answered("f1", replayed=False), FINISHED)
    assert read_history(tmp_path, "p.yaml", "l1") == RunHistory(failed={"a": "k1"})


def test_an_interrupted_run_leaves_responses_outcomes_and_what_it_spent(tmp_path: Path) -> None:
    call = (reserved("a", 100, None, "f1"), settled("a", 1, 0, None, "f1"), answered("f1", replayed=False))
    run(tmp_path, 1, ended("b", "built", "k2"), *call, answered("f2", replayed=True))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {"b": "k2"}
    assert left.spent == {"a": UsageTotals(1)}


def test_of_an_interrupted_run_only_new_calls_are_reusable(tmp_path: Path) -> None:
    run(
        tmp_path,
        1,
        *(asked("f1"), answered("f1", replayed=False), answered("f2", replayed=True)),
        *(asked("f3", mode="record"), answered("f3", replayed=False, mode="record"), asked("f4", mode="record")),
    )
    assert read_history(tmp_path, "p.yaml", "l1").reusable == {"f3", "f4"}


def test_runs_that_were_cut_off_one_after_the_other_stand_together(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "built", "k1"), reserved("a", 100, None, "f1"), settled("a", 1, 0, None, "f1"))
    run(tmp_path, 2, ended("b", "built", "k2"), reserved("a", 100, None, "f2"), settled("a", 1, 0, None, "f2"))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {"a": "k1", "b": "k2"}
    assert left.spent == {"a": UsageTotals(2)}


def test_after_a_switch_of_branches_the_ends_are_of_another_lock_file(tmp_path: Path) -> None:
    again = answered("f1", replayed=False, mode="record")
    run(tmp_path, 1, ended("b", "built", "k2"), again, lock="of the other branch")
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {}
    assert left.reusable == {"f1"}


@pytest.mark.parametrize("status", ["failed", "blocked", "edited", "cancelled", "held"])
def test_only_what_came_out_green_is_taken_as_done(tmp_path: Path, status: str) -> None:
    run(tmp_path, 1, ended("b", status, "k2"))
    assert read_history(tmp_path, "p.yaml", "l1").unlocked == {}


def test_another_pipeline_has_a_history_of_its_own(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "failed", "k1"), FINISHED)
    run(tmp_path, 2, ended("a", "built", "k9"), pipeline="q.yaml")
    assert read_history(tmp_path, "p.yaml", "l1") == RunHistory(failed={"a": "k1"})


# ---- what an interrupted run has spent ---------------------------------------------------------------


def reserved(stage: str, tokens: int, cost: str | None, fingerprint: str = "f") -> Event:
    data: dict[str, Json] = {"fingerprint": fingerprint, "calls": 1, "tokens": tokens, "cost": cost}
    return parse_event("call_reserved", "", role=stage, data=data)


def settled(stage: str, calls: int, tokens: int, cost: str | None, fingerprint: str = "f") -> Event:
    data: dict[str, Json] = {"fingerprint": fingerprint, "calls": calls, "tokens": tokens, "cost": cost}
    return parse_event("call_settled", "", role=stage, data=data)


def spent(logs: Path) -> dict[str, UsageTotals]:
    return dict(read_history(logs, "p.yaml", "l1").spent)


def test_what_was_settled_counts_as_settled_and_the_rest_in_full(tmp_path: Path) -> None:
    run(
        tmp_path,
        1,
        *(reserved("a", 100, "0.5"), reserved("b", 200, "0.7"), settled("a", 1, 10, "0.05")),
        *(reserved("a", 100, "0.5", "f2"), settled("a", 0, 0, "0", "f2")),
        reserved("c", 300, "0.9"),
    )
    assert spent(tmp_path) == {
        "a": UsageTotals(1, 10, Decimal("0.05")),
        "b": UsageTotals(1, 0, Decimal(0), 200, Decimal("0.7")),
        "c": UsageTotals(1, 0, Decimal(0), 300, Decimal("0.9")),
    }


def test_a_reported_response_is_not_counted_beside_its_reservation(tmp_path: Path) -> None:
    run(tmp_path, 1, reserved("a", 100, "0.5"), settled("a", 1, 10, "0.05"), answered("f", replayed=False))
    assert spent(tmp_path) == {"a": UsageTotals(1, 10, Decimal("0.05"))}


def test_a_reservation_that_another_one_follows_unsettled_is_not_forgotten(tmp_path: Path) -> None:
    run(tmp_path, 1, reserved("a", 100, "0.5"), reserved("a", 100, "0.5"), settled("a", 1, 10, "0.1"))
    assert spent(tmp_path) == {"a": UsageTotals(2, 10, Decimal("0.1"), 100, Decimal("0.5"))}


def collecting(stage: str, fingerprint: str) -> Event:
    data: dict[str, Json] = {"fingerprint": fingerprint, "calls": 1, "tokens": 100, "cost": "0.5", "collects": True}
    return parse_event("call_reserved", "", role=stage, data=data)


def test_a_submitted_response_has_its_part_of_what_was_spent(tmp_path: Path) -> None:
    run(tmp_path, 1, reserved("a", 100, "0.5", "f1"), submitted("f1", "r"), reserved("b", 100, "0.5", "f2"))
    left = read_history(tmp_path, "p.yaml", "l1")
    possible = UsageTotals(1, 0, Decimal(0), 100, Decimal("0.5"))
    assert left.spent == {"a": possible, "b": possible}
    assert left.uncollected == {"f1": possible}, "the other one was not submitted"


def test_a_reservation_that_a_later_run_took_over_counts_once(tmp_path: Path) -> None:
    possible = UsageTotals(1, 0, Decimal(0), 100, Decimal("0.5"))
    run(tmp_path, 1, reserved("a", 100, "0.5", "f1"), submitted("f1", "r"))
    run(tmp_path, 2, collecting("a", "f1"))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert (left.spent, left.uncollected) == ({"a": possible}, {"f1": possible})
    run(tmp_path, 3, collecting("a", "f1"), settled("a", 1, 10, "0.05", "f1"))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert (left.spent, left.uncollected) == ({"a": UsageTotals(1, 10, Decimal("0.05"))}, {})


def test_a_run_that_came_to_an_end_leaves_nothing_spent(tmp_path: Path) -> None:
    run(tmp_path, 1, reserved("a", 100, "0.5"), settled("a", 1, 10, "0.05"), FINISHED)
    assert spent(tmp_path) == {}


def submitted(fingerprint: str, response_id: str) -> Event:
    data: dict[str, Json] = {"fingerprint": fingerprint, "response_id": response_id, "provider": "openai"}
    return parse_event("call_submitted", "", role="a", data=data)


def closed(fingerprint: str, *, forfeited: bool) -> Event:
    return parse_event(
        "call_settled", "", role="a", data={"fingerprint": fingerprint, "forfeited": forfeited, "calls": 1}
    )


def test_what_was_submitted_and_never_came_is_left_to_be_collected(tmp_path: Path) -> None:
    run(tmp_path, 1, submitted("f1", "r1"), submitted("f2", "r2"), answered("f2", replayed=False))
    run(tmp_path, 2, submitted("f3", "r3"), submitted("f4", "r4"), closed("f4", forfeited=False), submitted("f1", "r5"))
    assert read_history(tmp_path, "p.yaml", "l1").submitted == {"f1": "r5", "f3": "r3"}


def test_a_run_that_ended_without_its_response_leaves_it_to_the_next_one_alone(tmp_path: Path) -> None:
    run(tmp_path, 1, submitted("f1", "r1"), closed("f1", forfeited=True), FINISHED)
    assert read_history(tmp_path, "p.yaml", "l1").submitted == {"f1": "r1"}
    run(tmp_path, 2, FINISHED)
    assert read_history(tmp_path, "p.yaml", "l1").submitted == {}


def test_a_green_run_leaves_nothing_to_be_collected(tmp_path: Path) -> None:
    green = parse_event("run_finished", "", data={"status": "ok", "exit_code": 0})
    run(tmp_path, 1, submitted("f1", "r1"), green)
    assert read_history(tmp_path, "p.yaml", "l1").submitted == {}


def test_the_result_of_a_batch_that_another_stage_takes_is_still_to_be_collected(tmp_path: Path) -> None:
    taken = reserved("b", 100, "0.5", "f1")
    run(tmp_path, 1, reserved("a", 100, "0.5", "f1"), submitted("f1", "batch l"), settled("a", 0, 0, "0", "f1"), taken)
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.submitted == {"f1": "batch l"}
    assert left.uncollected == {"f1": UsageTotals(1, 0, Decimal(0), 100, Decimal("0.5"))}
