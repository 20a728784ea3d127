"""Values for how stages and runs end: model usage, costs, statuses, exit codes."""

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event_data import LikelyCause, RunStatus, StageStatus
from orch23.model.pipeline import FailureKind, Stage
from orch23.model.plan import Edited
from orch23.model.record import Record

if TYPE_CHECKING:
    from orch23.model.llm import Response


class StageUsage(Struct, frozen=True, kw_only=True):
    """Sums over the responses of one stage. Tokens are those of all responses, costs are in US dollars.

    `cost` was paid in this run, `saved` is what the recorded responses had cost; `unpriced`: a new response had no
    known price. `by_hand` counts responses that the user wrote, without any model call, `fallbacks` those of
    `llm.fallback`.
    """

    calls: int = 0
    recorded: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)
    unpriced: bool = False
    by_hand: int = 0
    fallbacks: int = 0

    def plus(self, response: "Response", *, is_fallback: bool = False) -> "StageUsage":
        """Return the sums with one more response."""
        cost = Decimal(response.cost) if response.cost is not None else Decimal(0)
        return replace(
            self,
            calls=self.calls + (not response.replayed),
            recorded=self.recorded + response.replayed,
            input_tokens=self.input_tokens + response.usage.input_tokens,
            output_tokens=self.output_tokens + response.usage.output_tokens,
            cost=self.cost + (Decimal(0) if response.replayed else cost),
            saved=self.saved + (cost if response.replayed else Decimal(0)),
            unpriced=self.unpriced or (response.cost is None and not response.replayed),
            by_hand=self.by_hand + response.is_scripted,
            fallbacks=self.fallbacks + is_fallback,
        )


NO_USAGE = StageUsage()
"""The usage of a stage that called no model."""


_STATUSES: Final[Mapping[ExitCode, RunStatus]] = {
    ExitCode.OK: "ok",
    ExitCode.SIGHUP: "interrupted",
    ExitCode.SIGINT: "interrupted",
    ExitCode.SIGTERM: "interrupted",
    ExitCode.LIMIT: "limit",
    ExitCode.DECISION: "decision",
    ExitCode.WAITING: "waiting",
    ExitCode.APPROVAL: "approval",
}

# The exit code of a run with several failures is the first of these that a stage has.
_MOST_SERIOUS_FIRST = (
    ExitCode.SAFETY,
    ExitCode.CONSENT,
    ExitCode.CORRUPT,
    ExitCode.MACHINE,
    ExitCode.PROVIDER,
    ExitCode.CONFIG,
    ExitCode.LIMIT,
    ExitCode.DECISION,
    ExitCode.INVALID,
    # Before FAILED: with a failed stage too, a later build has something to collect.
    ExitCode.WAITING,
    ExitCode.APPROVAL,
    ExitCode.FAILED,
)


class StageCost(Struct, frozen=True):
    """What a stage took in this run: calls, also unsuccessful ones, and US dollars (None if not known).

    `possible` may have been charged besides, for calls without a known outcome.
    """

    calls: int = 0
    cost: Decimal | None = Decimal(0)
    possible: Decimal = Decimal(0)


NO_COST = StageCost()


class StageOutcome(Struct, frozen=True, kw_only=True):
    """How one stage ended in this run, with the facts of the event `stage_finished`.

    `in_place`: apart from the user's edit, the stage has nothing to do. `metrics` are the metrics files of its result.
    """

    status: StageStatus
    text: str = ""
    code: ExitCode = ExitCode.OK
    key: str = ""
    attempts: int = 0
    usage: StageUsage = NO_USAGE
    cost: StageCost = NO_COST
    record: Record | None = None
    failure: str = ""
    problems: tuple[Diagnostic, ...] = ()
    kind: FailureKind | Literal[""] = ""
    command: str = ""
    by: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    in_place: bool = False
    exit_code: int | None = None
    command_s: float | None = None
    cause: LikelyCause | None = None
    metrics: Mapping[str, str] = {}

    @property
    def is_green(self) -> bool:
        """Whether the stage is up to date now."""
        return self.status.is_green

    @property
    def is_awaited(self) -> bool:
        """Whether its promotion group has to wait for the stage."""
        return self.status.is_awaited and not self.in_place


def metrics_of(stage: Stage, record: Record) -> dict[str, str]:
    """Return the SHA-256 of each metrics file of a result, by path."""
    return {path: record.outputs[path].digest.sha256 for path in stage.metrics if path in record.outputs}


_STOPPED = {"E691": ExitCode.SAFETY, "E650": ExitCode.MACHINE}  # what is at the path of an output


def stopped_by(key: str, *problems: Diagnostic, code: ExitCode | None = None) -> StageOutcome:
    """Return the outcome of a stage with these errors."""
    text = "\n".join(str(d) for d in problems)
    code = code or _STOPPED.get(problems[0].code, ExitCode.FAILED)
    return StageOutcome(status=StageStatus.FAILED, text=text, code=code, key=key, failure=text, problems=problems)


class BuildResult(Struct, frozen=True, kw_only=True):
    """How every stage ended, the exit code of the run, and the number of the process's exit."""

    stages: Mapping[str, StageOutcome]
    exit_code: ExitCode
    exit_number: int

    @property
    def saved_cost(self) -> Decimal:
        """What the recorded responses had cost that were used instead of new calls."""
        return sum((end.usage.saved for end in self.stages.values()), Decimal(0))

    @property
    def status(self) -> RunStatus:
        """The run's status in the event `run_finished`.

        With a request in a batch it is `waiting`, whatever the exit code is: the next run continues this one.
        """
        status = _STATUSES.get(self.exit_code, "failed")
        waits = any(end.status is StageStatus.AWAITING for end in self.stages.values())
        return "waiting" if waits and status != "interrupted" else status


class RunStop(Struct, frozen=True):
    """What stopped a run: its exit code, and the diagnostics."""

    code: ExitCode
    diagnostics: tuple[Diagnostic, ...] = ()


def blocked_by(names: tuple[str, ...]) -> StageOutcome:
    """Return the outcome of a stage that these upstream stages block."""
    return StageOutcome(status=StageStatus.BLOCKED, text=f"blocked by {', '.join(names)}", by=names)


def edited_outcome(edits: Edited, key: str = "") -> StageOutcome:
    """Return the outcome of a stage that waits for the user's decision on edits."""
    return StageOutcome(
        status=StageStatus.EDITED,
        text="; ".join(edits.descriptions),
        code=ExitCode.DECISION,
        key=key,
        paths=edits.paths,
        # With a result of the current key the stage has nothing else to do: it blocks no other stage (ADR 19).
        in_place=edits.record is not None,
    )


def missing_bytes_outcome(name: str, key: str, lost: MissingBytesError) -> StageOutcome:
    """Return the outcome of a stage that needs lost bytes."""
    return stopped_by(key, missing_bytes_error(name, lost))


def missing_bytes_error(name: str, lost: MissingBytesError) -> Diagnostic:
    """Return the error that a stage needs lost bytes."""
    text = f"the bytes of {lost.sha256} are in neither the store, the transcripts, the project nor git"
    return Diagnostic(lost.code, text, hint=lost.hint, subject=name)


def run_outcome(ends: Mapping[str, StageOutcome], stopped: RunStop | None) -> RunStop:
    """Return how a run ends: by what stopped it, else by the most serious of its stages, with their diagnostics."""
    if stopped is not None:
        return stopped
    codes = {end.code for end in ends.values()} | {ExitCode.FAILED for end in ends.values() if not end.is_green}
    worst = next(filter(codes.__contains__, _MOST_SERIOUS_FIRST), ExitCode.OK)
    return RunStop(worst, tuple(problem for end in ends.values() if end.code == worst for problem in end.problems))
