"""The output formats `plain` and `quiet`: show a build on a terminal, one line per stage."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import cast, get_args

from msgspec import Struct, field

from orch23.model.event import (
    ORCH23_ROLE,
    AttemptFinished,
    AttemptStarted,
    CheckResult,
    Event,
    EventReason,
    FilesPromoted,
    FilesReleased,
    HttpRetry,
    LlmText,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StageRestored,
    StagesAdded,
    StageWithheld,
    StepOutput,
    StoreRepaired,
    Warned,
)
from orch23.model.pipeline import Pipeline
from orch23.model.record import Reason, ReasonCode
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.formats import Format, View
from orch23.report.marks import MAX_IDLE_LINES, Style
from orch23.report.plan_view import reason_text
from orch23.report.stage_text import FinishedStage, failure_text, has_unknown_price, parse_amount, stage_line
from orch23.report.values import format_counts, format_duration, format_money, pluralize

_ORDER = (
    StageStatus.BUILT,
    StageStatus.RESTORED,
    StageStatus.VERIFIED,
    StageStatus.FRESH,
    StageStatus.SKIPPED,
    StageStatus.WITHHELD,
    StageStatus.FAILED,
    StageStatus.EDITED,
    StageStatus.BLOCKED,
    StageStatus.CANCELLED,
)
_DULL = (StageStatus.FRESH, StageStatus.SKIPPED)
"""Decisions that are written as these statuses are."""
REASON_CODES: tuple[str, ...] = get_args(ReasonCode)
_TOLD = frozenset({StageStatus.FAILED, StageStatus.EDITED, StageStatus.WITHHELD})
"""How a stage ends that is told of once more when all is over; the ends of the others are not kept."""


class _Sums(Struct):
    """What the stages that ended come to."""

    statuses: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0
    unpriced: int = 0
    cost: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)

    def add(self, ended: StageFinished) -> None:
        """Add how one ended."""
        self.statuses[ended.status] += 1
        self.calls += ended.calls
        self.input_tokens += ended.input_tokens
        self.output_tokens += ended.output_tokens
        self.recorded += ended.recorded
        self.unpriced += has_unknown_price(ended)
        self.cost += parse_amount(ended.cost) or Decimal(0)
        self.saved += parse_amount(ended.saved) or Decimal(0)


class TextScreen(Struct, kw_only=True):
    """Writes a build as text. Nothing is written before something happens: a build with nothing to do is one line.

    `quiet` leaves only warnings and failures; `verbose` adds why each stage runs, and its attempts.
    """

    pipeline: Pipeline
    write: Callable[[str], None]
    clock: Callable[[], float]
    style: Style
    quiet: bool = False
    verbose: bool = False
    _began: float = 0.0
    _head: str = ""
    _log: str = ""
    _held: list[Event | FinishedStage] = field(default_factory=list)
    _sums: _Sums = field(default_factory=_Sums)
    _last: dict[str, FinishedStage] = field(default_factory=dict)
    _again: dict[str, list[str]] = field(default_factory=dict)
    _restored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _width: int = 0
    _open: bool = False
    _total: int = 0
    _at_rest: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Take kinds and names of the declared stages."""
        self._kinds = {stage.name: stage.kind for stage in self.pipeline.stages}
        self._width = max((len(name) for name in self._kinds), default=0)
        self._began = self.clock()

    def notice(self, event: Event) -> None:  # noqa: C901, PLR0912 - one a type of event
        """Take one event."""
        match event.data:
            case RunStarted():
                self._start(event.data)
            case StagesAdded(items=items):
                self._width = max([self._width, *(len(name) for name in items)])
            case StageDecided():
                self._decided(event.role, event.data)
            case AttemptStarted() | AttemptFinished() | CheckResult() | StageWithheld():
                self._attempt(event)
            case StepOutput(line=line, cut=cut) | LlmText(line=line, cut=cut):
                self._live(event.role, event.message if cut else line)
            case HttpRetry(status=status, code=code):
                self._again.setdefault(event.role, []).append(code if status is None else str(status))
                self._attempt(event)
            case FilesPromoted(removed=removed) if event.role == ORCH23_ROLE:
                self._note("removed, since no stage makes it any more", removed)
            case FilesReleased(files=files):
                self._note("released, now a source", files)
            case StageRestored(files=files):
                self._restored[event.role] = files
            case StageFinished():
                self._finished(FinishedStage(event.role, event.message, event.data))
            case Warned() | StoreRepaired():
                self._warn(event)
            case RunFinished():
                self._finish(event.data)
            case _:
                pass

    def _start(self, began: RunStarted) -> None:
        self._total = began.stages or len(self.pipeline.stages)
        self._at_rest = Counter(began.at_rest or {})
        providers, models = ", ".join(began.provider), ", ".join(began.model)
        facts = [f"{visible(self.pipeline.name)}: {pluralize(self._total, 'stage')}"]
        facts += [f"provider {visible(providers)} model {visible(models)}"] if providers else []
        facts += [f"sandbox: {began.sandbox or 'none'}"]
        self._head = "   ".join(facts)
        self._log = f"logs/{began.run_id}.jsonl"

    def _decided(self, name: str, decided: StageDecided) -> None:
        if self.verbose and decided.decision not in _DULL:
            self._show()
            told = ", ".join(_reason(one) for one in decided.reasons)
            self._line(f"   {visible(name):<{self._width}}  {decided.decision}: {told}".rstrip(": "))

    def _attempt(self, event: Event) -> None:
        if self.verbose:
            self._show()
            self._line(f"   {visible(event.role):<{self._width}}  {visible(event.message)}")

    def _live(self, name: str, line: str) -> None:
        self._show()
        self._line(f"   {visible(name):<{self._width}}  | {visible(line)}")

    def _note(self, what: str, files: tuple[str, ...]) -> None:
        if files and not self.quiet:
            self._show()
            self._line(f" {self.style.marks.idle} {what}: {visible(' '.join(files))}")

    def _finished(self, ended: FinishedStage) -> None:
        self._sums.add(ended.data)
        if ended.status in _TOLD:
            self._last[ended.name] = ended
        else:  # a stage that was decided twice counts as it ended last
            self._last.pop(ended.name, None)
        self._width = max(self._width, len(ended.name))
        if ended.status.is_idle and not self.verbose:
            if self._total > MAX_IDLE_LINES:
                return
            if not self._open:
                self._held.append(ended)
                return
        self._show()
        self._stage(ended)

    def _stage(self, ended: FinishedStage) -> None:
        kind = self._kinds.get(ended.name.partition("@")[0], "")
        again, restored = self._again.pop(ended.name, ()), self._restored.get(ended.name, ())
        self._line(stage_line(ended, kind, self._width, self.style, again=again, restored=restored))

    def _warn(self, event: Event) -> None:
        if isinstance(event.data, Warned) and event.data.of_steps and not self._open:  # matters only if a step runs
            self._held.append(event)
            return
        self._show()
        sign_ = self.style.paint("warning", "notice")
        role = "" if event.role == ORCH23_ROLE else f"{visible(event.role)}: "
        self.write(f"{sign_}: {role}{visible(event.message)}\n")

    def _show(self) -> None:
        """Write the first line, and what was held back since nothing else had happened."""
        if self._open:
            return
        self._open = True
        if self._head:
            self._line(self._head)
        for event in self._held:
            if isinstance(event, FinishedStage):
                self._stage(event)
            else:
                self._warn(event)
        self._held.clear()

    def _line(self, text: str) -> None:
        if not self.quiet:
            self.write(f"{text}\n")

    # ---- the end --------------------------------------------------------------------------

    def _finish(self, ended: RunFinished) -> None:
        statuses = self._at_rest + self._sums.statuses
        if not self._open and ended.exit_code == 0:
            skips = statuses[StageStatus.SKIPPED]
            skipped = f", {skips} skipped" if skips else ""
            stages = pluralize(statuses.total() - skips, "stage")
            self._line(f"{visible(self.pipeline.name)}: up to date ({stages}{skipped})")
            return
        self._show()
        self._line(self._summary(statuses, ended))
        told = failure_text(self.pipeline, [*self._last.values()], self._kinds, self.style)
        self.write(told)
        if told or ended.exit_code != 0:
            word = self.style.paint(ended.status, "bad")
            self.write(f"\n{word}: the log is {self._log}; `orch23 log` shows it\n")

    def _summary(self, statuses: Counter[str], ended: RunFinished) -> str:
        sums = self._sums
        calls, recorded, saved = sums.calls, sums.recorded, sums.saved
        facts = [
            f" {pluralize(statuses.total(), 'stage')}: {format_counts({name.value: statuses[name] for name in _ORDER})}"
        ]
        facts += [format_duration(self.clock() - self._began)]
        spent = [pluralize(calls, "call")] if calls else []
        tokens = f"{sums.input_tokens:,}+{sums.output_tokens:,} tokens"
        spent += [tokens] if calls and (sums.input_tokens or sums.output_tokens) else []
        spent += self._money(ended)
        facts += [", ".join(spent)] if spent else []
        facts += (
            [f"saved {pluralize(recorded, 'call')}{f', {format_money(saved)}' if saved else ''}"] if recorded else []
        )
        return "   ".join(facts)

    def _money(self, ended: RunFinished) -> list[str]:
        """Return what was paid, of how much; nothing where nothing was, and no sum that leaves something out."""
        before, most = parse_amount(ended.before.cost), parse_amount(ended.limits.max_cost_usd)
        unpriced, cost = self._sums.unpriced, self._sums.cost
        limit = f" of {format_money(most)}" if most is not None else ""
        paid = [f"{format_money(cost)}{limit}"] if cost else []
        paid += [f"{format_money(before)} before it was interrupted"] if before else []
        if not unpriced:
            return paid
        return [*paid, f"and {pluralize(unpriced, 'stage')} of unknown price"] if paid else ["price unknown"]


def _reason(reason: EventReason) -> str:
    if reason.code not in REASON_CODES:
        return ""
    return reason_text(Reason(cast("ReasonCode", reason.code), reason.subject))


def _screen(view: View, *, quiet: bool) -> TextScreen:
    return TextScreen(
        pipeline=view.pipeline,
        write=view.tell,
        clock=view.clock,
        style=view.style,
        quiet=quiet,
        verbose=view.verbose,
    )


PLAIN_TEXT = Format(make=partial(_screen, quiet=False), in_a_line=True)
QUIET_TEXT = Format(make=partial(_screen, quiet=True), in_a_line=True, is_alone=True)
