"""Tell the observers of a run what happens in it, in the shapes of its events."""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from orch23.engine.ends import StageEnd
from orch23.engine.failure import coded
from orch23.model.decision import Decision, Edited, Fresh, Restore, Run, VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.event import (
    ORCH23,
    Because,
    Event,
    EventData,
    FilesPromoted,
    Observer,
    Problem,
    StageDecided,
    StageFinished,
    StageHeld,
    StageRestored,
    StageStarted,
    Warned,
)
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus
from orch23.providers.prices import plain
from orch23.store.promote import Promoted

_MOST_NAMES = 8  # all of them, of each item, would be a journal of the square of their number


class Narrator(Struct):
    """Makes events of what the loop does. `clock` is monotonic, in seconds."""

    observer: Observer
    clock: Callable[[], float]
    _began: dict[str, float] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)

    def tell(self, data: EventData, text: str, role: str = ORCH23) -> None:
        """Tell one event."""
        self.observer.notice(Event(data, text, role))

    def warn(self, text: str, role: str = ORCH23, data: Warned | None = None) -> None:
        """Tell of something that a person should see."""
        self.observer.notice(Event(data or Warned(), text, role, "warning"))

    def caution(self, name: str, warning: Diagnostic | None) -> None:
        """Tell of a warning about what a stage wrote, if there is one."""
        if warning is not None:
            self.warn(coded(warning), name, Warned(code=warning.code))

    def decided(self, name: str, decision: Decision, key: str) -> None:
        """Tell what is to be done with a stage, and why.

        Raises:
            TypeError: a build does not decide so, only a dry-run.

        """
        if not isinstance(decision, Fresh | Run | Restore | VerifyOnly | Edited):
            message = f"BUG: {type(decision).__name__} in a build"
            raise TypeError(message)
        reasons = decision.reasons if isinstance(decision, Run | Restore | VerifyOnly) else ()
        because = tuple(Because(reason.code, reason.subject) for reason in reasons)
        self.tell(StageDecided(decision=decision.label, key=key, reasons=because), decision.label, name)

    def started(self, name: str, key: str) -> None:
        """Tell that a stage runs now."""
        self._began[name] = self.clock()
        self.tell(StageStarted(key=key), "started", name)

    def held(self, name: str, key: str, missing: Sequence[str]) -> None:
        """Tell that a stage is green, and waits with its files for others. Its time ends here."""
        self._took[name] = self._took_s(name)
        named, more = tuple(missing[:_MOST_NAMES]), len(missing) - _MOST_NAMES
        text = f"waits for {', '.join(named)}{f' and {more} more' if more > 0 else ''}"
        self.tell(StageHeld(key=key, missing=named, waits_for=len(missing)), text, name)

    def _took_s(self, name: str) -> float:
        return round(self.clock() - self._began[name], 3) if name in self._began else 0.0

    def gathered(self, name: str) -> None:
        """Note that a stage has done its work, of which nothing is told before it is promoted: its time ends here."""
        self._took[name] = self._took_s(name)

    def promoted(self, name: str, text: str, promoted: Promoted) -> None:
        """Tell which files of the workspace changed."""
        self.tell(FilesPromoted(files=promoted.written, removed=promoted.removed), text, name)

    def restored(self, name: str, promoted: Promoted) -> None:
        """Tell which files of an earlier result were put back."""
        self.tell(StageRestored(files=promoted.written, removed=promoted.removed), "restored", name)

    def ended(self, name: str, end: StageEnd, former: Record | None) -> None:
        """Tell how a stage ended. `former` is its result before this run, if any."""
        record = end.record
        same = record is not None and former is not None and bool(record.outputs)
        data = StageFinished(
            status=end.status,
            key=end.key,
            duration_s=self._took.get(name, self._took_s(name)),
            attempts=end.attempts,
            calls=end.paid.calls,
            recorded=end.spent.recorded,
            input_tokens=end.spent.input_tokens,
            output_tokens=end.spent.output_tokens,
            cost=None if end.spent.unpriced or end.paid.cost is None else plain(end.paid.cost),
            saved=str(end.spent.saved),
            by_hand=end.spent.by_hand,
            outputs=tuple(record.outputs) if record else (),
            unchanged=same and _result(record) == _result(former),
            failure=end.failure,
            problems=tuple(Problem(one.code, one.message, one.subject, one.hint) for one in end.problems),
            failure_kind=end.kind,
            command=end.command,
            by=end.by,
            paths=end.paths,
        )
        self.observer.notice(Event(data, end.text, name, "error" if end.status is StageStatus.FAILED else "info"))


def _result(record: Record | None) -> tuple[dict[str, str], tuple[str, ...]] | None:
    return None if record is None else ({p: str(e) for p, e in record.outputs.items()}, record.deleted)
