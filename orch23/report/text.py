"""The output formats `plain` and `quiet`: show a build on a terminal, one line per stage."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import quoted_names
from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    BatchSubmitted,
    BatchWaiting,
    CallSettled,
    CheckResult,
    Event,
    FilesPromoted,
    FilesReleased,
    FinishedStage,
    HttpRetry,
    LlmText,
    Notice,
    Planned,
    RateLimitWait,
    RunFinished,
    RunStarted,
    SharedCacheUsed,
    StageDecided,
    StageFinished,
    StageRestored,
    StagesAdded,
    StageStarted,
    StageWithheld,
    StepOutput,
    Warned,
)
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.model.plan import Restore, Skipped
from orch23.model.sink import Sink
from orch23.model.text import format_duration, format_money, parse_amount, visible
from orch23.report.formats import Format, View
from orch23.report.stage_text import failure_text, first_cause, has_unknown_price, never_ran, not_run_lines, stage_line
from orch23.report.values import MAX_IDLE_LINES, MAX_ITEM_LINES, Tone, format_counts, money_text, pluralize

# The labels of these decisions equal the statuses.
_IDLE_DECISIONS = (StageStatus.FRESH, StageStatus.DONE, StageStatus.SKIPPED)
# Texts for statuses of runs that are not clear on a screen.
_STATUS_TEXTS = {"decision": "your decision is needed", "approval": "waiting for approval"}
_HOW_TO_GO_ON = (
    "`orch23 build` collects what is done and goes on, `orch23 build --wait` waits for it, `orch23 cancel` cancels it"
)
# The statuses that the blocks after the summary show. The other stages are not kept: there can be 10,000.
_IN_FAILURES = frozenset({StageStatus.FAILED, StageStatus.EDITED, StageStatus.WITHHELD})
# Space for `@` and the name of an item after the name of its foreach.
_ITEM_WIDTH = 8
# If a stage makes the list, its items become known only after lines were written.
_LATER_ITEM_WIDTH = 17
_MAX_WIDTH = 32


class _Sums(Struct):
    statuses: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0
    unpriced: int = 0
    cost: Decimal = Decimal(0)
    possible: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)
    removed: int = 0

    def add(self, ended: StageFinished) -> None:
        self.statuses[ended.status] += 1
        self.calls += ended.calls
        self.input_tokens += ended.input_tokens
        self.output_tokens += ended.output_tokens
        self.recorded += ended.recorded
        self.unpriced += has_unknown_price(ended)
        self.cost += parse_amount(ended.cost) or Decimal(0)
        self.possible += parse_amount(ended.possible_cost) or Decimal(0)
        self.saved += parse_amount(ended.saved) or Decimal(0)


def _name_width(stage: Stage | ForeachStage) -> int:
    """Return the width of the name of a stage. For a foreach, most names of its items fit into the width."""
    width = len(stage.name)
    if isinstance(stage, Stage):
        return width
    return (
        width + _ITEM_WIDTH if stage.foreach.source is None else max(width, min(width + _LATER_ITEM_WIDTH, _MAX_WIDTH))
    )


class TextScreen(Struct, Sink, kw_only=True):
    """A sink that writes a build as text.

    It writes nothing before something happens, so that a build with nothing to do is one line. `quiet` leaves only
    warnings and failures; `View.verbose` adds why each stage runs, and its attempts. With `folds`, idle stages are only
    counted. `width` is the width of the column of names.
    """

    view: View
    quiet: bool = False
    folds: bool = False
    width: int = 0
    leaves_out: ClassVar[str] = (
        "stage_awaiting files_proposed command_ran llm_request llm_response call_reserved call_submitted"
    )
    _started: float = 0.0
    _facts: tuple[str, ...] = ()
    _items_of: str = ""
    _log: str = ""
    _pending: list[Callable[[], None]] = field(default_factory=list)
    _sums: _Sums = field(default_factory=_Sums)
    _failures: dict[str, FinishedStage] = field(default_factory=dict)
    _retries: dict[str, list[str]] = field(default_factory=dict)
    _restored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _restore_reasons: dict[str, str] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _is_open: bool = False
    _has_batches: bool = False
    _total: int = 0
    _idle: Counter[str] = field(default_factory=Counter)
    _folded: dict[str, _Sums] = field(default_factory=dict)
    _empty: list[FinishedStage] = field(default_factory=list)
    _unstarted: dict[str, FinishedStage] = field(default_factory=dict)
    _attempts: dict[str, list[tuple[float, Event]]] = field(default_factory=dict)
    _order: Iterable[str] = ()

    def __post_init__(self) -> None:
        """Read the kinds and names of the declared stages, and start the clock."""
        self._kinds = {stage.name: stage.kind for stage in self.view.pipeline.stages}
        # Names of items are longer than the name of their foreach: space for them keeps the columns in place.
        self.width = max(map(_name_width, self.view.pipeline.stages), default=0)
        self._started = self.view.clock()

    def notice(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event.data, (AttemptStarted, AttemptFinished, CallSettled)):
            self._attempts.setdefault(event.role, []).append((self.view.clock(), event))
        if isinstance(event.data, (FilesPromoted, StageRestored)):
            by = ", since no stage makes it any more" if event.role == ORCH23_ROLE else f" by {visible(event.role)}"
            self._note(f"removed{by}", event.data.removed)
            self._sums.removed += len(event.data.removed)
        match event.data:
            case RunStarted():
                self._start(event.data)
            case Planned(stages=stages):
                self._order = stages
                self._add_planned(stages)
            case StagesAdded(items=items, at_rest=at_rest):
                self._order = event.data.put_into(self._order, event.role)
                self._add_items(event.role, items)
                self._idle.update(at_rest or {})
            case FilesReleased(files=files):
                self._note("released as source files", files)
            case BatchSubmitted() | BatchWaiting() | SharedCacheUsed():
                self._aside(event)
            case Notice():
                self._warn(event)
            case RunFinished():
                self._finish(event.data)
            case _:
                self._notice_stage(event)

    def _notice_stage(self, event: Event) -> None:
        match event.data:
            case StageStarted():
                self._open()
            case StageDecided(decision=decision) if decision not in _IDLE_DECISIONS:
                self._decided(event.role, event.data)
            case AttemptStarted(attempt=attempt) if not self.view.verbose:
                self._show_former_attempt(event.role, attempt - 1)
            case AttemptStarted() | AttemptFinished() | CheckResult() | StageWithheld():
                self._attempt(event.role, event.message)
            case StepOutput(line=line, cut=cut) | LlmText(line=line, cut=cut):
                self._stage_line(event.role, f"| {visible(event.message if cut else line)}")
            case HttpRetry(status=status, code=code):
                self._retries.setdefault(event.role, []).append(str(status or code))
                self._attempt(event.role, event.message)
            case RateLimitWait():
                self._stage_line(event.role, visible(event.message))
            case StageRestored(files=files):
                self._restored[event.role] = files
            case StageFinished():
                self._finished(FinishedStage(event.role, event.message, event.data))

    def _decided(self, stage: str, decided: StageDecided) -> None:
        why = ""
        if self.view.verbose or decided.decision == Restore.label:
            from orch23.report.plan_view import event_reason_text, restored_because  # noqa: PLC0415 - few lines show why

            self._restore_reasons[stage] = restored_because(decided.reasons)
            why = ", ".join(map(event_reason_text, decided.reasons)) if self.view.verbose else ""
        self._attempt(stage, f"{decided.decision}: {why}".rstrip(": "))

    def _start(self, run: RunStarted) -> None:
        self._total = run.stages or len(self.view.pipeline.stages)
        self._idle = Counter(run.at_rest or {})
        providers, models = ", ".join(run.provider), ", ".join(run.model)
        facts = [f"provider {visible(providers)} model {visible(models)}"] if providers else []
        facts += [f"sandbox: {run.sandbox or 'none'}"]
        self._facts = tuple(facts)
        self._log = f"logs/{run.run_id}.jsonl"

    def _attempt(self, stage: str, text: str) -> None:
        if self.view.verbose:
            self._stage_line(stage, visible(text))

    def _show_former_attempt(self, stage: str, number: int) -> None:
        """Write why attempt `number` of a stage failed, if it was the last to end; 0 verified a recorded result.

        Items without a line of their own are left out.
        """
        events = self._attempts.get(stage, [])
        ended = [event.data for _, event in events if isinstance(event.data, AttemptFinished)]
        if ended and ended[-1].attempt == number and family_of(stage) not in self._folded:
            from orch23.report.failures import failed_attempts  # noqa: PLC0415 - only for failures

            self._stage_line(stage, failed_attempts(events)[-1])

    def _stage_line(self, stage: str, text: str) -> None:
        self._open()
        self._line(f"   {visible(stage):<{self.width}}  {text}")

    def _note(self, action: str, files: tuple[str, ...]) -> None:
        if files and not self.quiet:
            self._open()
            self._line(f" {self.view.style.marks.idle} {action}: {visible(' '.join(files))}")

    def _aside(self, event: Event) -> None:
        uses_cache = isinstance(event.data, SharedCacheUsed)
        self._has_batches = self._has_batches or not uses_cache
        waits = "waiting: " if isinstance(event.data, BatchWaiting) else ""
        mark = self.view.style.marks.idle if uses_cache else self.view.style.marks.maybe
        self._open()
        self._line(f" {mark} {waits}{visible(event.message)}")

    def _finished(self, ended: FinishedStage) -> None:
        self._sums.add(ended.data)
        # A stage can end twice, if its inputs change during the build: only the last time counts.
        self._failures.pop(ended.name, None)
        self._unstarted.pop(ended.name, None)
        attempts = self._attempts.pop(ended.name, [])
        if ended.status in _IN_FAILURES:
            from orch23.report.failures import failed_attempts, hidden_reasons  # noqa: PLC0415 - only for failures

            reasons = hidden_reasons(event for _, event in attempts)
            self._failures[ended.name] = replace(ended, earlier=failed_attempts(attempts)[:-1], reasons=reasons)
        self.width = max(self.width, min(len(ended.name), _MAX_WIDTH))
        is_idle = ended.status.is_idle and not self.view.verbose
        # A foreach without items is shown in every build: its list may be empty by mistake.
        if ended.message == str(Skipped("")):
            self._empty.append(ended)
        elif never_ran(ended) and not self.view.verbose:
            self._unstarted[ended.name] = ended
            return
        # In a large pipeline, thousands of fresh stages would hide the ones that ran: only their number is shown.
        elif is_idle and (self.folds or self._total > MAX_IDLE_LINES):
            return
        if (folded := self._folded.get(ended.name.partition("@")[0])) is not None and not ended.status.is_failure:
            folded.add(ended.data)
            return
        # Kept back, so that a build with nothing to do is one line.
        if is_idle and not self._is_open:
            self._pending.append(partial(self._stage, ended))
            return
        self._open()
        self._stage(ended)

    def _add_planned(self, stages: Iterable[str]) -> None:
        # The items of a list that no stage makes are known from the beginning.
        families: dict[str, list[str]] = {}
        for name in stages:
            if "@" in name:
                families.setdefault(family_of(name), []).append(name)
        for foreach, names in families.items():
            self._add_items(foreach, names)
        # The number of stages grows when the lists of the others are known.
        lists = [one.name for one in self.view.pipeline.stages if isinstance(one, ForeachStage)]
        known = set(stages)
        if later := [name for name in lists if name in known]:
            self._items_of = f" and the items of {quoted_names(map(visible, later))}"

    def _add_items(self, foreach: str, items: Sequence[str]) -> None:
        self.width = max([self.width, *(min(len(item), _MAX_WIDTH) for item in items)])
        if len(items) > MAX_ITEM_LINES and not self.view.verbose:
            self._folded[foreach] = _Sums()

    def _fold(self) -> None:
        """Write a line for each foreach of many items: the number of them by status, and their cost."""
        for name, sums in self._folded.items():
            if ended := sums.statuses.total():
                counts = format_counts({one.value: sums.statuses[one] for one in StageStatus})
                facts = [pluralize(ended, "item"), counts, ", ".join(self._used(sums))]
                mark = self.view.style.paint(self.view.style.marks.done, "good")
                self._line(f" {mark} {visible(name):<{self.width}}  {'   '.join(filter(None, facts))}")

    @property
    def is_folding(self) -> bool:
        """Whether items end without a line of their own."""
        return bool(self._folded)

    def _stage(self, ended: FinishedStage) -> None:
        kind = self._kinds.get(ended.name.partition("@")[0], "")
        retries, restored = self._retries.pop(ended.name, ()), self._restored.get(ended.name, ())
        why = self._restore_reasons.pop(ended.name, "") if ended.status is StageStatus.RESTORED else ""
        self._line(stage_line(ended, kind, self.width, self.view.style, retries=retries, restored=restored, why=why))

    def _warn(self, event: Event) -> None:
        # A warning about the sandbox matters only if a step runs: a build with nothing to do does not show it.
        if isinstance(event.data, Warned) and event.data.of_steps and not self._is_open:
            self._pending.append(partial(self._warn, event))
            return
        self._open()
        role = "" if event.role == ORCH23_ROLE else f"{visible(event.role)}: "
        word = {"info": "note", "error": "error"}.get(event.level, "warning")
        word = self.view.style.paint(word, "error" if event.level == "error" else "notice")
        self.view.tell(f"{word}: {role}{visible(event.message)}\n")

    def _open(self) -> None:
        """Write the first line and the pending ones, if this is the first thing that happens."""
        if self._is_open:
            return
        self._is_open = True
        if self._facts:
            head = f"{visible(self.view.pipeline.name)}: {pluralize(self._total, 'stage')}{self._items_of}"
            self._line("   ".join((head, *self._facts)))
        for show in self._pending:
            show()
        self._pending.clear()

    def aside(self, text: str) -> None:
        """Write a line about the build while no event reports anything."""
        self._open()
        self._line(f"   {text}")

    def _line(self, text: str) -> None:
        if not self.quiet:
            self.view.tell(f"{text}\n")

    def _finish(self, run: RunFinished) -> None:
        statuses = self._idle + self._sums.statuses
        if not self._is_open and run.exit_code == 0:
            skips = statuses[StageStatus.SKIPPED]
            listed = ((statuses[one], one) for one in (StageStatus.DONE, StageStatus.SKIPPED))
            skipped = "".join(f", {number} {one}" for number, one in listed if number)
            stages = pluralize(statuses.total() - skips, "stage")
            self._line(f"{visible(self.view.pipeline.name)}: up to date ({stages}{skipped})")
            for ended in self._empty:
                self._stage(ended)
            return
        self._open()
        self._fold()
        for line in not_run_lines(self._unstarted.values(), self.view.columns() - 4):
            self._line(f" {self.view.style.paint(self.view.style.marks.idle, 'quiet')} {line}")
        self._line(self._summary(statuses, run))
        names = dict.fromkeys((*self._order, *self._failures))
        ends = [self._failures[name] for name in names if name in self._failures]
        failures = failure_text(self.view.pipeline, ends, self._kinds, self.view.style, self.view.read_source)
        self.view.tell(failures)
        if failures or run.exit_code != 0:
            tone: Tone = "notice" if run.status in ("waiting", "approval") else "bad"
            # The last line says why, not what follows from it: a failed stage first, whatever the exit code is.
            cause = first_cause(self.view.pipeline, ends)
            has_failed = any(end.status is StageStatus.FAILED for end in ends)
            text = "failed" if has_failed and run.status in ("waiting", *_STATUS_TEXTS) else run.status
            status = self.view.style.paint(_STATUS_TEXTS.get(text, text), tone)
            if run.status == "waiting" and self._has_batches:
                self.view.tell(f"\n{_HOW_TO_GO_ON}\n")
            log = f"the log is {self._log}; `orch23 log` shows it"
            self.view.tell(f"\n{log}\n{status}: {cause}\n" if cause else f"\n{status}: {log}\n")

    def _summary(self, statuses: Counter[str], run: RunFinished) -> str:
        sums, skips = self._sums, statuses[StageStatus.SKIPPED]
        counts = format_counts({name.value: statuses[name] for name in StageStatus if name is not StageStatus.SKIPPED})
        # Skipped stages are not among the stages that the first line counts.
        ends = f"{pluralize(statuses.total() - skips, 'stage')}{': ' if counts else ''}{counts}"
        facts = [f" {ends}{f'; {skips} skipped' if skips else ''}", format_duration(self.view.clock() - self._started)]
        spent = [*self._used(sums), *self._money(run)]
        facts += [", ".join(spent)] if spent else []
        if sums.recorded:
            saved = f", {format_money(sums.saved)}" if sums.saved else ""
            facts += [f"saved {pluralize(sums.recorded, 'call')}{saved}"]
        facts += [f"{pluralize(sums.removed, 'file')} removed"] if sums.removed else []
        return "   ".join(facts)

    def _used(self, sums: _Sums) -> list[str]:
        used = [pluralize(sums.calls, "call")] if sums.calls else []
        # Some providers report no tokens: `0+0 tokens` would be wrong.
        if sums.calls and (sums.input_tokens or sums.output_tokens):
            used += [f"{sums.input_tokens:,}+{sums.output_tokens:,} tokens"]
        return used

    def _money(self, run: RunFinished) -> list[str]:
        """Return the cost, what may have been charged besides, and the limit.

        Calls of unknown price are counted beside the sum, never left out.
        """
        before, limit = parse_amount(run.before.cost), parse_amount(run.limits.max_cost_usd)
        possible_before = parse_amount(run.before.possible_cost)
        unpriced, cost, possible = self._sums.unpriced, self._sums.cost, self._sums.possible
        of_limit = f" of {format_money(limit)}" if limit is not None else ""
        paid = [f"{format_money(cost)}{of_limit}"] if cost or possible else []
        paid += [f"at most {format_money(possible)} more"] if possible else []
        if before or possible_before:
            amount = money_text(before or Decimal(0), possible_before or Decimal(0))
            paid += [f"{amount} in earlier runs that it continues"]
        if not unpriced:
            return paid
        return [*paid, f"and {pluralize(unpriced, 'stage')} of unknown price"] if paid else ["price unknown"]


QUIET_TEXT = Format(make=lambda view: TextScreen(view=view, quiet=True), in_a_line=True, is_alone=True)
