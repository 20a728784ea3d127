"""The commands `runs` and `log`: what was built when, and what happened in it."""

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import json_option
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, NotFoundError
from orch23.model.plain import Json
from orch23.report.document import document

RUNS_VERSION = 1


@click.command()
@json_option
@click.pass_obj
def runs(console: Console, *, as_json: bool) -> int:
    """List the runs of this project, the newest first."""
    from orch23.cli.opening import project_root  # noqa: PLC0415 - heavy
    from orch23.model.own_files import LOGS  # noqa: PLC0415 - heavy
    from orch23.report.runs_text import RunLine, runs_text  # noqa: PLC0415 - heavy
    from orch23.store.journal import runs as read_runs  # noqa: PLC0415 - heavy

    found = [
        RunLine(
            run_id=run.run_id,
            status=run.status,
            pipeline=run.pipeline,
            started=run.started,
            finished=run.finished,
            counts=run.counts,
        )
        for run in read_runs(project_root(console.here) / LOGS)
    ]
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
        console.answer(document({"orch23_runs": RUNS_VERSION, "runs": rows}))
    else:
        console.answer(runs_text(found))
    return ExitCode.OK


@click.command()
@click.argument("run", required=False)
@option("--json", "as_json", is_flag=True, help="The journal's lines as they are: JSON, one event a line.")
@option("--state", "as_state", is_flag=True, help="Where the run stands, or ended, with the fields of state.json.")
@click.pass_obj
def log(console: Console, *, run: str | None, as_json: bool, as_state: bool) -> int:
    """Show what happened in a run.

    By default in the newest one. A run may be named by the beginning of its id.
    """
    from orch23.cli.opening import project_root  # noqa: PLC0415 - heavy
    from orch23.model.own_files import LOGS  # noqa: PLC0415 - heavy
    from orch23.report.runs_text import log_line  # noqa: PLC0415 - heavy
    from orch23.store.journal import read_journal  # noqa: PLC0415 - heavy
    from orch23.store.journal import runs as read_runs  # noqa: PLC0415 - heavy
    from orch23.store.run_state import fold  # noqa: PLC0415 - heavy

    logs = project_root(console.here) / LOGS
    known = [found.run_id for found in read_runs(logs)]
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


def chosen_run(known: list[str], run: str | None) -> str:
    """Return the run that is meant: of these ids, newest first, the one named, else the newest.

    Raises:
        NotFoundError: there is none, or the beginning of an id fits several.

    """
    found = [one for one in known if run is None or one.startswith(run)]
    if run in found:
        return str(run)
    if not found:
        message = "there are no runs" if run is None else f"there is no run {run}"
        raise NotFoundError(Diagnostic("E709", message, hint="`orch23 runs` lists the runs"))
    if run is not None and len(found) > 1:
        message = f"{len(found)} runs begin with {run}"
        raise NotFoundError(Diagnostic("E709", message, hint=f"name one: {', '.join(found[:3])}"))
    return found[0]
