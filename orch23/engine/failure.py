"""A failed pass of an attempt, as a value: what kind it is, and what the next attempt is told of it."""

import os.path
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.excerpt import normalise, shorten
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.llm import Brief
from orch23.model.pipeline import BriefLimits, FailureKind, Stage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.decide.verdict import Verdict


_KINDS: Final[Mapping[str, FailureKind]] = {one: one for one in get_args(FailureKind)}


class Left(Struct, frozen=True):
    """What a program that failed had changed by then, and the verdict if it was pytest."""

    written: Mapping[str, FileEntry]
    removed: tuple[str, ...] = ()
    verdict: "Verdict | None" = None


class Failure(Struct, frozen=True, kw_only=True):
    """Why a pass failed. `safety` says that it tried to leave its bounds; `retryable` that another attempt may help.

    `printed` is what a process printed, whole; None where none ran. `left` are the files that it leaves. `reason` says
    why in a few words where the first diagnostic does not.
    """

    brief: Brief
    diagnostics: tuple[Diagnostic, ...] = ()
    safety: bool = False
    retryable: bool = True
    printed: str | None = None
    left: Left | None = None
    reason: str = ""

    @property
    def kind(self) -> FailureKind:
        """Give the failure's kind, of the set that `retry.when` uses; `exception` where a plugin gives another."""
        return _KINDS.get(self.brief.kind, "exception")

    @property
    def summary(self) -> str:
        """Give why it failed as one line for the user: the exit code of a command, or the first error."""
        if self.reason or not self.diagnostics:
            return self.reason or self.kind
        first, *others = self.diagnostics
        subject = f"{first.subject}: " if first.subject else ""
        return f"{subject}{first.message}{f' (and {len(others)} more)' if others else ''}"


def exit_text(exit_code: int) -> str:
    """Return how a command ended, with the signal that 128 + its number stands for: `exited with 137 (SIGKILL)`."""
    try:
        return f"exited with {exit_code} ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return f"exited with {exit_code}"


def refusal(kind: str, diagnostics: Iterable[Diagnostic], *, safety: bool = False, retryable: bool = True) -> Failure:
    """Return the failure of something that was refused, with all that is wrong with it."""
    found = tuple(diagnostics)
    lines = tuple(coded(d) for d in found)
    brief = Brief(kind=kind, excerpt="\n".join(lines), diagnostics=lines)
    return Failure(brief=brief, diagnostics=found, safety=safety, retryable=retryable)


def command_failed(
    kind: str,
    command: str,
    *,
    exit_code: int | None,
    output: str,
    failing: Iterable[str] = (),
    diagnostics: Iterable[Diagnostic] = (),
) -> Failure:
    """Return the failure of a process: its command, its exit code and what it printed, normalised."""
    found = tuple(diagnostics)
    brief = Brief(
        kind=kind,
        command=command,
        exit_code=exit_code,
        excerpt=normalise(output),
        failing=tuple(sorted(failing)),
        diagnostics=tuple(coded(d) for d in found),
    )
    return Failure(brief=brief, diagnostics=found)


def acceptance_failed(failed: Sequence[Failure], passed: Iterable[tuple[str, str]]) -> Failure:
    """Return the failure of commands that a model wrote: what each printed, those that failed first."""
    texts = [f"$ {one.brief.command}\nexit {one.brief.exit_code}\n{one.brief.excerpt}" for one in failed]
    texts += [f"$ {command}\npassed\n{printed}" for command, printed in passed]
    failure = command_failed(
        "acceptance_failed",
        "; ".join(one.brief.command for one in failed if one.brief.command),
        exit_code=failed[0].brief.exit_code,
        output="\n".join(text.rstrip() for text in texts),
        failing=[name for one in failed for name in one.brief.failing],
        diagnostics=[d for one in failed for d in one.diagnostics],
    )
    return replace(failure, reason=_first_reason(failed))


def _first_reason(failed: Sequence[Failure]) -> str:
    """Return why the first of some commands failed, and how many others did."""
    first, *others = failed
    return f"{first.summary}{f' (and {len(others)} more failed)' if others else ''}"


def fit(failure: Failure, stage: Stage) -> Failure:
    """Cut the excerpt to the stage's limits and add what the stage is bound to."""
    limits = stage.step.brief if is_llm(stage.step) else BriefLimits()
    excerpt = shorten(failure.brief.excerpt, limits)
    brief = replace(failure.brief, excerpt=excerpt, constraints=_constraints(stage))
    return replace(failure, brief=brief)


def likeness(failure: Failure) -> dict[str, Json]:
    """Return what two failures share that are the same: where nothing in them has a name, what was printed."""
    brief = failure.brief
    return {**brief.identity(), "excerpt": "" if brief.failing or brief.diagnostics else brief.excerpt}


def _constraints(stage: Stage) -> tuple[str, ...]:
    """Return the fence as an answer has to name it: relative to the stage's `cwd`."""
    lines = [
        f"{what}: {', '.join(inside)}"
        for what, patterns in (("write only", stage.fence.write), ("never write", stage.fence.protect))
        if (inside := [_below(one, stage.cwd) for one in patterns if not below(one, stage.cwd).startswith("../")])
    ]
    return tuple(lines) if stage.cwd in ("", ".") else (*lines, f"paths are relative to: {stage.cwd}")


def _below(pattern: str, folder: str) -> str:
    short = below(pattern, folder)
    return f"{short}/" if pattern.endswith("/") and not short.endswith("/") else short


def below(path: str, folder: str) -> str:
    """Return a path relative to a folder of the project; both are POSIX and relative to the root."""
    return path if folder in ("", ".") else os.path.relpath(path, folder)


def coded(diagnostic: Diagnostic) -> str:
    """Return a complaint as one line that a model reads: code, subject, facts, way out."""
    named = diagnostic.subject or (str(diagnostic.location) if diagnostic.location else "")
    subject = f" {named}" if named else ""
    fix = f" Fix: {diagnostic.hint.removesuffix('.')}." if diagnostic.hint else ""
    return f"[{diagnostic.code}]{subject}: {diagnostic.message.removesuffix('.')}.{fix}"
