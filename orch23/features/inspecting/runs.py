"""Run `runs` and `log`: what the journals of runs hold."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.features.inspecting.costs import tokens_text
from orch23.features.inspecting.listing import list_runs, runs_text
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ExitCode, UsageError
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptStarted,
    CommandRan,
    Event,
    FilesPromoted,
    FilesProposed,
    LlmResponse,
    StageDecided,
    StageFinished,
    StageRestored,
)
from orch23.model.features import SPANS, load_feature
from orch23.model.parsing import from_struct
from orch23.model.paths import LOGS_FOLDER
from orch23.model.text import format_duration, visible
from orch23.report.formats import event_redactor
from orch23.report.values import aligned, json_document, truncate
from orch23.store.run_logs import read_journal, run_ids
from orch23.store.run_state import fold_events
from orch23.store.safe_files import read_regular

_TIME = slice(11, 23)
_MAX_TEXT = 160


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


def log_line(timestamp: str, event: Event) -> str:
    """Return one line of a journal: time, event type, stage, message, and the facts of the event."""
    role = "" if event.role == ORCH23_ROLE else f"{visible(event.role)}: "
    level = "" if event.level in ("debug", "info") else f"{event.level}: "
    text = truncate(visible(f"{event.message}{_facts(event)}").replace("\n", " "), _MAX_TEXT)
    return f"{timestamp[_TIME]}  {event.type:<16}  {level}{role}{text}\n"


def _facts(event: Event) -> str:
    match event.data:
        case StageFinished(status=status):
            return f" ({status})" if event.message != status else ""
        case StageDecided(reasons=reasons):
            return f": {', '.join(one.code for one in reasons)}" if reasons else ""
        case FilesPromoted(files=files, removed=removed) | StageRestored(files=files, removed=removed):
            return _paths((*files, *(f"-{path}" for path in removed)))
        case FilesProposed(files=files):
            return _paths(files)
        case LlmResponse(input_tokens=input_tokens, output_tokens=output_tokens, stop=stop):
            return f" ({tokens_text(input_tokens, output_tokens)}, {stop})"
        case _:
            return ""


def _paths(paths: tuple[str, ...]) -> str:
    return f": {' '.join(paths)}" if paths else ""


def ran_commands(events: Iterable[Event]) -> Iterator[tuple[str, int, CommandRan]]:
    """Yield each command of some events, with its stage and the number of its attempt, in the order they ended in."""
    attempts: dict[str, int] = {}
    for event in events:
        if isinstance(event.data, AttemptStarted):
            attempts[event.role] = event.data.attempt
        elif isinstance(event.data, CommandRan):
            yield event.role, attempts.get(event.role, 0), event.data


def commands_text(ran: Iterable[tuple[str, int, CommandRan]], *, stage: bool = True) -> str:
    """Return a line for each command: its stage and attempt, exit status and duration, and the command."""
    rows = [
        (
            visible(name),
            f"attempt {attempt}" if attempt else "recorded result",
            "killed" if one.exit_code is None else f"exit {one.exit_code}",
            format_duration(one.duration_s),
            f"$ {visible(one.command).rstrip()}".replace("\n", "\n    "),
        )
        for name, attempt, one in ran
    ]
    return aligned(rows if stage else [row[2:] for row in rows])


def commands_json(ran: Iterable[tuple[str, int, CommandRan]]) -> list[Json]:
    """Return the commands as plain values."""
    return [{"stage": stage, "attempt": attempt, **from_struct(one)} for stage, attempt, one in ran]
