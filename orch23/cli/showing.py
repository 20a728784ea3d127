"""Find what is kept of a stage's attempts: in the artifacts of a run, else in the exchanges of its record."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orch23.cli.runs import chosen_run
from orch23.cli.wiring import Project, open_reading
from orch23.engine.session import Session
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import MissingBytesError, NotFoundError
from orch23.model.record import Record
from orch23.plan.select import Selection
from orch23.report.diagnostics import visible
from orch23.report.explain_view import text_diff
from orch23.report.figures import count
from orch23.store.artifacts import Artifacts
from orch23.store.journal import read_journal, runs

_FILES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt.txt",),
    "response": ("response.txt",),
    "all": ("prompt.txt", "response.txt", "output.txt", "failure.txt"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be shown. `view` is prompt, response, diff, cost, key or all."""

    stage: str
    view: str
    attempt: int | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What was found: a text, made visible, and where it is from."""

    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)


def shown(project: Project, asked: Asked) -> Shown:
    """Return what is kept of a stage.

    Raises:
        NotFoundError: no such stage, run or attempt, or nothing is kept.

    """
    session = open_reading(project)
    Selection(targets=(asked.stage,)).nodes(session.world.plan)
    match asked.view:
        case "key":
            return _key(_record(session, asked.stage), asked.stage)
        case "diff":
            return _diff(session, _record(session, asked.stage), asked.stage)
        case "cost":
            return _cost(project, asked)
        case _:
            return _artifacts(project, asked) or _exchange(session, asked)


# ---- artifacts of a run --------------------------------------------------------------------------


def _artifacts(project: Project, asked: Asked) -> Shown | None:
    for run in _runs(project, asked):
        place = Artifacts(project.store.logs / run).place(asked.stage, 1).parent
        attempts = _attempts(place)
        number = asked.attempt or (attempts[-1] if attempts else None)
        if number not in attempts:
            continue
        found = [(name, _read(place / f"attempt-{number}" / name)) for name in _FILES[asked.view]]
        parts = [(name, text) for name, text in found if text is not None]
        if parts:
            facts: dict[str, Json] = {"stage": asked.stage, "run": run, "attempt": number}
            return Shown(_joined(parts, f"attempt {number} of {run}"), facts)
    if asked.run is not None or asked.attempt is not None:
        what = f"attempt {asked.attempt}" if asked.attempt else "attempt"
        where = f" in run {asked.run}" if asked.run else ""
        message = f"no {what} of `{asked.stage}` is kept{where}"
        raise NotFoundError(Diagnostic("E664", message, hint="`orch23 log` shows what ran"))
    return None


def _runs(project: Project, asked: Asked) -> list[str]:
    known = [run.run_id for run in runs(project.store.logs)]
    return [chosen_run(known, asked.run)] if asked.run is not None else known


def _attempts(place: Path) -> list[int]:
    numbers = [path.name.removeprefix("attempt-") for path in place.glob("attempt-*")]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _joined(parts: list[tuple[str, str]], title: str) -> str:
    if len(parts) == 1:
        return _ended(visible(parts[0][1]))
    return "".join(f"---- {name.removesuffix('.txt')}, {title} ----\n{_ended(visible(text))}" for name, text in parts)


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


# ---- the record and its exchanges ------------------------------------------------------------------


def _record(session: Session, stage: str) -> Record:
    record = session.lock.records.get(stage) or session.store.records.last(stage)
    if record is None:
        hint = f"`orch23 build {stage}` makes one; `orch23 explain {stage}` says why it is missing"
        raise NotFoundError(Diagnostic("E664", f"`{stage}` has no result yet", hint=hint))
    return record


def _exchange(session: Session, asked: Asked) -> Shown:
    record = _record(session, asked.stage)
    node = session.world.plan.nodes.get(asked.stage)
    transcripts = getattr(getattr(node, "step", None), "transcripts", None)
    for fingerprint in reversed(record.exchanges):
        exchange = session.store.exchanges.get(fingerprint, transcripts)
        if exchange is None:
            continue
        sent = exchange.request.get("sent") or exchange.request.get("messages")
        messages = (
            [str(one.get("content", "")) for one in sent if isinstance(one, Mapping)] if isinstance(sent, list) else []
        )
        parts = {"prompt.txt": "\n\n".join(messages), "response.txt": exchange.response}
        found = [(name, parts[name]) for name in _FILES[asked.view] if parts.get(name)]
        facts: dict[str, Json] = {"stage": asked.stage, "exchange": fingerprint, "outcome": exchange.outcome}
        return Shown(_joined(found, f"exchange {fingerprint[:12]}"), facts)
    hint = "artifacts of runs are in logs/; only llm stages have prompts and answers"
    raise NotFoundError(Diagnostic("E664", f"nothing is kept of `{asked.stage}`", hint=hint))


def _key(record: Record, stage: str) -> Shown:
    lines = [record.key, *(f"  {visible(name)}  {_value(value)}" for name, value in record.manifest.items())]
    facts: dict[str, Json] = {"stage": stage, "key": record.key, "manifest": dict(record.manifest)}
    return Shown("\n".join(lines) + "\n", facts)


def _value(value: Json) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=list))


def _diff(session: Session, record: Record, stage: str) -> Shown:
    """Compare each output with what the stage started from, or with the result before this one."""
    former = _former(session, record)
    blocks = []
    for path, entry in record.outputs.items():
        base = record.originals.get(path) or (former.outputs.get(path) if former else None)
        then, now = _text(session, path, base), _text(session, path, entry)
        if now is None or then is None:
            blocks.append(f"{visible(path)}: its bytes are not in the store any more\n")
            continue
        found = text_diff(path, then, now)
        blocks.append("".join(f"{visible(line)}\n" for line in (f"{path}:", *found.lines)) if found.lines else "")
    return Shown("".join(blocks) or "nothing differs\n", {"stage": stage, "key": record.key})


def _former(session: Session, record: Record) -> Record | None:
    """Return the newest other record that has one of the outputs."""
    for path in record.outputs:
        for other in session.store.records.owners(path):
            if other.stage == record.stage and dict(other.outputs) != dict(record.outputs):
                return other
    return None


def _text(session: Session, path: str, entry: FileEntry | None) -> str | None:
    if entry is None:
        return ""
    try:
        return session.store.sources.read(path, entry).decode("utf-8", errors="replace")
    except MissingBytesError:
        return None


# ---- what it cost -----------------------------------------------------------------------------------


def _cost(project: Project, asked: Asked) -> Shown:
    for run in _runs(project, asked):
        events = [
            line.event for line in read_journal(project.store.logs / f"{run}.jsonl") if line.event.role == asked.stage
        ]
        answers = [event.data for event in events if event.type == "llm_response"]
        if not answers:
            continue
        paid = [data for data in answers if data.get("replayed") is not True]
        tokens = [[_whole(data.get(name)) for data in answers] for name in ("input_tokens", "output_tokens")]
        saved = len(answers) - len(paid)
        text = f"{asked.stage} in {run}: {count(len(paid), 'call')}, {count(saved, 'recorded answer')}, "
        text += f"{sum(tokens[0]):,}+{sum(tokens[1]):,} tokens; prices are not known to this version\n"
        facts: dict[str, Json] = {"stage": asked.stage, "run": run, "calls": len(paid), "recorded_answers": saved}
        return Shown(text, {**facts, "input_tokens": sum(tokens[0]), "output_tokens": sum(tokens[1])})
    raise NotFoundError(
        Diagnostic("E664", f"no run asked a model for `{asked.stage}`", hint="`orch23 runs` lists the runs")
    )


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0
