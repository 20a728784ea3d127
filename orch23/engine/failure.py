"""A failed pass of an attempt, as a value: what kind it is, and what the next attempt is told of it."""

import os.path
from collections.abc import Iterable
from dataclasses import dataclass, replace

from orch23.decide.excerpt import normalise, shorten
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Brief
from orch23.model.pipeline import BriefLimits, LLMStep, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a pass failed. `safety` says that it tried to leave its bounds; `retryable` that another attempt may help."""

    brief: Brief
    diagnostics: tuple[Diagnostic, ...] = ()
    safety: bool = False
    retryable: bool = True

    @property
    def kind(self) -> str:
        """Give the failure's kind, of the set that `retry.when` uses."""
        return self.brief.kind


def refusal(kind: str, diagnostics: Iterable[Diagnostic], *, safety: bool = False, retryable: bool = True) -> Failure:
    """Return the failure of something that was refused, with all that is wrong with it."""
    found = tuple(diagnostics)
    lines = tuple(_coded(d) for d in found)
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
        diagnostics=tuple(_coded(d) for d in found),
    )
    return Failure(brief=brief, diagnostics=found)


def fit(failure: Failure, stage: Stage) -> Failure:
    """Cut the excerpt to the stage's limits and add what the stage is bound to."""
    limits = stage.step.brief if isinstance(stage.step, LLMStep) else BriefLimits()
    constraints = (f"write only: {', '.join(stage.fence.write)}",) if stage.fence.write else ()
    brief = replace(failure.brief, excerpt=shorten(failure.brief.excerpt, limits), constraints=constraints)
    return replace(failure, brief=brief)


def below(path: str, folder: str) -> str:
    """Return a path relative to a folder of the project; both are POSIX and relative to the root."""
    return path if folder in ("", ".") else os.path.relpath(path, folder)


def _coded(diagnostic: Diagnostic) -> str:
    subject = f" {diagnostic.subject}" if diagnostic.subject else ""
    fix = f" Fix: {diagnostic.hint}" if diagnostic.hint else ""
    return f"[{diagnostic.code}]{subject}: {diagnostic.message}.{fix}"
