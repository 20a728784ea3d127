"""Run `runs` and `log`: what the journals of runs hold."""

from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ExitCode, UsageError
from orch23.model.features import SPANS, load_feature
from orch23.model.parsing import from_struct
from orch23.model.paths import LOGS_FOLDER
from orch23.report.observers import event_redactor
from orch23.report.runs import commands_json, commands_text, log_line, ran_commands, runs_text
from orch23.report.values import json_document
from orch23.store.run_list import list_runs, run_ids
from orch23.store.run_logs import read_journal
from orch23.store.run_state import fold_events
from orch23.store.safe_files import read_regular


def list_project_runs(console: Console, *, as_json: bool) -> None:
    """List runs, newest first."""
    found = list_runs(project_root(console) / LOGS_FOLDER)
    if as_json:
        rows: list[Json] = [from_struct(one) for one in found]
        console.write_out(json_document({"orch23_runs": 1, "runs": rows}))
    else:
        console.write_out(runs_text(found))


def _ran_none(logs: Path, run: str) -> str:
    others = (logs / f"{one}.jsonl" for one in run_ids(logs) if one != run)
    last = next((one.stem for one in others if any(ran_commands(line.event for line in read_journal(one)))), "")
    more = f"; the last one that did is {last}: `orch23 log {last} --commands`" if last else ""
    return f"the run {run} ran no command{more}\n"


def show_log(console: Console, *, run: str | None, as_json: bool, commands: bool, as_state: bool, otel: bool) -> int:
    """Show the events of a run, or its commands, or send its events as spans."""
    if commands + as_state + otel > 1:
        raise UsageError(Diagnostic("E641", "`--commands`, `--state` and `--otel` exclude each other", hint="give one"))
    logs = project_root(console) / LOGS_FOLDER
    path = logs / f"{select_run(run_ids(logs), run)}.jsonl"
    if otel:
        return int(load_feature(SPANS["log"])(console, path, event_redactor(console.environ)))
    if commands:
        ran = [*ran_commands(line.event for line in read_journal(path))]
        body: dict[str, Json] = {"orch23_log": 1, "run": path.stem, "commands": commands_json(ran)}
        text = commands_text(ran) or _ran_none(logs, path.stem)
        console.write_out(json_document(body) if as_json else text)
    elif as_json:
        console.write_out((read_regular(path) or b"").decode("utf-8", "replace"))
    elif as_state:
        console.write_out(json_document(fold_events(read_journal(path)).to_json()))
    else:
        console.write_out("".join(log_line(line.ts, line.event) for line in read_journal(path)))
    return ExitCode.OK
