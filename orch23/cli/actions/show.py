"""Run `show`: find prompts, responses, outputs, keys and costs of a stage's attempts."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.cli.actions.plan import first_request, replay_first_request
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_one_stage, select_run
from orch23.cli.project_loading import Project, open_read_session
from orch23.decide.secrets import secrets_from
from orch23.engine.dry_run import Preview, preview
from orch23.engine.session import Session
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import ExitCode, MissingBytesError, NotFoundError
from orch23.model.event import AttemptFinished, Event, LlmResponse
from orch23.model.llm import Exchange
from orch23.model.pipeline import ForeachStage
from orch23.model.record import Record
from orch23.plan.planner import Selection
from orch23.report.diagnostics import visible
from orch23.report.explain import text_diff
from orch23.report.runs import costs_json, costs_text, stage_costs
from orch23.report.values import json_document
from orch23.steps.registry import is_llm
from orch23.store.run_logs import AttemptFiles, list_runs, read_journal
from orch23.store.safe_files import read_regular

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


_FILES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt.txt",),
    "response": ("response.txt",),
    "all": ("prompt.txt", "response.txt", "output.txt", "failure.txt"),
}
_MOST_ITEMS = 5


class ShowRequest(Struct, frozen=True, kw_only=True):
    """What is to be shown. `view` is prompt, response, diff, cost, key or all."""

    stage: str
    view: str
    attempt: int | None = None
    run: str | None = None


class ShowResult(Struct, frozen=True):
    """What was found: a text, made visible, and where it is from."""

    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)


def find_kept(project: Project, asked: ShowRequest) -> ShowResult:
    """Return what is kept of a stage.

    Raises:
        NotFoundError: no such stage, run or attempt, or nothing is kept.

    """
    session = open_read_session(project)
    Selection(targets=(asked.stage,)).nodes(session.state.plan)
    if asked.view == "cost":
        return _cost(project, asked)
    seen = preview(session)
    node = seen.plan.nodes.get(asked.stage)
    if node is None or isinstance(node, ForeachStage):
        raise _no_item(seen, asked.stage)
    match asked.view:
        case "key":
            return _key(session, seen, asked.stage)
        case "diff":
            return _diff(session, _record(session, asked.stage), asked.stage)
        case _:
            step = node.step if is_llm(node.step) else None
            return _Search(project, session, seen, step, asked).found()


def _no_item(seen: Preview, stage: str) -> NotFoundError:
    items = [name for name in seen.plan.nodes if name.startswith(f"{stage}@")]
    more = ", ..." if len(items) > _MOST_ITEMS else ""
    hint = f"name one of its items: {', '.join(items[:_MOST_ITEMS])}{more}" if items else "it has no items yet"
    return NotFoundError(Diagnostic("E664", f"`{stage}` is a foreach, and runs as its items", hint=hint))


# ---- what was asked and answered -----------------------------------------------------------------


class _Kept(Struct, frozen=True):
    """The exchange of an attempt, and where it was named."""

    exchange: Exchange
    facts: Mapping[str, Json]
    title: str


class _Search(Struct, frozen=True):
    """Looks where texts of one stage may be: nearest to what happened first."""

    project: Project
    session: Session
    seen: Preview
    step: "LLMStep | None"
    asked: ShowRequest

    def found(self) -> ShowResult:
        """Return the texts."""
        artifacts = self._artifacts()
        if artifacts is not None:
            return artifacts
        for kept in self._exchanges():
            exchange, files = kept.exchange, _FILES[self.asked.view]
            parts = {"prompt.txt": _sent(exchange), "response.txt": exchange.response}
            found = [(name, self._readable(parts[name])) for name in files if name in parts]
            facts: dict[str, Json] = {
                "stage": self.asked.stage,
                **kept.facts,
                "exchange": exchange.fingerprint,
                "outcome": exchange.outcome,
                "provenance": exchange.provenance,
            }
            whose = f" ({visible(exchange.provenance)})" if exchange.provenance else ""
            return ShowResult(_joined(found, f"{kept.title}{whose}"), facts)
        raise self._nothing()

    def _artifacts(self) -> ShowResult | None:
        stage, attempt = self.asked.stage, self.asked.attempt
        for run in _runs(self.project, self.asked):
            place = AttemptFiles(self.project.store.logs / run).attempt_folder(stage, 1).parent
            silent = self._silent(run)
            attempts = sorted({*_attempts(place), *silent})
            number = attempt or (attempts[-1] if attempts else None)
            if number not in attempts:
                continue
            kept = place / f"attempt-{number}"
            texts = [(name, _read(kept / name)) for name in _names(kept, self.asked.view)]
            parts = [(name, self._readable(text)) for name, text in texts if text is not None]
            if parts or number in silent:
                told = self._told(run, number)
                whose = f" ({visible(told)})" if told else ""
                facts: dict[str, Json] = {"stage": stage, "run": run, "attempt": number, "provenance": told}
                return ShowResult(_joined(parts, f"attempt {number} of {run}{whose}"), facts)
        return None

    def _silent(self, run: str) -> frozenset[int]:
        """Return the attempts of a stage of no model that came to an end: what printed nothing left no file."""
        if self.step is not None or self.asked.view != "all":
            return frozenset()
        told = (event.data for event in _events(self.project, run, self.asked.stage))
        return frozenset(one.attempt for one in told if isinstance(one, AttemptFinished))

    def _exchanges(self) -> Iterator[_Kept]:
        """Give the exchanges that there are, the most telling first."""
        for run in _runs(self.project, self.asked):
            for answer in reversed(self._answers(run)):
                attempt = answer.attempt
                if self.asked.attempt in (None, attempt):
                    facts: dict[str, Json] = {"run": run, "attempt": attempt}
                    yield from self._kept(answer.fingerprint, facts, f"attempt {attempt} of {run}")
        if self.asked.run is not None or self.asked.attempt is not None:
            return
        record = _known_record(self.session, self.asked.stage)
        for fingerprint in reversed(record.exchanges if record else ()):
            yield from self._kept(fingerprint, {}, f"exchange {fingerprint[:12]}")
        decided = self.seen.decided_stages.get(self.asked.stage)
        request = first_request(self.project, decided) if decided is not None else None
        if request is not None and self.step is not None:
            for exchange in reversed(replay_first_request(self.project, self.step, self.asked.stage, request).found):
                yield _Kept(exchange, {}, f"exchange {exchange.fingerprint[:12]}, which the next build takes")

    def _kept(self, fingerprint: str, facts: Mapping[str, Json], title: str) -> Iterator[_Kept]:
        place = self.step.transcripts if self.step else None
        found = self.session.store.exchanges.get(fingerprint, place)
        if found is not None and found.request:
            yield _Kept(found, facts, title)

    def _answers(self, run: str) -> list[LlmResponse]:
        told = (event.data for event in _events(self.project, run, self.asked.stage))
        return [one for one in told if isinstance(one, LlmResponse)]

    def _told(self, run: str, attempt: int) -> str:
        """Return who answered at an attempt."""
        told = [answer.provenance for answer in self._answers(run) if answer.attempt == attempt]
        return told[-1] if told else ""

    def _readable(self, text: str) -> str:
        return visible(secrets_from(self.project.settings.environ).redact(text))

    def _nothing(self) -> NotFoundError:
        stage, attempt, run = self.asked.stage, self.asked.attempt, self.asked.run
        if run is None and attempt is None:
            text = f"`{stage}` has no result yet, and no attempt of it is kept"
            hint = f"`orch23 build {stage}` makes one; only llm stages have prompts and answers"
            return NotFoundError(Diagnostic("E664", text, hint=hint))
        what = f"attempt {attempt}" if attempt else "attempt"
        where = f" in run {run}" if run else ""
        message = f"no {what} of `{stage}` is kept{where}"
        return NotFoundError(Diagnostic("E664", message, hint="`orch23 log` shows what ran"))


def _sent(exchange: Exchange) -> str:
    """Return what was sent, as the artifact of an attempt has it."""
    sent = exchange.request.get("sent") or exchange.request.get("messages")
    system = exchange.request.get("system")
    said = sent if isinstance(sent, list | tuple) else ()
    messages = [str(one.get("content", "")) for one in said if isinstance(one, Mapping)]
    return "\n\n".join([*([system] if isinstance(system, str) and system else []), *messages])


def _runs(project: Project, asked: ShowRequest) -> list[str]:
    known = [run.run_id for run in list_runs(project.store.logs)]
    return [select_run(known, asked.run)] if asked.run is not None else known


def _names(kept: Path, view: str) -> tuple[str, ...]:
    """Return the artifacts that a view shows, in the order in which they came about."""
    *first, last = _FILES[view]
    steps = sorted(kept.glob("verify-*.txt"), key=lambda path: (len(path.name), path.name)) if view == "all" else []
    return (*first, *(path.name for path in steps), last)


def _attempts(place: Path) -> list[int]:
    numbers = [path.name.removeprefix("attempt-") for path in place.glob("attempt-[1-9]*")]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _read(path: Path) -> str | None:
    try:
        data = read_regular(path)
    except OSError:
        return None
    return data.decode("utf-8", errors="replace") if data is not None else None


def _joined(parts: list[tuple[str, str]], title: str) -> str:
    if len(parts) == 1:
        return _ended(parts[0][1])
    return "".join(f"---- {name.removesuffix('.txt')}, {title} ----\n{_ended(text)}" for name, text in parts)


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


# ---- the record ----------------------------------------------------------------------------------


def _known_record(session: Session, stage: str) -> Record | None:
    return session.lock.records.get(stage) or session.store.records.last(stage)


def _record(session: Session, stage: str) -> Record:
    record = _known_record(session, stage)
    if record is None:
        hint = f"`orch23 build {stage}` makes one; `orch23 show {stage}` has what was tried so far"
        raise NotFoundError(Diagnostic("E664", f"`{stage}` has no result yet", hint=hint))
    return record


def _key(session: Session, seen: Preview, stage: str) -> ShowResult:
    """Return the key of the last result; where there is none, the one that a build would have now."""
    record, decided = _known_record(session, stage), seen.decided_stages.get(stage)
    if record is not None:
        key, manifest, note = record.key, record.manifest, ""
    elif decided is not None:
        key, manifest, note = decided.resolved.key, decided.resolved.manifest, "  (no result has it yet)"
    else:
        raise NotFoundError(
            Diagnostic("E664", f"`{stage}` has no key yet", hint="it is known when the stages before it have run")
        )
    lines = [f"{key}{note}", *(f"  {visible(name)}  {_value(value)}" for name, value in manifest.items())]
    facts: dict[str, Json] = {"stage": stage, "key": key, "manifest": dict(manifest), "has_result": record is not None}
    return ShowResult("\n".join(lines) + "\n", facts)


def _value(value: Json) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=list))


def _diff(session: Session, record: Record, stage: str) -> ShowResult:
    """Compare each output with what the stage started from, or with the result before this one."""
    former = _former(session, record)
    blocks = []
    for path, entry in record.outputs.items():
        moved = record.bases.get(path)
        original = moved.start if moved is not None else record.originals.get(path)
        base = original or (former.outputs.get(path) if former else None)
        then, now = _text(session, path, base), _text(session, path, entry)
        if now is None or then is None:
            blocks.append(f"{visible(path)}: its bytes are not in the store any more\n")
            continue
        found = text_diff(path, then, now)
        blocks.append("".join(f"{visible(line)}\n" for line in (f"{path}:", *found.lines)) if found.lines else "")
    return ShowResult("".join(blocks) or "nothing differs\n", {"stage": stage, "key": record.key})


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
        return session.state.read(path, entry).decode("utf-8", errors="replace")
    except MissingBytesError:
        return None


# ---- what it cost -----------------------------------------------------------------------------------


def _cost(project: Project, asked: ShowRequest) -> ShowResult:
    told = ((run, read_journal(project.store.logs / f"{run}.jsonl")) for run in _runs(project, asked))
    costs = stage_costs(((run, [line.event for line in lines]) for run, lines in told), asked.stage)
    if not costs:
        where = f"run {asked.run}" if asked.run else "no run"
        verb = "did not ask" if asked.run else "asked"
        text = f"{where} {verb} a model for `{asked.stage}`"
        raise NotFoundError(Diagnostic("E664", text, hint="`orch23 runs` lists the runs"))
    return ShowResult(costs_text(visible(asked.stage), costs), costs_json(asked.stage, costs))


def _events(project: Project, run: str, stage: str) -> list[Event]:
    path = project.store.logs / f"{run}.jsonl"
    return [line.event for line in read_journal(path) if line.event.role == stage] if path.is_file() else []


def run(
    console: Console,
    *,
    args: PipelineArguments,
    view: str | None,
    attempt: int | None,
    run: str | None,
    as_json: bool,
) -> int:
    """Show what an attempt was asked, answered or printed."""
    project, stage = open_one_stage(console, args)
    told = find_kept(project, ShowRequest(stage=stage, view=view or "all", attempt=attempt, run=run))
    console.write_out(json_document({"orch23_show": 1, **told.facts, "text": told.text}) if as_json else told.text)
    return ExitCode.OK
