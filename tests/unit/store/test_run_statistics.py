"""What stages took before is read from the newest journals of the pipeline, and never stops a plan."""

from datetime import UTC, datetime
from pathlib import Path

from orch23.model.digest import Json
from orch23.model.event import Event, parse_event
from orch23.store.history import StageStatistics, read_statistics, statistics_of
from orch23.store.run_logs import Journal


def run(logs: Path, second: int, *events: Event, pipeline: str = "p.yaml") -> Path:
    journal = Journal(logs, f"20260101T0000{second:02d}Z-abcdef01", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    journal.notice(parse_event("run_started", "", data={"pipeline": pipeline}))
    for event in events:
        journal.notice(event)
    journal.close()
    return journal.path


def ended(stage: str, seconds: float, *, status: str = "built", calls: int = 1, recorded: int = 0) -> Event:
    data: dict[str, Json] = {"status": status, "duration_s": seconds, "calls": calls, "recorded": recorded}
    return parse_event("stage_finished", "", role=stage, data=data)


def called(stage: str, model: str) -> Event:
    return parse_event("llm_request", "", role=stage, data={"provider": "local", "model": model})


def answered(stage: str, given: int, written: int) -> Event:
    return parse_event("llm_response", "", role=stage, data={"input_tokens": given, "output_tokens": written})


def test_a_pipeline_that_never_ran_has_no_past(tmp_path: Path) -> None:
    assert read_statistics(tmp_path / "logs", "p.yaml", "a", {}) == {}


def test_durations_and_tokens_are_read_newest_first(tmp_path: Path) -> None:
    run(tmp_path, 1, answered("a", 10, 2), ended("a", 1.5))
    run(tmp_path, 2, answered("a", 12, 3), ended("a", 2.5), ended("s", 0.5, calls=0))
    assert read_statistics(tmp_path, "p.yaml", "abcds", {}) == {
        "a": StageStatistics(durations_s=(2.5, 1.5), tokens=((12, 3), (10, 2))),
        "s": StageStatistics(durations_s=(0.5,)),
    }


def test_what_says_nothing_of_the_next_run_is_left_out(tmp_path: Path) -> None:
    replayed = ended("a", 0.1, calls=0, recorded=2)  # quick, since no one was asked
    run(tmp_path, 1, replayed, ended("b", 0.0, status="fresh"), ended("c", 9.0, status="failed"), answered("d", 0, 0))
    assert read_statistics(tmp_path, "p.yaml", "abcds", {}) == {}


def test_runs_with_another_model_or_with_recorded_responses_do_not_count(tmp_path: Path) -> None:
    run(tmp_path, 1, called("a@x", "big"), answered("a@x", 9, 9), ended("a@x", 9.0), ended("b", 3.0))
    run(tmp_path, 2, called("a@x", "small"), answered("a@x", 1, 1), ended("a@x", 1.0))
    run(tmp_path, 3, called("a@x", "small"), called("a@x", "big"), ended("a@x", 5.0, calls=2))
    run(tmp_path, 4, called("a@x", "small"), ended("a@x", 0.1, calls=1, recorded=1))
    past = read_statistics(tmp_path, "p.yaml", ["a", "b"], {"a": ("local small",)})
    small = StageStatistics(durations_s=(1.0,), tokens=((1, 1),))
    assert past == {"a": small, "a@x": small, "b": StageStatistics(durations_s=(3.0,))}


def test_only_the_newest_runs_of_the_pipeline_are_read(tmp_path: Path) -> None:
    for second in range(1, 8):
        run(tmp_path, second, ended("a", float(second)))
    run(tmp_path, 9, ended("a", 99.0), pipeline="other.yaml")
    assert read_statistics(tmp_path, "p.yaml", "a", {}) == {"a": StageStatistics(durations_s=(7.0, 6.0, 5.0, 4.0, 3.0))}


def test_a_damaged_journal_is_passed_over(tmp_path: Path) -> None:
    whole = run(tmp_path, 1, ended("a", 1.0))
    damaged = run(tmp_path, 2, ended("a", 2.0), ended("a", 3.0))
    lines = damaged.read_bytes().splitlines(keepends=True)
    deep = b'{"type":"stage_finished","role":"a","data":' + b"[" * 200_000 + b"\n"
    other = b'{"type":"stage_finished","role":"a","data":{"status":"built","duration_s":"1"}}\n'
    damaged.write_bytes(lines[0] + b'{"type":"stage_finished", broken\n' + deep + other + lines[2])
    (tmp_path / "20260101T000003Z-abcdef01.jsonl").write_bytes(b"\xff\n")
    assert read_statistics(tmp_path, "p.yaml", "abcds", {}) == {"a": StageStatistics(durations_s=(3.0, 1.0))}
    assert whole.exists()


def test_half_of_a_surrogate_pair_in_a_message_hides_no_event(tmp_path: Path) -> None:
    run(tmp_path, 1, parse_event("stage_finished", "\ud800", role="a", data={"status": "built", "duration_s": 1.0}))
    assert read_statistics(tmp_path, "p.yaml", "a", {}) == {"a": StageStatistics(durations_s=(1.0,))}


def test_a_new_item_takes_after_the_others_of_its_foreach(tmp_path: Path) -> None:
    run(tmp_path, 1, ended("code@a", 1.0), ended("code@b", 3.0), ended("x", 9.0))
    past = read_statistics(tmp_path, "p.yaml", ["code@new"], {})
    assert statistics_of(past, "code@a") == StageStatistics(durations_s=(1.0,))
    assert statistics_of(past, "code@new") == statistics_of(past, "code") == StageStatistics(durations_s=(1.0, 3.0))
    assert statistics_of(past, "unknown") == StageStatistics()
    assert "x" not in past  # which was not asked for
    many = read_statistics(tmp_path, "p.yaml", ["code", *map(str, range(99))], {})
    assert statistics_of(many, "code@b") == StageStatistics(durations_s=(3.0,))
