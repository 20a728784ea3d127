"""Run the verification of a stage on given files, outside of an attempt."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.process_runner import CountedTests, Files, FinishedProcess, ProcessRunner
from orch23.attempt.verification import verified_files
from orch23.model.step import ProcessStep
from orch23.resolve.resolution import ResolvedStage

if TYPE_CHECKING:
    from orch23.verdict.verdict import Verdict

_FAILED = frozenset({"failed", "error", "finding"})


class StepRun(Struct, frozen=True, kw_only=True):
    """How a step of `verify` ended. `failure` is None if it passed; `tests` are outcomes by id, if it reported any."""

    step: ProcessStep
    failure: Failure | None = None
    tests: Mapping[str, str] = {}

    @property
    def failed(self) -> frozenset[str]:
        """The ids of the tests and findings that failed, and of files that could not be collected."""
        return failed_ids(self.tests)


def failed_ids(tests: Mapping[str, str]) -> frozenset[str]:
    """Return the ids whose outcome is a failure."""
    return frozenset(name for name, outcome in tests.items() if outcome in _FAILED)


def process_steps(resolved: ResolvedStage) -> tuple[ProcessStep, ...]:
    """Return the steps of `verify` that are programs."""
    return tuple(one for one in resolved.stage.verify.steps if isinstance(one, ProcessStep))


def run_verification(
    resolved: ResolvedStage, runner: ProcessRunner, tree: Files, steps: Sequence[ProcessStep] | None = None
) -> tuple[StepRun, ...]:
    """Run process steps of `verify` (default: all) on these files of the stage, and on its inputs; all, if one fails.

    `tree` has the place of the base: for example the base, or the base with some files of a result. Nothing is counted
    or kept for an attempt.

    Raises:
        As `ProcessRunner.run`.
    """
    # The numbers of tests and the sandboxes of a result are of its own verification.
    runner = replace(runner, sandboxes=set(), tests=CountedTests())
    files = verified_files(resolved, tree)
    steps = process_steps(resolved) if steps is None else steps
    return tuple(step_run(one, runner.run(one, files, verifies=True)) for one in steps)


def step_run(step: ProcessStep, ran: FinishedProcess | Failure) -> StepRun:
    """Return how a step ended, with the tests that it reported."""
    if isinstance(ran, FinishedProcess):
        return StepRun(step=step, tests=_outcomes(ran.verdict))
    return StepRun(step=step, failure=ran, tests=_outcomes(ran.leftover.verdict if ran.leftover else None))


def _outcomes(verdict: "Verdict | None") -> dict[str, str]:
    if verdict is None:
        return {}
    found = {**verdict.tests, **{name: "failed" for name, one in verdict.subtests.items() if one in _FAILED}}
    # A file that cannot be collected has no test: its error is reported by its path.
    others = (text.rpartition(" ")[0] for text in verdict.failing)
    return {**{name: "error" for name in others if name not in found}, **found}
