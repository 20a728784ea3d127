"""Run a step that failed again (`reruns`). What fails and then passes is flaky: the step passes, and it is named."""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.process_runner import FinishedProcess, ProcessRunner
from orch23.execute.process import NOT_EXECUTABLE, NOT_FOUND
from orch23.model.errors import LimitError
from orch23.model.event import Warned
from orch23.model.event_data import EventProblem
from orch23.model.step import ProcessStep, describe_step
from orch23.model.text import join_first

_CODE, _MOST, _SHOWN = "W329", 100, 5
_SIGNALS = range(129, 193)
_FAILED = frozenset({"failed", "error", "finding"})
_HINT = "make it give the same result each time: a test that passes by chance proves little"


def run_again(
    runner: ProcessRunner,
    step: ProcessStep,
    failure: Failure,
    run: Callable[[], FinishedProcess | Failure],
) -> FinishedProcess | Failure:
    """Call `run` up to `step.reruns` times, until it passes; return the last result. `failure` is of the first run."""
    failed: dict[str, EventProblem] = {}
    for number in range(1, step.reruns + 1):
        if not _may_pass(failure) or not _has_time(runner):
            return failure
        failed = {**_failed_parts(step, failure, number), **failed}
        ran = run()
        if isinstance(ran, FinishedProcess):
            return _flaky(runner, ran, failed, number + 1)
        failure = replace(ran, reason=f"{ran.summary} (in run {number + 1} of {step.reruns + 1})")
    return failure


def _may_pass(failure: Failure) -> bool:
    """Return whether another run may pass: it will not if a program is missing, crashed, or named no failed test."""
    verdict, code = failure.leftover.verdict if failure.leftover else None, failure.feedback.exit_code
    names_tests = verdict is None or bool(failure.failed_tests)
    is_result = failure.kind in ("verify_failed", "timeout") and failure.retryable and not failure.safety
    return is_result and names_tests and code not in (NOT_FOUND, NOT_EXECUTABLE) and code not in _SIGNALS


def _has_time(runner: ProcessRunner) -> bool:
    try:
        runner.begin()
    except LimitError:
        return False
    return True


def _failed_parts(step: ProcessStep, failure: Failure, number: int) -> Mapping[str, EventProblem]:
    """Return the failed tests of a run by name; the step itself if none is named."""
    run = f"in run {number}"
    named = [one for one in failure.diagnostics if one.code == "E301" and one.subject]
    found = {
        str(one.subject): EventProblem(_CODE, f"{one.message} {run}", one.subject, location=one.location or UNSET)
        for one in named
    }
    verdict = failure.leftover.verdict if failure.leftover else None
    for name, outcome in verdict.tests.items() if verdict else ():
        if outcome in _FAILED and name not in found and len(found) < _MOST:
            found[name] = EventProblem(_CODE, f"failed {run}", name)
    name = describe_step(step)
    return found or {name: EventProblem(_CODE, f"{failure.summary} {run}", name)}


def _flaky(
    runner: ProcessRunner, ran: FinishedProcess, failed: Mapping[str, EventProblem], runs: int
) -> FinishedProcess:
    """Report what failed before this run, which passed."""
    found = {name: replace(one, message=f"{one.message}, and passed in run {runs}") for name, one in failed.items()}
    named = join_first([f"{name} {one.message}" for name, one in found.items()], _SHOWN)
    text = f"[{_CODE}] flaky: {named}; {_HINT}"
    runner.report.emit(Warned(code=_CODE, flaky=tuple(found.values())), text, "warning")
    if ran.verdict is None:
        return ran
    tests = {name: "flaky" if name in found else outcome for name, outcome in ran.verdict.tests.items()}
    counts = dict(sorted(Counter(tests.values()).items()))
    return replace(ran, verdict=replace(ran.verdict, tests=tests, counts=counts))
