"""Run `runs` and `log`: show the runs of a project, and the journal of one."""

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.model.digest import Json
from orch23.model.paths import LOGS_FOLDER
from orch23.report.runs import log_line, runs_text
from orch23.report.values import json_document
from orch23.store.run_logs import list_runs, read_journal
from orch23.store.run_state import fold_events


def list_project_runs(console: Console, *, as_json: bool) -> None:
    """List runs, newest first."""
    found = list_runs(project_root(console) / LOGS_FOLDER)
    if as_json:
        rows: list[Json] = [
            {
                "run": one.run_id,
                "status": one.status,
                "pipeline": one.pipeline,
                "started": one.started,
                "finished": one.finished,
                "stages": dict(one.counts),
            }
            for one in found
        ]
        console.write_out(json_document({"orch23_runs": 1, "runs": rows}))
    else:
        console.write_out(runs_text(found))


def show_log(console: Console, *, run: str | None, as_json: bool, as_state: bool) -> None:
    """Show the events of a run."""
    logs = project_root(console) / LOGS_FOLDER
    known = [found.run_id for found in list_runs(logs)]
    path = logs / f"{select_run(known, run)}.jsonl"
    if as_json:
        console.write_out(path.read_text(encoding="utf-8", errors="replace"))
    elif as_state:
        console.write_out(json_document(fold_events(read_journal(path)).to_json()))
    else:
        console.write_out("".join(log_line(line.ts, line.event) for line in read_journal(path)))
