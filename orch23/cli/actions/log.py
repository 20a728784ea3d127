"""The action of `log`."""

from orch23.cli.console import Console
from orch23.cli.opening import chosen_run, project_root
from orch23.model.errors import ExitCode
from orch23.model.own_files import LOGS
from orch23.report.document import document
from orch23.report.runs_text import log_line
from orch23.store.journal import read_journal, runs
from orch23.store.run_state import fold


def run(console: Console, *, run: str | None, as_json: bool, as_state: bool) -> int:
    """Show what happened in a run."""
    logs = project_root(console) / LOGS
    known = [found.run_id for found in runs(logs)]
    path = logs / f"{chosen_run(known, run)}.jsonl"
    if as_json:
        console.answer(path.read_text(encoding="utf-8", errors="replace"))
        return ExitCode.OK
    lines = read_journal(path)
    if as_state:
        console.answer(document(fold(lines).to_json()))
        return ExitCode.OK
    console.answer("".join(log_line(line.ts, line.event) for line in lines))
    return ExitCode.OK
