"""The list of runs, and the lines of a journal."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.features.inspecting.runs import RunSummary, list_runs, log_line, runs_text
from orch23.model.event import parse_event
from orch23.store.run_logs import run_ids
from tests.unit.store.test_run_logs import EVENTS, of_day, write


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    write(tmp_path, "20260101T000000Z-0000000a", EVENTS)
    write(tmp_path, "20260103T000000Z-0000000a", EVENTS[:3])
    path = write(tmp_path, "20260102T000000Z-0000000a", EVENTS)
    path.write_bytes(path.read_bytes().replace(b"go", b"no"))
    (tmp_path / "20260103T000000Z-0000000a").mkdir()
    found = list_runs(tmp_path)
    assert [(run.run_id[:8], run.status) for run in found] == [
        ("20260103", "interrupted"),
        ("20260102", "damaged"),
        ("20260101", "ok"),
    ]
    assert found[2].counts == {"built": 1}
    assert found[2].pipeline == "p.yaml"
    assert found[2].started == "2026-11-21T14:30:22.123Z"
    assert found[0].finished is None


def test_a_list_of_runs_parses_lines_and_the_ends_of_journals_and_the_ids_one_of_each_journal(tmp_path: Path) -> None:
    middle = [parse_event("stage_finished", "done", f"s{i}", data={"status": "built", "key": "k"}) for i in range(50)]
    for number in "123":
        write(tmp_path, number, [EVENTS[0], *middle, *(EVENTS[-1:] if number == "1" else [])])
    with patch("orch23.store.run_logs.parse_event", wraps=parse_event) as parsed:
        assert [run.counts for run in list_runs(tmp_path)] == [{"built": 50}] * 3
        assert parsed.call_count == 53 + 53 + 54
        assert run_ids(tmp_path) == [of_day(number) for number in "321"]
        assert parsed.call_count == 53 + 53 + 54 + 3


def test_of_a_run_that_ended_without_a_call_the_two_ends_are_parsed(tmp_path: Path) -> None:
    last = parse_event("run_finished", "ok", data={"status": "ok", "stages": {"built": 50, "fresh": 7}})
    middle = [parse_event("stage_finished", "done", f"s{i}", data={"status": "built", "key": "k"}) for i in range(50)]
    write(tmp_path, "1", [EVENTS[0], *middle, last])
    with patch("orch23.store.run_logs.parse_event", wraps=parse_event) as parsed:
        (run,) = list_runs(tmp_path)
    assert (run.status, run.counts, run.pipeline, parsed.call_count) == ("ok", {"built": 50, "fresh": 7}, "p.yaml", 2)
    paid = parse_event("run_finished", "ok", data={"status": "ok", "stages": {"built": 50}, "calls": 1})
    write(tmp_path, "2", [EVENTS[0], *middle, paid])
    with patch("orch23.store.run_logs.parse_event", wraps=parse_event) as parsed:
        assert [one.calls for one in list_runs(tmp_path)] == [1, 0]
        assert parsed.call_count == 2 + 2 + 52


@pytest.mark.slow
def test_a_list_of_runs_has_those_with_an_id_whatever_is_damaged(tmp_path: Path) -> None:
    data = write(tmp_path / "whole", "r", EVENTS).read_bytes()
    lines = data.splitlines(keepends=True)
    ends = {at + beside for at, byte in enumerate(data) if byte == 10 for beside in (0, 1, 2)}
    some = range(0, len(data), 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 5)
    cases = [data[:size] for size in sorted({*some, *ends})]
    cases += [data[:at] + b"\r" + data[at + 1 :] for at in sorted({*some, *ends}) if at < len(data)]
    cases += [b"".join(lines[:at] + more + lines[at:]) for at in range(6) for more in ([b"\n"], [b"{}\n"], lines[:1])]
    cases += [b"".join(lines[:at] + lines[at + 1 :]) for at in range(5)]
    path = tmp_path / "logs" / f"{of_day('1')}.jsonl"
    path.parent.mkdir()
    for case in cases:
        path.write_bytes(case)
        found = list_runs(path.parent)
        assert run_ids(path.parent) == [run.run_id for run in found], case


def test_runs_are_one_line_each(zone: Callable[[str], None]) -> None:
    zone("EET-2")
    assert runs_text([]) == "there are no runs\n"
    reported = runs_text(
        [
            RunSummary(
                run_id="r4",
                status="ok",
                pipeline="p.yaml",
                started="2026-11-21T23:48:16.048Z",
                counts={"fresh": 2},
                duration_s=0.25,
            ),
            RunSummary(run_id="r3", status="failed", duration_s=65, calls=3, cost="0.005", possible_cost="0.16"),
            RunSummary(run_id="r2", status="ok", counts={"built": 1}, duration_s=2, calls=1, unpriced=1),
            RunSummary(run_id="r1", status="damaged", started="not a time"),
        ],
    )
    assert reported == (
        "r4  2026-11-22 01:48  ok       p.yaml  0.2s    2 fresh\n"
        "r3                    failed           1m 05s  3 calls, $0.005, at most $0.16 more\n"
        "r2                    ok               2.0s    1 built, 1 call, price of 1 call unknown\n"
        "r1                    damaged\n"
    )


def test_a_line_of_the_log_has_time_stage_and_message() -> None:
    moment = "2026-11-21T23:48:16.048Z"
    decided = parse_event(
        "stage_decided", "run", role="a", data={"decision": "run", "reasons": [{"code": "first_run"}]}
    )
    assert log_line(moment, decided) == "23:48:16.048  stage_decided     a: run: first_run\n"
    hostile = parse_event("warning", "x\x1b[2J\ny", level="warning")
    assert log_line(moment, hostile) == "23:48:16.048  warning           warning: x\\x1b[2J y\n"
