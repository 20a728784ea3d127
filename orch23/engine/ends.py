"""How stages and runs end, as values: their status, and the exit code that follows from all of them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from orch23.engine.spending import NOTHING, Spent
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event import RunStatus
from orch23.model.pipeline import FailureKind
from orch23.model.record import Record
from orch23.model.stage_status import StageStatus

LOST_BYTES = "E710"
LOST_HINT = (
    "put back .orch23, the transcripts or the git history, or start from the file on disk: `orch23 release STAGE`"
)

_GRAVITY = (
    ExitCode.SAFETY,
    ExitCode.CORRUPT,
    ExitCode.PROVIDER,
    ExitCode.CONFIG,
    ExitCode.LIMIT,
    ExitCode.DECISION,
    ExitCode.INVALID,
    ExitCode.FAILED,
)


class Paid(Struct, frozen=True):
    """What a stage took in this run: calls, with those that brought nothing, and US dollars (None: not known)."""

    calls: int = 0
    cost: Decimal | None = Decimal(0)


NOTHING_PAID = Paid()


class StageEnd(Struct, frozen=True, kw_only=True):
    """How one stage ended in this run, with the facts that the event `stage_finished` tells.

    `in_place` says of an edited stage that it has nothing to do but for the edit.
    """

    status: StageStatus
    text: str = ""
    code: ExitCode = ExitCode.OK
    key: str = ""
    attempts: int = 0
    spent: Spent = NOTHING
    paid: Paid = NOTHING_PAID
    record: Record | None = None
    failure: str = ""
    problems: tuple[Diagnostic, ...] = ()
    kind: FailureKind | Literal[""] = ""
    command: str = ""
    by: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def is_green(self) -> bool:
        """Say whether the stage is up to date now."""
        return self.status.is_green

    @property
    def is_waited_for(self) -> bool:
        """Say whether its promotion group has to wait for the stage."""
        return self.status.is_waited_for and not self.in_place


def stopped_by(key: str, *problems: Diagnostic, code: ExitCode = ExitCode.FAILED) -> StageEnd:
    """Return the end of a stage that these problems stopped."""
    text = "\n".join(str(d) for d in problems)
    return StageEnd(status=StageStatus.FAILED, text=text, code=code, key=key, failure=text, problems=problems)


class BuildResult(Struct, frozen=True, kw_only=True):
    """How every stage ended, the exit code of the run, and the number that it is told by."""

    stages: Mapping[str, StageEnd]
    exit_code: ExitCode
    exit_number: int

    @property
    def saved(self) -> Decimal:
        """Give what the recorded answers had cost that were used instead of asking."""
        return sum((end.spent.saved for end in self.stages.values()), Decimal(0))

    @property
    def status(self) -> RunStatus:
        """Give the run's status as the event `run_finished` has it."""
        match self.exit_code:
            case ExitCode.OK:
                return "ok"
            case ExitCode.SIGHUP | ExitCode.SIGINT | ExitCode.SIGTERM:
                return "interrupted"
            case ExitCode.LIMIT:
                return "limit"
            case ExitCode.DECISION:
                return "decision"
            case _:
                return "failed"


class Stopped(Struct, frozen=True):
    """What stopped a run: its exit code, and the diagnostics that say why."""

    code: ExitCode
    diagnostics: tuple[Diagnostic, ...] = ()


def blocked_by(names: tuple[str, ...]) -> StageEnd:
    """Return the end of a stage that these upstream of it keep from being built."""
    return StageEnd(status=StageStatus.BLOCKED, text=f"blocked by {', '.join(names)}", by=names)


def lost_bytes(name: str, key: str, lost: MissingBytesError) -> StageEnd:
    """Return the end of a stage that wants bytes which nobody has any more."""
    return stopped_by(key, told_lost(name, lost))


def told_lost(name: str, lost: MissingBytesError) -> Diagnostic:
    """Return the error that a stage wants bytes which nobody has any more."""
    text = f"the bytes of {lost.sha256} are in neither the store, the transcripts, the project nor git"
    return Diagnostic(LOST_BYTES, text, hint=LOST_HINT, subject=name)


def verdict(ends: Mapping[str, StageEnd], stopped: Stopped | None) -> Stopped:
    """Return how a run ends: by what stopped it, else by the gravest of its stages, with the diagnostics of those."""
    if stopped is not None:
        return stopped
    codes = {end.code for end in ends.values()} | {ExitCode.FAILED for end in ends.values() if not end.is_green}
    worst = next((code for code in _GRAVITY if code in codes), ExitCode.OK)
    return Stopped(worst, tuple(problem for end in ends.values() if end.code == worst for problem in end.problems))
