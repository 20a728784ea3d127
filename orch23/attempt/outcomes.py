"""Values for how attempts, stages and runs end: failures, model usage, statuses, exit codes."""

import os.path
import signal
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.event_data import LikelyCause, RunStatus, StageStatus
from orch23.model.llm import Response, RetryFeedback
from orch23.model.pipeline import BriefLimits, FailureKind, Stage
from orch23.model.plan import Edited
from orch23.model.record import Record
from orch23.providers.adapter import SCRIPTED_PROVENANCE
from orch23.steps.registry import is_llm
from orch23.text.excerpt import fit_parts, normalise, shorten, shorten_tree_paths

if TYPE_CHECKING:
    from orch23.model.action import Action
    from orch23.verdict.verdict import Verdict


_KINDS: Final[Mapping[str, FailureKind]] = {one: one for one in get_args(FailureKind)}


class LeftoverFiles(Struct, frozen=True):
    """The changes of a failed program, and the verdict if it was pytest."""

    written: Mapping[str, FileEntry]
    removed: tuple[str, ...] = ()
    verdict: "Verdict | None" = None

    def changes(self) -> dict[str, FileEntry | None]:
        """Return every changed path with its file, None if it was removed."""
        return {**self.written, **dict.fromkeys(self.removed)}


class Failure(Struct, frozen=True, kw_only=True):
    """Why an attempt failed. `safety`: it tried to leave its limits; `retryable`: another attempt may help.

    `printed` is the whole output of a process; None if none ran. `leftover` are the files that it leaves. `reason` is a
    short reason, for failures where the first diagnostic is not one. `parts` are those of the excerpt, if several
    get a fair share of its limit, under a `headline` with the counts of tests. `failed_tests` is None if none ran.
    `escalates`: the model refused, and the next attempt calls another one. `cut_off`: so was the response. `took_s` is
    the duration of the command, in seconds; None if none ran. `cause` is for the user only: a model gets the feedback,
    which does not have it. `action` is what failed, if it was a process.
    """

    feedback: RetryFeedback
    diagnostics: tuple[Diagnostic, ...] = ()
    safety: bool = False
    retryable: bool = True
    escalates: bool = False
    cut_off: bool = False
    printed: str | None = None
    leftover: LeftoverFiles | None = None
    reason: str = ""
    headline: str = ""
    failed_tests: int | None = None
    parts: tuple[str, ...] = ()
    took_s: float | None = None
    cause: LikelyCause | None = None
    action: "Action | None" = None

    @property
    def kind(self) -> FailureKind:
        """The kind, as in `retry.when`; `exception` if a plugin gives an unknown one."""
        return _KINDS.get(self.feedback.kind, "exception")

    @property
    def summary(self) -> str:
        """The failure as one line for the user: the exit code of a command, or the first error."""
        if self.reason or not self.diagnostics:
            return self.reason or self.kind
        first, *others = self.diagnostics
        subject = f"{first.subject}: " if first.subject else ""
        return f"{subject}{first.message}{f' (and {len(others)} more)' if others else ''}"


def exit_text(exit_code: int) -> str:
    """Describe how a command ended, with the signal of codes above 128: `exited with 137 (SIGKILL)`."""
    try:
        return f"exited with {exit_code} ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return f"exited with {exit_code}"


def failure_of(
    kind: str, diagnostics: Iterable[Diagnostic], *, safety: bool = False, retryable: bool = True
) -> Failure:
    """Return a failure with these errors."""
    found = tuple(diagnostics)
    lines = tuple(diagnostic_line(d) for d in found)
    feedback = RetryFeedback(kind=kind, excerpt="\n".join(lines), diagnostics=lines)
    return Failure(feedback=feedback, diagnostics=found, safety=safety, retryable=retryable)


def command_failed(
    kind: str,
    command: str,
    *,
    exit_code: int | None,
    output: str,
    failing: Iterable[str] = (),
    diagnostics: Iterable[Diagnostic] = (),
) -> Failure:
    """Return the failure of a process: its command, its exit code and its normalised output."""
    found = tuple(diagnostics)
    feedback = RetryFeedback(
        kind=kind,
        command=command,
        exit_code=exit_code,
        excerpt=normalise(output),
        failing=tuple(sorted(failing)),
        diagnostics=tuple(diagnostic_line(d) for d in found),
    )
    return Failure(feedback=feedback, diagnostics=found)


def acceptance_failed(failed: Sequence[Failure], passed: Iterable[tuple[str, str]]) -> Failure:
    """Return the failure of commands that a model wrote, with the output of each: failed commands first."""
    texts = [(f"$ {one.feedback.command}\nexit {one.feedback.exit_code}\n", one) for one in failed]
    others_texts = [f"$ {command}\npassed\n{printed}".rstrip() for command, printed in passed]
    failure = joined_failure("acceptance_failed", texts, others_texts, exit_code=failed[0].feedback.exit_code)
    others = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
    return replace(failure, reason=f"{failed[0].summary}{others}")


def joined_failure(
    kind: str, titled: Sequence[tuple[str, Failure]], others: Sequence[str] = (), *, exit_code: int | None
) -> Failure:
    """Return several failures as one, with the commands, the failing tests and the diagnostics of all.

    Each has a title for its text; `others` are texts that follow.
    """
    failed = [one for _, one in titled]
    joint = command_failed(
        kind,
        "; ".join(one.feedback.command for one in failed if one.feedback.command),
        exit_code=exit_code,
        output="\n".join((*(f"{title}{one.feedback.excerpt}".rstrip() for title, one in titled), *others)),
        failing=[name for one in failed for name in one.feedback.failing],
        diagnostics=[d for one in failed for d in one.diagnostics],
    )
    known = [one.failed_tests for one in failed if one.failed_tests is not None]
    joint = replace(
        joint,
        failed_tests=sum(known) if known else None,
        took_s=sum(one.took_s or 0.0 for one in failed),
        cause=next((one.cause for one in failed if one.cause is not None), None),
        action=next((one.action for one in failed if one.action is not None), None),
    )
    if not any(one.parts for one in failed):
        return joint
    headlines = [one.headline for one in failed if one.headline]
    headline = headlines[0] if len(headlines) == 1 else ""
    parts = []
    for title, one in titled:
        own = one.headline if one.headline != headline else ""
        parts += [f"{title}{own if one.parts else one.feedback.excerpt}".rstrip(), *one.parts]
    return replace(joint, headline=headline, parts=(*parts, *others))


def fit_feedback(failure: Failure, stage: Stage, earlier: Sequence[str] = (), note: str = "") -> Failure:
    """Shorten the excerpt to the stage's limits and add the write scope.

    `earlier` describes the failures of earlier attempts, for the headline. `note` comes first.
    """
    failure = _with_response_paths(failure, stage.cwd)
    limits = stage.step.brief if is_llm(stage.step) else BriefLimits()
    excerpt = shorten(failure.feedback.excerpt, limits)
    if failure.parts or note:
        history = f" ({'; '.join(earlier)})" if earlier else ""
        headline = f"{failure.headline}{history}" if failure.headline else ""
        parts = failure.parts or (failure.feedback.excerpt,)
        excerpt = fit_parts([part for part in (note, headline, *parts) if part], limits)
    feedback = replace(failure.feedback, excerpt=excerpt, constraints=_constraints(stage))
    return replace(failure, feedback=feedback)


def _with_response_paths(failure: Failure, cwd: str) -> Failure:
    """Return a failure with the paths of project files as a response has to write them, and no path of this machine."""

    def shown(text: str) -> str:
        return shorten_tree_paths(normalise(text), cwd)

    feedback, excerpt = failure.feedback, failure.feedback.excerpt
    # orch23's own errors have paths relative to the root; those of a command are relative to the directory it ran in.
    is_own = not feedback.command and cwd not in ("", ".")
    lines = tuple(_below_cwd(line, cwd) for line in feedback.diagnostics) if is_own else feedback.diagnostics
    for line, short in zip(feedback.diagnostics, lines, strict=True):
        excerpt = excerpt.replace(line, short)
    codes = feedback.diagnostic_codes()
    named = [line.partition(": ") for line in lines]
    feedback = replace(
        feedback,
        excerpt=shorten_tree_paths(excerpt, cwd),
        diagnostics=tuple(f"{code}{colon}{shown(rest)}" for code, colon, rest in named),
        codes=codes,
    )
    return replace(failure, feedback=feedback, parts=tuple(shorten_tree_paths(part, cwd) for part in failure.parts))


def _below_cwd(line: str, cwd: str) -> str:
    code, space, rest = line.partition("] ")
    return f"{code}{space}{rest.removeprefix(f'{cwd}/')}".replace(f"`{cwd}/", "`")


def failure_identity(failure: Failure) -> dict[str, Json]:
    """Return what is equal in two equal failures: named tests, errors, the number of subtests; else the output."""
    feedback = failure.feedback
    text = "" if feedback.failing or feedback.diagnostics else feedback.excerpt
    return {**feedback.identity(), "excerpt": text, "failed_tests": failure.failed_tests}


def _constraints(stage: Stage) -> tuple[str, ...]:
    """Return the write scope with paths as a response has to write them: relative to the stage's `cwd`."""
    lines = [
        f"{what}: {', '.join(inside)}"
        for what, patterns in (("write only", stage.fence.write), ("never write", stage.fence.protect))
        if (
            inside := [
                _below(one, stage.cwd) for one in patterns if not relative_path(one, stage.cwd).startswith("../")
            ]
        )
    ]
    return tuple(lines) if stage.cwd in ("", ".") else (*lines, f"paths are relative to: {stage.cwd}")


def _below(pattern: str, folder: str) -> str:
    short = relative_path(pattern, folder)
    return f"{short}/" if pattern.endswith("/") and not short.endswith("/") else short


def relative_path(path: str, folder: str) -> str:
    """Return a path relative to a folder of the project; both are POSIX and relative to the root."""
    return path if folder in ("", ".") else os.path.relpath(path, folder)


def diagnostic_line(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as one line that a model reads: code, subject, message, fix."""
    named = diagnostic.subject or (str(diagnostic.location) if diagnostic.location else "")
    subject = f" {named}" if named else ""
    hint = (diagnostic.hint or "").removesuffix(".")
    fix = f" Fix: {hint}{'' if hint.endswith('?') else '.'}" if hint else ""
    return f"[{diagnostic.code}]{subject}: {diagnostic.message.removesuffix('.')}.{fix}"


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

    def plus(self, response: Response, *, is_fallback: bool = False) -> "StageUsage":
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
            by_hand=self.by_hand + (response.provenance == SCRIPTED_PROVENANCE),
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


def held_outcome(key: str) -> StageOutcome:
    """Return the outcome of a stage that would call a model in a build that may not."""
    return StageOutcome(status=StageStatus.AWAITING, text="it would call a model", code=ExitCode.WAITING, key=key)


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
