"""Run `show`: find prompts, responses, outputs, keys and costs of a stage's attempts."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from orch23.cli.actions.plan import first_call, shared_results
from orch23.cli.console import Console
from orch23.cli.opening import of_stage, select_pipeline_run
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.dry_run import Preview, preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.ownership import is_of_plan
from orch23.features.inspecting.explain import accepted_text, text_diff
from orch23.features.inspecting.runs import commands_json, commands_text, costs_text, ran_commands, stage_costs
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import MissingBytesError, NotFoundError, UsageError
from orch23.model.event import FROM_SHARED_CACHE, AttemptFinished, AttemptStarted, Event, LlmResponse, StageFinished
from orch23.model.event_data import NEW_RESULTS, StageStatus
from orch23.model.llm import Exchange, joined_messages
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Skipped
from orch23.model.record import Record
from orch23.model.text import format_duration, join_first, visible
from orch23.plan.planner import Selection
from orch23.report.values import json_document
from orch23.steps.registry import is_llm
from orch23.store.run_logs import AttemptFiles, pipeline_journals, run_ids, run_of_result, stage_ends, stage_events
from orch23.text.secrets import secrets_from

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


_FILES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt.txt",),
    "response": ("response.txt",),
    "all": ("prompt.txt", "response.txt", "output.txt", "failure.txt"),
}
_MAX_ITEMS = 5


class ShowResult(Struct, frozen=True):
    """A text that is safe to print, and facts about its origin, for --json."""

    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)


def _find_kept(
    project: Project, stage: str, view: str, attempt: int | None, run: str | None, read_cache: Callable[[], bool]
) -> ShowResult:
    """Return what the store and the pipeline's journals keep of a stage. `view` is an option of `show`, or all.

    `read_cache` lets the store look up responses in the shared cache, too; False if they are not shared.
    """
    opened = open_for_reading(project)
    Selection(targets=(stage,)).nodes(opened.state.plan)
    if view == "cost":
        return _cost(project, stage, run)
    # The key of a result does not depend on decisions on other stages, but a list may have to be expanded first.
    is_kept = project.part is None and view == "key" and _known_record(opened, stage) is not None
    seen = preview(opened, Selection(targets=(stage,)) if is_kept else project.selection)
    node = seen.plan.nodes.get(stage)
    if node is None or isinstance(node, ForeachStage):
        raise _no_item(seen, stage)
    if view == "key":
        return _key(opened, seen, stage)
    if view == "diff":
        return _diff(project, opened, stage)
    step = node.step if is_llm(node.step) else None
    runs, events = _runs(project, stage, run), cache(partial(_events, project, stage))
    found = _Search(project, opened, seen, step, stage, view, attempt, run, runs, events, read_cache)
    is_newest = view == "all" and attempt is None and run is None
    return _with_accepted(project, opened, stage, found) if is_newest else found.find()


def _with_accepted(project: Project, opened: OpenPipeline, stage: str, search: "_Search") -> ShowResult:
    record = _known_record(opened, stage)
    if record is None or not record.accepted:
        return search.find()
    run = run_of_result(project.store.logs, project.pipeline.file, stage, record.key)
    note = f"{accepted_text(record.accepted, run)}\n`orch23 show --diff {_named(project, stage)}` shows the edit\n"
    facts: dict[str, Json] = {"stage": stage, "accepted": list(record.accepted), "accepted_in": run or None}
    try:
        found = search.find()
    except NotFoundError:
        return ShowResult(note, facts)
    return ShowResult(f"{found.text}---- accepted edit ----\n{note}", {**found.facts, **facts})


def _named(project: Project, stage: str) -> str:
    """Return the arguments of a command line that name a stage."""
    return visible(project.pipeline.command_line("show", stage).removeprefix("orch23 show "))


def _no_item(seen: Preview, stage: str) -> NotFoundError:
    if (idle := seen.plan.idle.get(stage)) is not None:
        why, hint = Skipped(idle.condition), "`orch23 runs` lists earlier runs, `orch23 log RUN` shows one"
        return NotFoundError(Diagnostic("E664", f"`{stage}` is skipped: {why}", hint=hint))
    items = [name for name in seen.plan.nodes if name.startswith(f"{stage}@")]
    hint = f"name an item: {join_first(items, _MAX_ITEMS)}" if items else "it has no items yet"
    return NotFoundError(Diagnostic("E664", f"`{stage}` is a foreach: only its items run", hint=hint))


_Source: TypeAlias = tuple[Exchange, Mapping[str, Json], str]
"""An exchange of the stage, and where it was found: facts and a title."""


class _Search(Struct, frozen=True):
    """Searches where texts of a stage can be, the closest to what happened first. `events` are its events in a run."""

    project: Project
    opened: OpenPipeline
    seen: Preview
    step: "LLMStep | None"
    stage: str
    view: str
    attempt: int | None
    run: str | None
    runs: Sequence[str]
    events: Callable[[str], Sequence[Event]]
    read_cache: Callable[[], bool]

    def find(self) -> ShowResult:
        """Return the texts of the newest attempt that has any: artifacts first, then recorded exchanges."""
        artifacts = map(self._artifacts, self.runs)
        if (newest := next(filter(None, artifacts), None)) is not None:
            return newest
        for exchange, place, title in self._exchanges():
            # Verification output is not in an exchange: only prompt and response can be shown.
            parts = {"prompt.txt": _sent(exchange), "response.txt": exchange.response}
            found = [(name, self._readable(parts[name])) for name in _FILES[self.view] if name in parts]
            facts: dict[str, Json] = {
                "stage": self.stage,
                **place,
                "exchange": exchange.fingerprint,
                "outcome": exchange.outcome,
                "provenance": exchange.provenance,
            }
            return ShowResult(_joined(found, f"{title}{self._origin(exchange, exchange.provenance)}"), facts)
        raise self._not_found()

    def _artifacts(self, run: str) -> ShowResult | None:
        files = AttemptFiles(self.project.store.logs / run)
        place = files.attempt_folder(self.stage, 1).parent
        silent = self._silent_attempts(run)
        kept = (path.name.removeprefix("attempt-") for path in place.glob("attempt-[1-9]*"))
        attempts = silent.union(int(one) for one in kept if one.isdecimal())
        number = self.attempt or max(attempts, default=None)
        if number not in attempts:
            return self._failed_before(run) if number is None and self.view == "all" else None
        folder = place / f"attempt-{number}"
        texts = [(name, files.read(self.stage, number, name)) for name in _names(folder, self.view)]
        parts = [(name, self._readable(text[0].decode("utf-8", "replace"))) for name, text in texts if text is not None]
        if not parts and number not in silent:
            return None
        done, outcome = self._outcome(run, number) if self.view == "all" else ([], {})
        response = next((one for one in reversed(self._responses(run)) if one.attempt == number), None)
        provenance = response.provenance if response is not None else ""
        facts: dict[str, Json] = {"stage": self.stage, "run": run, "attempt": number, "provenance": provenance}
        exchange = self._exchange(response.fingerprint) if response is not None else None
        if exchange is not None:
            facts |= {"exchange": exchange.fingerprint, "outcome": exchange.outcome}
        title = f"attempt {number} of {run}{self._origin(exchange, provenance)}"
        return ShowResult(_joined([*parts, *done], title), {**facts, **outcome})

    def _failed_before(self, run: str) -> ShowResult | None:
        """Return why a stage failed before its first attempt, as a render stage does; None if it did not."""
        for one in self.events(run):
            if isinstance(one.data, StageFinished) and one.data.status is StageStatus.FAILED:
                text = f"failed before an attempt, in {run}: {self._readable(one.message)}\n"
                return ShowResult(text, {"stage": self.stage, "run": run, "status": "failed"})
        return None

    def _outcome(self, run: str, attempt: int) -> tuple[list[tuple[str, str]], dict[str, Json]]:
        """Return what an attempt ran, and how it ended: if no other one followed, how its stage ended in this run."""
        events = self.events(run)
        ran = [one for one in ran_commands(events) if one[1] == attempt]
        text = commands_text(ran, stage=False)
        facts: dict[str, Json] = {"commands": commands_json(ran)}
        if any(isinstance(one.data, AttemptStarted) and one.data.attempt > attempt for one in events):
            return [("result", f"{text}failed\n")], {**facts, "status": "failed", "duration_s": None, "outputs": []}
        for end in (event.data for event in events if isinstance(event.data, StageFinished)):
            took = "" if end.duration_s is None else f" in {format_duration(end.duration_s)}"
            text += f"{end.status}{took}{': ' if end.outputs else ''}{visible(' '.join(end.outputs))}\n"
            facts |= {"status": end.status, "duration_s": end.duration_s, "outputs": list(end.outputs)}
        return [("result", text)] if text else [], facts

    def _silent_attempts(self, run: str) -> frozenset[int]:
        """Return the attempts of a stage without a model: one that printed nothing left no file."""
        if self.step is not None or self.view != "all":
            return frozenset()
        ended = (event.data for event in self.events(run))
        return frozenset(data.attempt for data in ended if isinstance(data, AttemptStarted | AttemptFinished))

    def _exchanges(self) -> Iterator[_Source]:
        """Give exchanges: of runs, newest first; of the last result; of the first request of the next build."""
        for run in self.runs:
            for response in reversed(self._responses(run)):
                attempt = response.attempt
                if self.attempt in (None, attempt):
                    facts: dict[str, Json] = {"run": run, "attempt": attempt}
                    yield from self._stored(response.fingerprint, facts, f"attempt {attempt} of {run}")
        if self.run is not None or self.attempt is not None:
            return
        # A fresh clone has no journals: only what the lock file and the transcripts have.
        record = _known_record(self.opened, self.stage)
        known = tuple(reversed(record.exchanges)) if record else ()
        for fingerprint in known:
            yield from self._stored(fingerprint, {}, f"exchange {fingerprint[:12]}")
        for fingerprint in known if known and self.read_cache() else ():
            yield from self._stored(fingerprint, {}, f"exchange {fingerprint[:12]} of the shared cache")
        decided = self.seen.decided_stages.get(self.stage)
        first = first_call(self.project, self.seen, decided)
        if first is not None:
            for exchange in reversed(first.found):
                yield exchange, {}, f"exchange {exchange.fingerprint[:12]}, which the next build uses"

    def _stored(self, fingerprint: str, facts: Mapping[str, Json], title: str) -> Iterator[_Source]:
        found = self._exchange(fingerprint)
        # An accepted edit is an exchange without a request: there is no prompt to show.
        if found is not None and found.request:
            yield found, facts, title

    def _exchange(self, fingerprint: str) -> Exchange | None:
        return self.opened.store.exchanges.get(fingerprint, self.step.transcripts if self.step else None)

    def _responses(self, run: str) -> list[LlmResponse]:
        return [event.data for event in self.events(run) if isinstance(event.data, LlmResponse)]

    def _origin(self, exchange: Exchange | None, provenance: str) -> str:
        """Return the source of a response, and the fallback if it is of one."""
        origin = f" ({visible(provenance)})" if provenance else ""
        node = self.seen.plan.nodes.get(self.stage)
        if exchange is None or self.step is None or not isinstance(node, Stage):
            return origin
        provider, model = exchange.request.get("provider"), exchange.request.get("model")
        own = {(step.provider, step.model) for step in self.step.of_attempts(node.retry)}
        fallbacks = {(step.provider, step.model) for step in self.step.fallbacks()}
        is_fallback = (provider, model) in fallbacks - own
        return f", by the fallback {visible(f'{provider} {model}')}{origin}" if is_fallback else origin

    def _readable(self, text: str) -> str:
        return visible(secrets_from(self.project.settings.environ).redact(text))

    def _not_found(self) -> NotFoundError:
        name = _named(self.project, self.stage)
        if self.step is None and self.view != "all":
            text = f"`{self.stage}` has no {self.view}: only llm stages have one"
            return NotFoundError(Diagnostic("E664", text, hint=f"`orch23 show {name}` shows what it ran"))
        runs = [run for run in self.runs if self.events(run)]
        if not runs or (self.run is None and self.attempt is None):
            record = _known_record(self.opened, self.stage)
            return NotFoundError(_nothing_kept(self.project, self.stage, record, is_llm=self.step is not None))
        what = f"attempt {self.attempt}" if self.attempt else "attempt"
        where = f" in run {runs[0]}" if self.run else ""
        message = f"no {what} of `{self.stage}` is kept{where}"
        return NotFoundError(Diagnostic("E664", message, hint=f"`orch23 log {runs[0]} --commands` shows what ran"))


def _sent(exchange: Exchange) -> str:
    """Return the prompt that was sent, in the form of prompt.txt."""
    sent = exchange.request.get("sent") or exchange.request.get("messages")
    system = exchange.request.get("sent_system") or exchange.request.get("system")
    parts = sent if isinstance(sent, list | tuple) else ()
    said = joined_messages(
        (str(one.get("role")), str(one.get("content", ""))) for one in parts if isinstance(one, Mapping)
    )
    return f"{system}\n\n{said}" if isinstance(system, str) and system else said


def _runs(project: Project, stage: str, run: str | None) -> list[str]:
    logs = project.store.logs
    if run is None:
        return [path.stem for path in pipeline_journals(logs, project.pipeline.file)]
    return [select_pipeline_run(project, run_ids(logs), run, f"show {{pipeline}} {stage} --run {{run}}")]


def _events(project: Project, stage: str, run: str) -> list[Event]:
    return [event for event in stage_events(project.store.logs / f"{run}.jsonl", stage) if event.role == stage]


def _names(kept: Path, view: str) -> tuple[str, ...]:
    """Return the artifacts that a view shows, in the order in which an attempt writes them."""
    *first, last = _FILES[view]
    steps = sorted(kept.glob("verify-*.txt"), key=lambda path: (len(path.name), path.name)) if view == "all" else []
    return (*first, *(path.name for path in steps), last)


def _joined(parts: list[tuple[str, str]], title: str) -> str:
    if len(parts) == 1:
        return _ended(parts[0][1])
    return "".join(f"---- {name.removesuffix('.txt')}, {title} ----\n{_ended(text)}" for name, text in parts)


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _nothing_kept(project: Project, stage: str, record: Record | None, *, is_llm: bool) -> Diagnostic:
    name = _named(project, stage)
    if record is None:
        hint = f"`orch23 build {name}` makes one"
        return Diagnostic("E664", f"`{stage}` has no result yet, and no attempt of it is kept", hint=hint)
    again = f"`orch23 build --force {name}` runs the stage here"
    ends = stage_ends(project.store.logs, project.pipeline.file, stage)
    if next((message for _, message, end in ends if end.status in NEW_RESULTS), "") != FROM_SHARED_CACHE:
        why = "its result was made elsewhere, or what was kept of it is deleted"
        return Diagnostic("E664", f"no attempt of `{stage}` is kept: {why}", hint=again)
    text = f"no attempt of `{stage}` is kept: its result is from the shared cache"
    if not is_llm:
        return Diagnostic("E664", text, hint=again)
    if project.pipeline.cache.get("responses"):
        hint = f"`show` reads the cache of ORCH23_CACHE_URL or of the pipeline; {again}"
        return Diagnostic("E664", f"{text}, and its response is not found", hint=hint)
    hint = f"the response is where the result was made; `cache: {{responses: true}}` shares later ones; {again}"
    return Diagnostic("E664", f"{text}, and its response was not shared", hint=hint)


def _known_record(opened: OpenPipeline, stage: str) -> Record | None:
    known = (one for one in opened.store.records.labelled(stage) if _is_result(opened, one))
    return opened.lock.records.get(stage) or next(known, None)


def _is_result(opened: OpenPipeline, record: Record) -> bool:
    return not record.failed and is_of_plan(record, opened.state.plan, opened.store.root)


def _key(opened: OpenPipeline, seen: Preview, stage: str) -> ShowResult:
    """Return the key of the last result; without a result, the current key."""
    record, decided = _known_record(opened, stage), seen.decided_stages.get(stage)
    if record is not None:
        key, manifest, note = record.key, record.manifest, ""
    elif decided is not None:
        key, manifest, note = decided.resolved.key, decided.resolved.manifest, "  (no result has it yet)"
    else:
        raise NotFoundError(
            Diagnostic("E664", f"`{stage}` has no key yet", hint="it is known when its upstream stages have run")
        )
    texts = {
        name: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, default=list)
        for name, one in manifest.items()
    }
    lines = [f"{key}{note}", *(f"  {visible(name)}  {visible(text)}" for name, text in texts.items())]
    facts: dict[str, Json] = {"stage": stage, "key": key, "manifest": dict(manifest), "has_result": record is not None}
    return ShowResult("\n".join(lines) + "\n", facts)


def _diff(project: Project, opened: OpenPipeline, stage: str) -> ShowResult:
    """Compare each output with the file that the stage started from, or with the result before."""
    record = _known_record(opened, stage)
    if record is None:
        name = _named(project, stage)
        hint = f"`orch23 build {name}` makes one; `orch23 show {name}` has what was tried so far"
        raise NotFoundError(Diagnostic("E664", f"`{stage}` has no result yet", hint=hint))
    former = _previous(opened, record)
    logs, file = project.store.logs, project.pipeline.file
    ends = ((run, end.status) for run, _, end in stage_ends(logs, file, stage))
    decided = ((run, status) for run, status in ends if status.has_result or status is StageStatus.FAILED)
    failed_in = next((run if status is StageStatus.FAILED else "" for run, status in decided), "")
    blocks = []
    for path, entry in record.outputs.items():
        before = record.start_of(path) or (former.outputs.get(path) if former else None)
        then, now = _text(opened, path, before), _text(opened, path, entry)
        if now is None or then is None:
            blocks.append(f"{visible(path)}: its bytes are no longer in the store\n")
            continue
        found = text_diff(path, then, now)
        blocks.append("".join(f"{visible(line)}\n" for line in (f"{path}:", *found.lines)) if found.lines else "")
    good = run_of_result(logs, file, stage, record.key)
    note = f"the last attempt failed, in {failed_in}: this shows the last result{', of ' if good else ''}{good}\n"
    facts: dict[str, Json] = {"stage": stage, "key": record.key, "failed_in": failed_in or None}
    return ShowResult((note if failed_in else "") + ("".join(blocks) or "no changes\n"), facts)


def _previous(opened: OpenPipeline, record: Record) -> Record | None:
    """Return the newest other result of the stage that has one of the outputs."""
    found = (other for path in record.outputs for other in opened.store.records.owners(path))
    others = (one for one in found if one.stage == record.stage and dict(one.outputs) != dict(record.outputs))
    return next((one for one in others if _is_result(opened, one)), None)


def _text(opened: OpenPipeline, path: str, entry: FileEntry | None) -> str | None:
    if entry is None:
        return ""
    try:
        return opened.state.read(path, entry).decode("utf-8", errors="replace")
    except MissingBytesError:
        return None


def _cost(project: Project, stage: str, run: str | None) -> ShowResult:
    logs, runs = project.store.logs, _runs(project, stage, run)
    costs = stage_costs(((name, stage_events(logs / f"{name}.jsonl", stage)) for name in runs), stage)
    if not costs:
        where = f"run {run}" if run else "any run"
        text = f"no model was called for `{stage}` in {where}"
        raise NotFoundError(Diagnostic("E664", text, hint="`orch23 runs` lists the runs"))
    return ShowResult(costs_text(visible(stage), costs), {"stage": stage, "runs": [cost.facts() for cost in costs]})


def show_stage(  # noqa: PLR0913 - a command has as many parameters as options
    console: Console,
    *,
    args: PipelineArguments,
    view: str | None,
    out: str | None,
    attempt: int | None,
    run: str | None,
    changes: bool,
    lists_files: bool,
    as_json: bool,
) -> None:
    """Show prompts, responses and outputs of a stage."""

    def find(project: Project, stage: str) -> ShowResult:
        if changes or lists_files:
            if not changes or view not in (None, "diff") or (out, attempt, run) != (None,) * 3:
                hint = f"`orch23 show {_named(project, stage)} --changes --files`"
                raise UsageError(Diagnostic("E641", "`--changes` takes only `--diff` or `--files`", hint=hint))
            from orch23.model.features import APPROVAL, load_feature  # noqa: PLC0415 - for this view alone

            return ShowResult(*load_feature(APPROVAL["show"])(project, stage, lists_files=lists_files))
        if out is not None and view != "withheld":
            raise UsageError(Diagnostic("E641", "`-o` is of `--withheld` alone", hint="redirect the output to a file"))
        without_run = ("diff", "key", "withheld")
        for option, given, views in (("run", run, without_run), ("attempt", attempt, ("diff", "key", "cost"))):
            if given is not None and view in views:
                hint = f"`orch23 show {_named(project, stage)} --{option} {given}` shows what is kept of it"
                raise UsageError(Diagnostic("E641", f"`--{view}` and `--{option}` cannot be combined", hint=hint))
        if view == "withheld":
            from orch23.features.inspecting.withheld import show_withheld  # noqa: PLC0415 - for this view alone

            return ShowResult(*show_withheld(console, project, stage, attempt, out))
        # With it, the store looks up responses in the shared cache, too.
        has_cache = bool(project.pipeline.cache.get("responses"))

        def read_cache() -> bool:
            return has_cache and shared_results(console, project, args) is not None

        return _find_kept(project, stage, view or "all", attempt, run, read_cache)

    result = of_stage(console, args, find, whole=changes or view == "withheld")  # which copies files, and not twice
    console.write_out(
        json_document({"orch23_show": 1, **result.facts, "text": result.text}) if as_json else result.text
    )
