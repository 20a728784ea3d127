"""What earlier runs leave to the next: failures, the answers and the ends of a run that was cut off."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orch23.model.event import Event
from orch23.store.history import History, read_history
from orch23.store.journal import Journal


def run(logs: Path, second: int, *events: Event, lock: str = "l1", pipeline: str = "p.yaml") -> None:
    journal = Journal(logs, f"20260101T0000{second:02d}Z-abcdef01", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    journal.notice(Event("run_started", "", data={"pipeline": pipeline, "lock": lock}))
    for event in events:
        journal.notice(event)
    journal.close()


def ended(stage: str, status: str, key: str) -> Event:
    return Event("stage_finished", "", role=stage, data={"status": status, "key": key})


def answered(fingerprint: str, *, replayed: bool) -> Event:
    return Event("llm_response", "", role="a", data={"fingerprint": fingerprint, "replayed": replayed})


FINISHED = Event("run_finished", "", data={"status": "failed", "exit_code": 1})


def test_a_pipeline_that_never_ran_has_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path, "p.yaml", "l1") == History()


def test_a_run_that_came_to_its_end_leaves_its_failures_alone(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "failed", "k1"), ended("b", "built", "k2"), answered("f1", replayed=False), FINISHED)
    assert read_history(tmp_path, "p.yaml", "l1") == History(failed={"a": "k1"})


def test_a_run_that_was_cut_off_leaves_answers_ends_and_what_it_spent(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("b", "built", "k2"), answered("f1", replayed=False), answered("f2", replayed=True))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {"b": "k2"}
    assert left.reusable == {"f1", "f2"}
    assert left.calls == 1


def test_runs_that_were_cut_off_one_after_the_other_stand_together(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "built", "k1"), answered("f1", replayed=False))
    run(tmp_path, 2, ended("b", "built", "k2"), answered("f2", replayed=False))
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {"a": "k1", "b": "k2"}
    assert left.calls == 2


def test_after_a_switch_of_branches_the_ends_are_of_another_lock_file(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("b", "built", "k2"), answered("f1", replayed=False), lock="of the other branch")
    left = read_history(tmp_path, "p.yaml", "l1")
    assert left.unlocked == {}
    assert left.reusable == {"f1"}


@pytest.mark.parametrize("status", ["failed", "blocked", "edited", "cancelled"])
def test_only_what_came_out_green_is_taken_as_done(tmp_path: Path, status: str) -> None:
    run(tmp_path, 1, ended("b", status, "k2"))
    assert read_history(tmp_path, "p.yaml", "l1").unlocked == {}


def test_another_pipeline_has_a_history_of_its_own(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("a", "failed", "k1"), FINISHED)
    run(tmp_path, 2, ended("a", "built", "k9"), pipeline="q.yaml")
    assert read_history(tmp_path, "p.yaml", "l1") == History(failed={"a": "k1"})
