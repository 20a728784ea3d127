"""Metrics files of runs, read from journals."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import UNSET

from orch23.features.metrics import states
from orch23.features.metrics.states import StageFile, runs_with_metrics, stage_keys
from orch23.model.event import Event, RunStarted, StageFinished
from orch23.model.event_data import StageStatus
from orch23.store.run_logs import Journal


def _write(logs: Path, run: str, *ends: tuple[str, StageFinished], pipeline: str = "pipeline.yaml") -> None:
    journal = Journal(logs, run, lambda: datetime(2026, 11, 26, tzinfo=UTC))
    journal.notice(Event(RunStarted(pipeline=pipeline), "began"))
    for stage, end in ends:
        journal.notice(Event(end, 'has "metrics":{', stage))
    journal.close()


def _end(status: StageStatus = StageStatus.BUILT, key: str = "", **files: str) -> StageFinished:
    return StageFinished(status=status, key=key, metrics=files or UNSET)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    _write(tmp_path, "20260101T000001Z-0000000a", ("s", _end(a="1", b="1")), ("t", _end(c="1")))
    _write(tmp_path, "20260101T000002Z-0000000a", ("s", _end(key="k")))
    _write(tmp_path, "20260101T000003Z-0000000a", ("s", _end(a="9")), pipeline="other.yaml")
    _write(tmp_path, "20260101T000004Z-0000000a", ("s@1", _end(a="2")), ("s@2", _end(a="3")))
    return tmp_path


def test_runs_of_the_pipeline_that_name_metrics_newest_first(logs: Path) -> None:
    found = [*runs_with_metrics(logs, "pipeline.yaml", "20260101T000004Z-0000000a")]
    assert [(one.run_id[14], dict(one.files)) for one in found] == [
        ("4", {"a": StageFile("s@2", "3")}),
        ("1", {"a": StageFile("s", "1"), "b": StageFile("s", "1"), "c": StageFile("t", "1")}),
    ]
    assert [one.run_id[14] for one in runs_with_metrics(logs, "pipeline.yaml", "20260101T000002Z-0000000a")] == ["1"]
    assert [*runs_with_metrics(logs, "pipeline.yaml", "nothing")] == []
    assert [*runs_with_metrics(logs / "none", "pipeline.yaml", "x")] == []


def test_a_damaged_line_is_skipped(logs: Path) -> None:
    path = logs / "20260101T000001Z-0000000a.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"b":"1"', b'"b":"2"') + b'{"type":"stage_finished","metrics":{')
    found = [*runs_with_metrics(logs, "pipeline.yaml", "20260101T000001Z-0000000a")]
    assert [dict(one.files) for one in found] == [{"c": StageFile("t", "1")}]


def test_at_most_so_many_journals_are_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MAX_JOURNALS", 2)
    found = [*runs_with_metrics(logs, "pipeline.yaml", "20260101T000004Z-0000000a")]
    assert [one.run_id[14] for one in found] == ["4"]


def test_keys_are_those_of_the_newest_result(logs: Path) -> None:
    _write(logs, "20260101T000005Z-0000000a", ("s", _end(StageStatus.FAILED, "failed")), ("t", _end(key="t5")))
    keys = stage_keys(logs, "pipeline.yaml", "20260101T000005Z-0000000a", ["s", "t", "u"])
    assert keys == {"s": "k", "t": "t5"}
    assert stage_keys(logs, "pipeline.yaml", "20260101T000001Z-0000000a", ["s"]) == {}
