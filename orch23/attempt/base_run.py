"""Run the verification of a stage on given files, outside of an attempt."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.failures import FAILED, Failure
from orch23.attempt.process_runner import (
    CountedTests,
    Files,
    FinishedProcess,
    ProcessRunner,
    run_step,
    verified_files,
)
from orch23.model.step import ProcessStep
from orch23.resolve.resolution import ResolvedStage


class BaseResult(Struct, frozen=True, kw_only=True):
    """The result of a step: whether it passed, and the outcomes of its tests by id, if it reported any."""

    passed: bool
    tests: Mapping[str, str] = {}

    @property
    def failed(self) -> frozenset[str]:
        """The ids of the tests and findings that failed, and of files that could not be collected."""
        return frozenset(name for name, outcome in self.tests.items() if outcome in FAILED)


class StepRun(BaseResult, frozen=True, kw_only=True):
    """How a step of `verify` ended. `failure` is None if it passed."""

    step: ProcessStep
    failure: Failure | None = None


def process_steps(resolved: ResolvedStage) -> tuple[ProcessStep, ...]:
    """Return the steps of `verify` that are programs."""
    return tuple(one for one in resolved.stage.verify.steps if isinstance(one, ProcessStep))


def run_verification(
    resolved: ResolvedStage, runner: ProcessRunner, tree: Files, steps: Sequence[ProcessStep]
) -> tuple[StepRun, ...]:
    """Run these process steps of `verify` on these files of the stage, and on its inputs; all, if one fails.

    `tree` has the place of the base: for example the base, or the base with some files of a result. Nothing is counted
    or kept for an attempt.

    Raises:
        As `ProcessRunner.run`.
    """
    # The numbers of tests and the sandboxes of a result are of its own verification.
    runner = replace(runner, sandboxes=set(), tests=CountedTests())
    files = verified_files(resolved, tree)
    return tuple(step_run(one, run_step(runner, one, files, verifies=True)) for one in steps)


def step_run(step: ProcessStep, ran: FinishedProcess | Failure) -> StepRun:
    """Return how a step ended, with the tests that it reported."""
    failure, verdict, tests = ran if isinstance(ran, Failure) else None, ran.verdict, dict[str, str]()
    if verdict is not None:
        # A file that cannot be collected has no test: its error is reported by its path.
        tests = {text.rpartition(" ")[0]: "error" for text in verdict.failing} | dict(verdict.tests)
        tests |= {name: "failed" for name, one in verdict.subtests.items() if one in FAILED}
    return StepRun(passed=failure is None, tests=tests, step=step, failure=failure)
