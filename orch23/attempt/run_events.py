"""Emit the events of a run: stages, and lines of output."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import UNSET, Struct, field

from orch23.attempt.failures import diagnostic_line
from orch23.attempt.stage_outcomes import StageOutcome
from orch23.model.diagnostic import Diagnostic
from orch23.model.event import (
    ORCH23_ROLE,
    Event,
    FilesPromoted,
    LlmText,
    Observer,
    StageDecided,
    StageFinished,
    StageRestored,
    StageStarted,
    StageWithheld,
    StepOutput,
    Warned,
)
from orch23.model.event_data import EventData, EventLevel, EventProblem, EventReason, StageStatus
from orch23.model.plan import Decision, Edited, Fresh, Restore, Run, VerifyOnly
from orch23.model.record import Record
from orch23.model.text import LineListener, LineSplitter, decimal_text, displayable_part, join_first
from orch23.store.promotion import PromotionResult
from orch23.store.run_logs import AttemptFiles

MAX_LINES = 1_000
"""The most lines of one step or one response that are reported."""


_MOST_NAMES = 8  # with all names, the journal would grow with the square of the number of items


class RunEvents(Struct):
    """Emits the events of the build loop. `clock` is monotonic, in seconds."""

    observer: Observer
    clock: Callable[[], float]
    _began: dict[str, float] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)
    _written: set[tuple[str, str]] = field(default_factory=set)

    def emit(self, data: EventData, text: str, role: str = ORCH23_ROLE) -> None:
        """Emit one event."""
        self.observer.notice(Event(data, text, role))

    def warn(self, text: str, role: str = ORCH23_ROLE, data: Warned | None = None) -> None:
        """Emit a warning for the user."""
        self.observer.notice(Event(data or Warned(), text, role, "warning"))

    def warn_of(self, name: str, warning: Diagnostic | None) -> None:
        """Emit a warning about the files that a stage wrote, if there is one."""
        if warning is not None:
            self.warn(diagnostic_line(warning), name, Warned(code=warning.code))

    def decided(self, name: str, decision: Decision, key: str) -> None:
        """Report a decision and its reasons.

        Raises:
            TypeError: a build cannot have this decision.
        """
        if not isinstance(decision, Fresh | Run | Restore | VerifyOnly | Edited):
            message = f"BUG: {type(decision).__name__} in a build"
            raise TypeError(message)
        reasons = decision.reasons if isinstance(decision, Run | Restore | VerifyOnly) else ()
        because = tuple(EventReason(reason.code, reason.subject) for reason in reasons)
        self.emit(StageDecided(decision=decision.label, key=key, reasons=because), decision.label, name)

    def started(self, name: str, key: str) -> None:
        """Report that a stage starts."""
        self._began[name] = self.clock()
        self.emit(StageStarted(key=key), "started", name)

    def withheld(self, name: str, key: str, missing: Sequence[str]) -> None:
        """Report that a stage passed and waits for its group. Its duration ends here."""
        self._took[name] = self.took_s(name)
        data = StageWithheld(key=key, missing=tuple(missing[:_MOST_NAMES]), waits_for=len(missing))
        self.emit(data, f"waits for {join_first(missing, _MOST_NAMES)}", name)

    def took_s(self, name: str) -> float:
        """Return how many seconds ago a stage started; 0 if it has not."""
        return round(self.clock() - self._began[name], 3) if name in self._began else 0.0

    def deferred(self, name: str) -> None:
        """End the duration of a stage that is promoted later."""
        self._took[name] = self.took_s(name)

    def promoted(self, name: str, text: str, promoted: PromotionResult) -> None:
        """Report the files of the workspace that changed."""
        self._written.update((name, path) for path in promoted.written)
        self.emit(FilesPromoted(files=promoted.written, removed=promoted.removed), text, name)

    def restored(self, name: str, promoted: PromotionResult) -> None:
        """Report the files of an earlier result that were restored."""
        self.emit(StageRestored(files=promoted.written, removed=promoted.removed), "restored", name)

    def ended(self, name: str, end: StageOutcome, former: Record | None) -> None:
        """Report how a stage ended. `former` is its result before this run, if any."""
        record = end.record
        paths = tuple(record.outputs) if record is not None else ()
        same = former is not None and bool(paths) and self._written.isdisjoint((name, path) for path in paths)
        data = StageFinished(
            status=end.status,
            key=end.key,
            duration_s=self._took.get(name, self.took_s(name)),
            attempts=end.attempts,
            calls=end.cost.calls,
            recorded=end.usage.recorded,
            input_tokens=end.usage.input_tokens,
            output_tokens=end.usage.output_tokens,
            cost=None if end.usage.unpriced or end.cost.cost is None else decimal_text(end.cost.cost),
            possible_cost=decimal_text(end.cost.possible),
            saved=str(end.usage.saved),
            by_hand=end.usage.by_hand,
            fallbacks=end.usage.fallbacks,
            outputs=paths,
            unchanged=same and _result(record) == _result(former),
            failure=end.failure,
            problems=tuple(
                EventProblem(one.code, one.message, one.subject, one.hint, one.location or UNSET, one.fix or UNSET)
                for one in end.problems
            ),
            failure_kind=end.kind,
            command=end.command,
            by=end.by,
            paths=end.paths,
            exit_code=UNSET if end.exit_code is None else end.exit_code,
            command_s=UNSET if end.command_s is None else round(end.command_s, 3),
            cause=end.cause or UNSET,
            # Files of a withheld result are not in the workspace.
            metrics=dict(end.metrics) if end.metrics and end.is_green else UNSET,
            forgiven=(record.forgiven if record is not None and end.is_green else ()) or UNSET,
        )
        self.observer.notice(Event(data, end.text, name, "error" if end.status is StageStatus.FAILED else "info"))


def _result(record: Record | None) -> tuple[dict[str, str], tuple[str, ...]] | None:
    return None if record is None else ({p: str(e) for p, e in record.outputs.items()}, record.deleted)


class OutputWatcher(Protocol):
    """Shows what stages do while they run. It redacts by itself, and is called from several threads."""

    @property
    def paints(self) -> bool:
        """Whether it shows what steps print and models write."""

    def step(self, stage: str, step: str) -> None:
        """Note that a stage runs a step."""

    def print(self, stage: str, lines: Iterable[str], line: str) -> None:
        """Note the complete lines that a step printed or a model wrote, and the beginning of the next one."""


class Reporter(Struct, frozen=True, kw_only=True):
    """Reports for all stages of a build. Artifacts are redacted here; `observer` redacts by itself.

    With `live`, lines that steps print and models write are events too. `watcher` gets them in any case.
    """

    observer: Observer
    artifacts: AttemptFiles
    redact: Callable[[str], str] = str
    live: bool = False
    watcher: OutputWatcher | None = None

    def of_stage(self, name: str) -> "StageReporter":
        """Return the reporter of one stage."""
        return StageReporter(name, self)


class StageReporter(Struct, frozen=True):
    """Reports for one stage."""

    stage: str
    reporter: Reporter

    def emit(self, data: EventData, message: str, level: EventLevel = "info") -> None:
        """Report an event of the stage."""
        self.reporter.observer.notice(Event(data, message, self.stage, level))

    def warn(self, warning: Diagnostic) -> None:
        """Report a warning about the stage."""
        place = f" ({warning.location})" if warning.location else ""
        hint = f"; {warning.hint}" if warning.hint else ""
        self.emit(Warned(code=warning.code), f"[{warning.code}] {warning.message}{place}{hint}", "warning")

    def keep(self, attempt: int, name: str, text: str) -> None:
        """Keep an artifact of an attempt."""
        self.reporter.artifacts.keep(self.stage, attempt, name, self.reporter.redact(text))

    def step_lines(self, step: str) -> LineListener | None:
        """Return a listener for the lines that a step prints; None if nothing is reported."""
        if self.reporter.watcher is not None:
            self.reporter.watcher.step(self.stage, step)
        reported = self._reported(lambda line, cut: StepOutput(step=step, line=line, cut=cut))
        return self._heard(reported if self.reporter.live else None, step)

    def response_lines(self, attempt: int) -> LineSplitter:
        """Return a splitter for the parts of a response."""
        reported = self._reported(lambda line, cut: LlmText(attempt=attempt, line=line, cut=cut))
        return LineSplitter(self._heard(reported if self.reporter.live else None) or _ignore)

    def watch(self, line: str) -> None:
        """Show the beginning of a line of a response, up to its last space: so no part of a secret is shown."""
        if self.reporter.watcher is not None:
            self.reporter.watcher.print(self.stage, (), line.rpartition(" ")[0])

    def _heard(self, reported: LineListener | None, step: str = "") -> LineListener | None:
        watcher = self.reporter.watcher
        return reported if watcher is None else _Watched(self.stage, step, watcher, reported)

    def _reported(self, event: Callable[[str, bool], EventData]) -> LineListener:
        count = 0

        def listener(line: str, *, cut: bool = False) -> None:
            nonlocal count
            count += 1
            # A program in a loop prints millions of lines: each would be an event in the journal.
            if count <= MAX_LINES:
                text, is_cut = displayable_part(line, self.reporter.redact, cut=cut)
                self.emit(event(text, is_cut), f"{text}..." if is_cut else text, "debug")
            elif count == MAX_LINES + 1:
                text = f"more than {MAX_LINES:,} lines: the rest is not shown"
                self.emit(event("", True), text, "debug")  # noqa: FBT003 - a fact of the event

        return listener


class _Watched(Struct, frozen=True):
    """Shows the lines of a step or of a response, and reports them if there is a `reported`."""

    stage: str
    step: str
    watcher: OutputWatcher
    reported: LineListener | None

    def __call__(self, line: str, *, cut: bool = False) -> None:
        self.watcher.print(self.stage, (line,), "")
        if self.reported is not None:
            self.reported(line, cut=cut)

    def __bool__(self) -> bool:
        """Return whether lines have an effect: a process on this machine need not split its output otherwise."""
        return self.watcher.paints or self.reported is not None

    def know(self, text: str) -> None:
        """Show the state of a step on another machine that prints nothing; empty if nothing is special."""
        self.watcher.step(self.stage, f"{self.step} ({text})" if text else self.step)


def _ignore(line: str, *, cut: bool = False) -> None:
    pass
