"""Tell what steps print and models write, line by line while it comes, to whoever wants to know."""

from collections.abc import Callable

from msgspec import Struct

from orch23.model.event import Event, EventData, LlmText, StepOutput
from orch23.model.lines import Lines

MOST_LINES = 1_000
"""Of one step, or one answer: more are not told."""


class Live(Struct, frozen=True):
    """The lines of one stage. With `wanted` False nothing is told, and nothing is asked for."""

    notice: Callable[[Event], None]
    stage: str
    wanted: bool = False

    def of_step(self, step: str) -> Callable[[str], None] | None:
        """Return who hears of each line that a step prints; None where nobody wants to."""
        if not self.wanted:
            return None
        return self._told(StepOutput(step=step, cut=True), lambda line: StepOutput(step=step, line=line))

    def of_answer(self, attempt: int) -> Lines:
        """Return who takes the pieces of an answer."""
        if not self.wanted:
            return Lines(_nobody)
        return Lines(self._told(LlmText(attempt=attempt, cut=True), lambda line: LlmText(attempt=attempt, line=line)))

    def _told(self, last: EventData, event: Callable[[str], EventData]) -> Callable[[str], None]:
        told = 0

        def hear(line: str) -> None:
            nonlocal told
            told += 1
            if told <= MOST_LINES:
                self.notice(Event(event(line), line, self.stage, "debug"))
            elif told == MOST_LINES + 1:
                text = f"more than {MOST_LINES:,} lines: the rest is not told"
                self.notice(Event(last, text, self.stage, "debug"))

        return hear


def _nobody(_line: str) -> None:
    pass
