"""Tell the observers of a run what happens in it, in the shapes of its events."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from orch23.engine.ends import Paid, StageEnd
from orch23.engine.failure import coded
from orch23.engine.spending import Spent
from orch23.model.decision import Decision, Maybe, Restore, Run, VerifyOnly
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.event import Event, EventType, Level, Observer
from orch23.model.record import Record
from orch23.providers.prices import plain
from orch23.store.promote import Promoted

_MOST_NAMES = 8  # all of them, of each item, would be a journal of the square of their number


class Narrator(Struct):
    """Makes events of what the loop does. `clock` is monotonic, in seconds."""

    observer: Observer
    clock: Callable[[], float]
    _began: dict[str, float] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)

    def tell(self, kind: EventType, text: str, role: str = "orch23", data: Mapping[str, Json] | None = None) -> None:
        """Tell one event."""
        self.observer.notice(Event(kind, text, role=role, data=data or {}))

    def warn(self, text: str, role: str = "orch23", data: Mapping[str, Json] | None = None) -> None:
        """Tell of something that a person should see."""
        level: Level = "warning"
        self.observer.notice(Event("warning", text, role=role, level=level, data=data or {}))

    def caution(self, name: str, warning: Diagnostic | None) -> None:
        """Tell of a warning about what a stage wrote, if there is one."""
        if warning is not None:
            self.warn(coded(warning), name, {"code": warning.code})

    def decided(self, name: str, decision: Decision, key: str) -> None:
        """Tell what is to be done with a stage, and why."""
        reasons = decision.reasons if isinstance(decision, Run | Restore | VerifyOnly | Maybe) else ()
        coded: list[Json] = [{"code": reason.code, "subject": reason.subject} for reason in reasons]
        self.tell("stage_decided", decision.label, name, {"decision": decision.label, "key": key, "reasons": coded})

    def started(self, name: str, key: str) -> None:
        """Tell that a stage runs now."""
        self._began[name] = self.clock()
        self.tell("stage_started", "started", name, {"key": key})

    def held(self, name: str, key: str, missing: Sequence[str]) -> None:
        """Tell that a stage is green, and waits with its files for others. Its time ends here."""
        self._took[name] = self._took_s(name)
        named, more = list(missing[:_MOST_NAMES]), len(missing) - _MOST_NAMES
        text = f"waits for {', '.join(named)}{f' and {more} more' if more > 0 else ''}"
        self.tell("stage_held", text, name, {"key": key, "for": named, "waits_for": len(missing)})

    def _took_s(self, name: str) -> float:
        return round(self.clock() - self._began[name], 3) if name in self._began else 0.0

    def gathered(self, name: str) -> None:
        """Note that a stage has done its work, of which nothing is told before it is promoted: its time ends here."""
        self._took[name] = self._took_s(name)

    def promoted(self, name: str, text: str, promoted: Promoted) -> None:
        """Tell which files of the workspace changed."""
        kind: EventType = "stage_restored" if text == "restored" else "promoted"
        self.tell(kind, text, name, {"files": list(promoted.written), "removed": list(promoted.removed)})

    def ended(self, name: str, end: StageEnd, former: Record | None) -> None:
        """Tell how a stage ended. `former` is its result before this run, if any."""
        record = end.record
        same = record is not None and former is not None and bool(record.outputs)
        self.observer.notice(
            Event(
                "stage_finished",
                end.text,
                role=name,
                level="error" if end.status == "failed" else "info",
                data={
                    "status": end.status,
                    "key": end.key,
                    "duration_s": self._took.get(name, self._took_s(name)),
                    "attempts": end.attempts,
                    **_spent(end.spent, end.paid),
                    "outputs": list(record.outputs) if record else [],
                    "unchanged": same and _result(record) == _result(former),
                    "failure": end.failure,
                    "problems": [_problem(one) for one in end.problems],
                    "kind": end.kind,
                    "command": end.command,
                    "by": list(end.by),
                    "paths": list(end.paths),
                },
            )
        )


def _result(record: Record | None) -> tuple[dict[str, str], tuple[str, ...]] | None:
    return None if record is None else ({p: str(e) for p, e in record.outputs.items()}, record.deleted)


def _problem(problem: Diagnostic) -> Json:
    return {"code": problem.code, "message": problem.message, "subject": problem.subject, "hint": problem.hint}


def _spent(spent: Spent, paid: Paid) -> dict[str, Json]:
    """Return the figures of a stage. Who fails, or is cut off, has paid for it all the same."""
    return {
        "calls": paid.calls,
        "recorded": spent.recorded,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost": None if spent.unpriced or paid.cost is None else plain(paid.cost),
        "saved": str(spent.saved),
        "by_hand": spent.by_hand,
    }
