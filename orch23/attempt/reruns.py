"""Run a failed step again (`reruns`). A test that then passes is flaky: the step passes, and a warning names it."""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from orch23.attempt.failures import FAILED, Failure
from orch23.attempt.process_runner import FinishedProcess, ProcessRunner
from orch23.execute.process import NOT_EXECUTABLE, NOT_FOUND
from orch23.model.errors import LimitError
from orch23.model.event import Warned
from orch23.model.event_data import EventProblem
from orch23.model.step import ProcessStep, describe_step
from orch23.model.text import join_first

_CODE, _MOST, _SHOWN = "W329", 100, 5
_SIGNALS = range(129, 193)
_HINT = "make it give the same result each time: a test that passes by chance proves little"


def run_again(
    runner: ProcessRunner, step: ProcessStep, failure: Failure, run: Callable[[], FinishedProcess | Failure]
) -> FinishedProcess | Failure:
    """Call `run` up to `step.reruns` times, until it passes; return the last result. `failure` is of the first run."""
    failed: dict[str, EventProblem] = {}
    for number in range(1, step.reruns + 1):
        if not _may_pass(failure):
            return failure
        try:
            runner.begin()
        except LimitError:  # the wall time of the stage is over
            return failure
        failed = {**_failed_parts(step, failure, f"in run {number}"), **failed}
        ran = run()
        if isinstance(ran, FinishedProcess):
            end = f", and passed in run {number + 1}"
            flaky = {name: replace(one, message=one.message + end) for name, one in failed.items()}
            named = join_first([f"{name} {one.message}" for name, one in flaky.items()], _SHOWN)
            event = Warned(code=_CODE, flaky=tuple(flaky.values()))
            runner.report.emit(event, f"[{_CODE}] flaky: {named}; {_HINT}", "warning")
            if ran.verdict is None:
                return ran
            tests = {name: "flaky" if name in flaky else outcome for name, outcome in ran.verdict.tests.items()}
            counts = dict(sorted(Counter(tests.values()).items()))
            return replace(ran, verdict=replace(ran.verdict, tests=tests, counts=counts))
        failure = replace(ran, reason=f"{ran.summary} (in run {number + 1} of {step.reruns + 1})")
    return failure


def _may_pass(failure: Failure) -> bool:
    """Return whether another run may pass: it will not if a program is missing, crashed, or named no failed test."""
    code, names_tests = failure.feedback.exit_code, failure.verdict is None or bool(failure.failed_tests)
    is_result = failure.kind in ("verify_failed", "timeout") and failure.retryable and not failure.safety
    return is_result and names_tests and code not in (NOT_FOUND, NOT_EXECUTABLE, *_SIGNALS)


def _failed_parts(step: ProcessStep, failure: Failure, run: str) -> Mapping[str, EventProblem]:
    """Return the failed tests of a run by name; the step itself if none is named."""
    names = [name for name, outcome in failure.verdict.tests.items() if outcome in FAILED] if failure.verdict else []
    found = {name: EventProblem(_CODE, f"failed {run}", name) for name in names[:_MOST]}
    for one in failure.diagnostics:
        if one.code == "E301" and (name := one.subject):
            found[name] = EventProblem(_CODE, f"{one.message} {run}", name, location=one.location or UNSET)
    return found or {describe_step(step): EventProblem(_CODE, f"{failure.summary} {run}", describe_step(step))}
