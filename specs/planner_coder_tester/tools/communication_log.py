"""Write who said what in each run, and what pytest said of each task, from the journals that orch23 keeps in logs/.

For each finished run of the pipeline: RUNS/<run>.log.jsonl, one `{ts, role, type, data}` a line. It is written once,
and left as it is from then on. The report of a test result is made here, by rule: this is the tester, without a model.
RUNS/test_results.json holds the newest result of each task, for a tester that is a model.

    python communication_log.py [--pipeline FILE] [--runs FOLDER]     (from the root of the project)
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LIMIT, HEAD, TAIL = 4000, 2500, 1000
PIPELINE = "pipelines/planner_coder_tester.yaml"
RUNS = "workspace/planner_coder_tester/runs"
ROLES = {"plan": "planner", "code": "coder", "tester": "tester"}  # by the stage that does the work

Entry = dict[str, Any]


def shortened(text: str) -> str:
    """Return a text of up to 4000 characters as it is, and a longer one cut to 3505."""
    return text if len(text) <= LIMIT else f"{text[:HEAD]}\n...\n{text[-TAIL:]}"


def entries(events: Sequence[Entry], kept: Path) -> Iterator[tuple[Entry, Entry | None]]:
    """Give each entry of the log, and the input of the tester where it is a test result. `kept` are the run's texts."""
    red = set()
    for event in events:
        stage, _, task = event["role"].partition("@")
        if stage not in ROLES:
            continue
        data = event["data"]
        texts = kept / event["role"] / f"attempt-{data.get('attempt', 0)}"
        if event["type"] == "attempt_finished" and data["passed"] and stage != "code":
            answer = json.loads((texts / "response.txt").read_text(encoding="utf-8"))
            yield _entry(event, ROLES[stage], {"plan": "plan"}.get(stage, "report"), answer), None
        elif event["type"] == "files_proposed" and stage == "code":
            yield _entry(event, "coder", "patch", {"task_id": task, "files": sorted(data["files"])}), None
        elif event["type"] == "check_result" and stage == "code" and _is_test_result(data):
            output = shortened((texts / data["printed"]).read_text(encoding="utf-8"))
            report = {"task_id": task, "passed": data["exit_code"] == 0, "report": output}
            given = {"task_id": task, "pytest_exit_code": data["exit_code"], "pytest_output": output}
            red |= set() if report["passed"] else {event["role"]}
            yield _entry(event, "tester", "test_result", report), given
        elif event["type"] == "stage_finished" and data["status"] == "failed" and event["role"] not in red:
            reason = shortened(data["failure"] or data["kind"])
            yield _entry(event, ROLES[stage], "error", {"status": "error", "reason": reason}), None


def _is_test_result(data: Entry) -> bool:
    """Say whether pytest ended by itself, and with an exit code that its own report bears out."""
    return data["printed"] != "" and data["exit_code"] is not None and data["passed"] == (data["exit_code"] == 0)


def _entry(event: Entry, role: str, kind: str, data: Entry) -> Entry:
    return {"ts": event["ts"], "role": role, "type": kind, "data": data}


def finished_runs(logs: Path, pipeline: str) -> list[tuple[str, list[Entry]]]:
    """Return the id and the events of each finished run of a pipeline, the oldest first."""
    found = []
    for path in logs.glob("*.jsonl"):
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if events[-1]["type"] == "run_finished" and events[0]["data"].get("pipeline") == pipeline:
            found.append((events[0]["ts"], path.stem, events))
    return [(run, events) for _, run, events in sorted(found, key=lambda one: one[:2])]


def main() -> None:
    """Write what is not written yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default=PIPELINE, help="the file that was built (%(default)s)")
    parser.add_argument("--runs", default=RUNS, type=Path, help="where the logs go (%(default)s)")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    results: dict[str, Entry] = {}
    for run, events in finished_runs(Path("logs"), given.pipeline):
        told = list(entries(events, Path("logs", run)))
        log = given.runs / f"{run}.log.jsonl"
        if told and not log.exists():
            log.write_text("".join(f"{json.dumps(entry)}\n" for entry, _ in told), encoding="utf-8")
            sys.stdout.write(f"{log}\n")
        if any(entry["type"] == "plan" for entry, _ in told):
            results = {}  # another plan: its tasks are others, whatever their ids
        results |= {result["task_id"]: result for _, result in told if result is not None}
    text = json.dumps({"results": list(results.values())}, indent=2)
    (given.runs / "test_results.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
