"""Choose the attempt that the next one starts from, with `retry.from: best`."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from orch23.attempt.failures import Failure, fit_feedback
from orch23.model.pipeline import Stage


class FailedAttempt(Protocol):
    """The result of an attempt. `failure` is its own failure; None if only its verification failed."""

    @property
    def failure(self) -> Failure | None:
        """Return the failure."""


Result = TypeVar("Result", bound=FailedAttempt)


class BestAttempt(Struct, Generic[Result]):
    """The best attempt so far: with the fewest failing tests, of equal ones the latest.

    A response that was refused, or whose tests did not run, is not better than one whose tests ran. Attempt 0 is the
    recorded result that the stage starts from, if any.
    """

    stage: Stage
    number: int = 0
    result: Result | None = None
    failure: Failure | None = None

    def add(self, number: int, result: Result, failure: Failure) -> None:
        """Compare a failed attempt with the best one."""
        if self.result is None or self.failure is None or _rank(result, failure) <= _rank(self.result, self.failure):
            self.number, self.result, self.failure = number, result, failure

    def next_start(
        self, attempt: int, last: Result, failure: Failure | None, counts: Sequence[str]
    ) -> tuple[Result, Failure | None]:
        """Return the attempt that the next one starts from, and its failure, which says so.

        The errors of a refused response are kept: it changed no files, and the next response must not have them.
        `counts` describes the failures of all attempts.
        """
        if self.result is None or self.failure is None or self.number == attempt - 1:
            return last, failure
        name = f"attempt {self.number}" if self.number else "the recorded result"
        how = f"{name} ({self.failure.headline or self.failure.kind})"
        if last.failure is not None:
            note = f"attempt {attempt} starts from {how}, since the last response was refused"
            return last, fit_feedback(last.failure, self.stage, note=note)
        others = "; ".join(text for number, text in enumerate(counts, 1) if number > self.number)
        note = f"attempt {attempt} starts again from {how}; {others}"
        return self.result, fit_feedback(self.failure, self.stage, note=note)


def _rank(result: Result, failure: Failure) -> tuple[bool, bool, int]:
    tests = failure.failed_tests
    return result.failure is not None, tests is None, tests or 0
