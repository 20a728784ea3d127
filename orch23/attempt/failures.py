"""Values for how attempts fail, and the feedback that the next attempt gets."""

import os.path
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.event_data import LikelyCause
from orch23.model.pipeline import BriefLimits, FailureKind, Stage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.model.action import Action, ActionResult
    from orch23.model.llm import RetryFeedback
    from orch23.verdict.verdict import Verdict


_KINDS: Final[Mapping[str, FailureKind]] = {one: one for one in get_args(FailureKind)}


FAILED: Final = frozenset({"failed", "error", "finding"})
"""The outcomes of tests, files and findings that are failures."""

E_SUPPLIED: Final = "E326"
"""The code of a module that tests import and a model may not supply."""


class LeftoverFiles(Struct, frozen=True):
    """The changes of a failed program, and the verdict if it ran tests."""

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

    feedback: "RetryFeedback"
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
    def verdict(self) -> "Verdict | None":
        """The verdict of a program that reported tests."""
        return self.leftover.verdict if self.leftover else None

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
    import signal  # noqa: PLC0415 - slow, and only for failures

    try:
        return f"exited with {exit_code} ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return f"exited with {exit_code}"


def failure_of(
    kind: str, diagnostics: Iterable[Diagnostic], *, safety: bool = False, retryable: bool = True
) -> Failure:
    """Return a failure with these errors."""
    from orch23.model.llm import RetryFeedback  # noqa: PLC0415 - only for failures

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
    from orch23.model.llm import RetryFeedback  # noqa: PLC0415 - only for failures
    from orch23.text.excerpt import normalise  # noqa: PLC0415 - as above

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


def tests_failed(verdict: "Verdict", command: str, result: "ActionResult", printed: str) -> Failure:
    """Return the failure of a program whose tests failed, by the verdict on them."""
    failed = command_failed(
        "verify_failed",
        command,
        exit_code=result.exit_code,
        output=verdict.excerpt or printed,
        failing=verdict.failing,
        diagnostics=verdict.diagnostics,
    )
    failed_subtests = sum(outcome == "failed" for outcome in verdict.subtests.values())
    return replace(
        failed,
        leftover=LeftoverFiles(result.written, result.removed, verdict),
        headline=verdict.headline,
        parts=verdict.parts,
        failed_tests=len(verdict.failing) + failed_subtests if verdict.headline else None,
        reason=verdict.summary,
    )


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
    from orch23.text.excerpt import fit_output, fit_parts  # noqa: PLC0415 - only for failures

    failure = _with_response_paths(failure, stage.cwd)
    limits = stage.step.brief if is_llm(stage.step) else BriefLimits()
    excerpt = fit_output(failure.feedback.excerpt, limits)
    if failure.parts or note:
        history = f" ({'; '.join(earlier)})" if earlier else ""
        headline = f"{failure.headline}{history}" if failure.headline else ""
        parts = failure.parts or (failure.feedback.excerpt,)
        excerpt = fit_parts([part for part in (note, headline, *parts) if part], limits)
    feedback = replace(failure.feedback, excerpt=excerpt, constraints=_constraints(stage))
    return replace(failure, feedback=feedback)


def _with_response_paths(failure: Failure, cwd: str) -> Failure:
    """Return a failure with the paths of project files as a response has to write them, and no path of this machine."""
    from orch23.text.excerpt import normalise, shorten_tree_paths  # noqa: PLC0415 - only for failures

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
    lines = list[str]()
    for what, patterns in (("write only", stage.fence.write), ("never write", stage.fence.protect)):
        inside = [one for one in patterns if not relative_path(one, stage.cwd).startswith("../")]
        lines += [f"{what}: {', '.join(_below(one, stage.cwd) for one in inside)}"] if inside else []
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
