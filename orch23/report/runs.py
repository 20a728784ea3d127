"""Write lists of runs, lines of a journal, the commands that ran, and what runs paid for a stage."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal

from orch23.model.digest import Json
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
from orch23.model.parsing import from_struct
from orch23.model.run_facts import RunCost
from orch23.model.text import format_duration, format_money, parse_amount
from orch23.report.diagnostics import visible
from orch23.report.values import format_counts, money_text, pluralize, truncate
from orch23.store.run_list import RunSummary

_TIME = slice(11, 23)
_MAX_TEXT = 160


def runs_text(runs: Iterable[RunSummary], zone: tzinfo | None = None) -> str:
    """Return a line for each run: its id, start, status, pipeline, duration, and what its stages and model calls were.

    The start is a time of `zone`; None: of this machine's zone.
    """
    rows = [
        (
            visible(one.run_id),
            started_text(one.started, zone),
            *map(visible, (one.status, one.pipeline)),
            "" if one.duration_s is None else format_duration(one.duration_s),
            ", ".join(_run_facts(one)),
        )
        for one in runs
    ]
    return aligned(rows) or "there are no runs\n"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equal length as lines, whose columns but the last have the same width in each line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    cells = ([f"{text:<{width}}" for text, width in zip(row, [*widths, 0], strict=True)] for row in rows)
    return "".join("  ".join(row).rstrip() + "\n" for row in cells)


def started_text(started: str, zone: tzinfo | None) -> str:
    """Return the time of an event in minutes, in a zone, None for this machine's; empty if it is none."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(zone):%Y-%m-%d %H:%M}" if started else ""
    except ValueError:
        return ""


def _run_facts(run: RunSummary) -> list[str]:
    facts = [format_counts(run.counts)] if run.counts else []
    facts += [pluralize(run.calls, "call")] if run.calls else []
    cost, possible = parse_amount(run.cost) or Decimal(0), parse_amount(run.possible_cost) or Decimal(0)
    facts += [money_text(cost, possible)] if cost or possible else []
    facts += [f"price of {pluralize(run.unpriced, 'call')} unknown"] if run.unpriced else []
    return facts


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
            return f" ({_tokens(input_tokens, output_tokens)}, {stop})"
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
            if stage in (event.role, event.role.partition("@")[0]):
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
    facts += [_tokens(cost.input_tokens, cost.output_tokens)]
    facts += ["paid: price unknown" if cost.paid is None else f"paid {format_money(cost.paid)}"]
    facts += [f"at most {format_money(cost.possible)} more"] if cost.possible else []
    if cost.recorded:
        facts += ["saved: price unknown" if cost.saved is None else f"saved {format_money(cost.saved)}"]
    if cost.cache_read_tokens or cost.cache_write_tokens:
        cached = f"{cost.cache_read_tokens:,} read from and {cost.cache_write_tokens:,} written to the prompt cache"
        effect = "saved" if cost.cache_saved >= 0 else "cost"
        facts += [f"{cached}, which {effect} {format_money(abs(cost.cache_saved))}"]
    return ", ".join(facts)


def _tokens(read: int, written: int) -> str:
    """Return numbers of tokens; a provider that states none does not count them."""
    return f"{read:,}+{written:,} tokens" if read or written else "tokens unknown"
