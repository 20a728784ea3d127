"""Run `runs` and `log`: what the journals of runs hold, and what runs paid for a stage."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import CorruptStateError, ExitCode, UsageError
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptStarted,
    CallReserved,
    CommandRan,
    Event,
    FilesPromoted,
    FilesProposed,
    LlmResponse,
    RunFinished,
    StageDecided,
    StageFinished,
    StageRestored,
)
from orch23.model.features import SPANS, load_feature
from orch23.model.parsing import from_struct
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import family_of
from orch23.model.run_facts import RunCost
from orch23.model.text import format_duration, format_money, parse_amount, visible
from orch23.report.formats import event_redactor
from orch23.report.values import aligned, format_counts, json_document, money_text, pluralize, started_text, truncate
from orch23.store.history import run_totals, uncollected_amounts
from orch23.store.run_logs import (
    INTERRUPTED,
    JournalLine,
    journal_ends,
    journal_paths,
    parse_journal,
    read_journal,
    run_ids,
    run_pipeline,
)
from orch23.store.run_state import fold_events
from orch23.store.safe_files import read_regular


class RunSummary(Struct, frozen=True, kw_only=True, rename={"run_id": "run", "counts": "stages"}):
    """The summary of a run. `status` comes from `run_finished`, else it is `interrupted`, or `damaged` if unreadable.

    `duration_s` is the time from the first event to the last. `cost` in US dollars is known, `possible_cost` may have
    been charged besides, `unpriced` counts the calls without a known price. A call whose response a later run collected
    is a call of that run.
    """

    run_id: str
    status: str = INTERRUPTED
    pipeline: str = ""
    started: str = ""
    finished: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    duration_s: float | None = None
    calls: int = 0
    cost: str = "0"
    possible_cost: str = "0"
    unpriced: int = 0


def list_runs(logs: Path) -> tuple[RunSummary, ...]:
    """Return all runs with a journal, newest first; a run with an unreadable journal has the status `damaged`."""
    found = []
    # The requests of earlier runs that the runs so far have collected, by pipeline.
    collected: defaultdict[str, set[str]] = defaultdict(set)
    for path in journal_paths(logs):
        try:
            lines = _ends(path) or parse_journal(read_regular(path) or b"", str(path))
        except CorruptStateError:
            found.append(RunSummary(run_id=path.stem, status="damaged"))
        else:
            if lines:
                later = collected[run_pipeline(lines[0])]
                found.append(_without_collected(_summary(path.stem, lines), later, lines))
                reserved = (line.event.data for line in lines)
                later.update(one.fingerprint for one in reserved if isinstance(one, CallReserved) and one.collects)
    return tuple(found)


def _ends(path: Path) -> tuple[JournalLine, ...]:
    """Return the first and the last line of a run whose last line says all; none of another."""
    first, last = journal_ends(path)
    if first is None or last is None or not isinstance(ended := last.event.data, RunFinished):
        return ()
    # Calls need the lines between: a later run may have collected their responses.
    return (first, last) if ended.stages and not ended.calls and ended.possible_cost == "0" else ()


def _summary(run_id: str, lines: tuple[JournalLine, ...]) -> RunSummary:
    first, last = lines[0], lines[-1]
    statuses = (line.event.data.status.value for line in lines if isinstance(line.event.data, StageFinished))
    ended = last.event.data if isinstance(last.event.data, RunFinished) else None
    found = RunSummary(
        run_id=run_id,
        pipeline=run_pipeline(first),
        started=first.ts,
        finished=last.ts if ended else None,
        status=ended.status if ended else INTERRUPTED,
        # A run with nothing to do has them in its last event only.
        counts=Counter(statuses) or (ended.stages if ended else {}),
        duration_s=_seconds_between(first.ts, last.ts),
    )
    if ended is not None:
        cost, possible = ended.cost or "0", ended.possible_cost
        return replace(found, calls=ended.calls, cost=cost, possible_cost=possible, unpriced=ended.unpriced)
    # A killed run has no totals: its reservations and settlements are the account.
    spent = run_totals(lines)
    return replace(found, calls=spent.calls, cost=str(spent.cost), possible_cost=str(spent.possible_cost))


def _without_collected(run: RunSummary, later: set[str], lines: tuple[JournalLine, ...]) -> RunSummary:
    """Return the summary without the calls that later runs collected; they are removed from `later`."""
    if not later or not run.calls:
        return run
    amounts = uncollected_amounts(lines)
    found = [amounts[name] for name in amounts.keys() & later]
    later -= amounts.keys()
    possible = Decimal(run.possible_cost) - sum((one.possible_cost for one in found), Decimal(0))
    calls = run.calls - sum(one.calls for one in found)
    return replace(run, calls=calls, possible_cost=f"{possible.normalize():f}")


def _seconds_between(first: str, last: str) -> float | None:
    try:
        return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds(), 3)
    except ValueError:
        return None


def runs_text(runs: Iterable[RunSummary]) -> str:
    """Return a line for each run: its id, start, status, pipeline, duration, and what its stages and calls were."""
    rows = [
        (
            visible(one.run_id),
            started_text(one.started),
            *map(visible, (one.status, one.pipeline)),
            "" if one.duration_s is None else format_duration(one.duration_s),
            ", ".join(_run_facts(one)),
        )
        for one in runs
    ]
    return aligned(rows) or "there are no runs\n"


def _run_facts(run: RunSummary) -> list[str]:
    facts = [format_counts(run.counts)] if run.counts else []
    facts += [pluralize(run.calls, "call")] if run.calls else []
    cost, possible = parse_amount(run.cost) or Decimal(0), parse_amount(run.possible_cost) or Decimal(0)
    facts += [money_text(cost, possible)] if cost or possible else []
    facts += [f"price of {pluralize(run.unpriced, 'call')} unknown"] if run.unpriced else []
    return facts


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


def stage_costs(runs: Iterable[tuple[str, Iterable[Event]]], stage: str) -> list[RunCost]:
    """Return the calls of a stage, or of all items of a foreach, in each run that has any."""
    found = []
    for run, events in runs:
        cost = RunCost(run=run)
        for event in events:
            if stage in (event.role, family_of(event.role)):
                cost.add(event)
        if cost.calls or cost.recorded:
            found.append(cost)
    return found


def costs_text(stage: str, costs: Iterable[RunCost]) -> str:
    """Return a line with the sums of each run, and one for each price table that they come from."""
    runs = list(costs)
    prices = dict.fromkeys(table for cost in runs for table in cost.prices)
    lines = [f"{stage} in {cost.run}: {_cost_text(cost)}\n" for cost in runs]
    return "".join([*lines, *(f"prices: {table}\n" for table in prices)])


def _cost_text(cost: RunCost) -> str:
    facts = [pluralize(cost.calls, "call")]
    facts += [f"{cost.unanswered} of them without a response"] if cost.unanswered else []
    facts += [f"{cost.unusable} of them without a usable response"] if cost.unusable else []
    facts += [pluralize(cost.recorded, "recorded response")]
    facts += [tokens_text(cost.input_tokens, cost.output_tokens)]
    facts += ["paid: price unknown" if cost.paid is None else f"paid {format_money(cost.paid)}"]
    facts += [f"at most {format_money(cost.possible)} more"] if cost.possible else []
    if cost.recorded:
        facts += ["saved: price unknown" if cost.saved is None else f"saved {format_money(cost.saved)}"]
    if cost.cache_read_tokens or cost.cache_write_tokens:
        cached = f"{cost.cache_read_tokens:,} read from and {cost.cache_write_tokens:,} written to the prompt cache"
        effect = "saved" if cost.cache_saved >= 0 else "cost"
        facts += [f"{cached}, which {effect} {format_money(abs(cost.cache_saved))}"]
    return ", ".join(facts)


def tokens_text(read: int, written: int) -> str:
    """Return numbers of tokens; a provider that states none does not count them."""
    return f"{read:,}+{written:,} tokens" if read or written else "tokens unknown"
