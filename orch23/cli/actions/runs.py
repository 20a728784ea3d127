"""Run `runs`: list the runs of a project."""

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.model.digest import Json
from orch23.model.paths import LOGS_FOLDER
from orch23.report.runs import runs_text
from orch23.report.values import json_document
from orch23.store.run_logs import list_runs

RUNS_VERSION = 1


def run(console: Console, *, as_json: bool) -> None:
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
        console.write_out(json_document({"orch23_runs": RUNS_VERSION, "runs": rows}))
    else:
        console.write_out(runs_text(found))
