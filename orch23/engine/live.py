"""Report what steps print and models write as events, line by line while it comes, if that was requested."""

from collections.abc import Callable

from msgspec import Struct

from orch23.model.event import Event, EventData, LlmText, StepOutput
from orch23.model.lines import Hear, Lines, shown

MOST_LINES = 1_000
"""Of one step, or one answer: more are not reported."""


class Live(Struct, frozen=True):
    """The lines of one stage. With `wanted` False nothing is reported. `redact` takes secrets out of a text."""

    notice: Callable[[Event], None]
    stage: str
    redact: Callable[[str], str]
    wanted: bool = False

    def of_step(self, step: str) -> Hear | None:
        """Return what takes each line that a step prints; None if nothing is reported."""
        if not self.wanted:
            return None
        return self._reported(lambda line, cut: StepOutput(step=step, line=line, cut=cut))

    def of_answer(self, attempt: int) -> Lines:
        """Return what takes the pieces of an answer."""
        if not self.wanted:
            return Lines(_ignore)
        return Lines(self._reported(lambda line, cut: LlmText(attempt=attempt, line=line, cut=cut)))

    def _reported(self, event: Callable[[str, bool], EventData]) -> Hear:
        told = 0

        def hear(line: str, *, cut: bool = False) -> None:
            nonlocal told
            told += 1
            if told <= MOST_LINES:
                text, is_cut = shown(line, self.redact, cut=cut)
                self.notice(Event(event(text, is_cut), f"{text}..." if is_cut else text, self.stage, "debug"))
            elif told == MOST_LINES + 1:
                text = f"more than {MOST_LINES:,} lines: the rest is not shown"
                self.notice(Event(event("", True), text, self.stage, "debug"))  # noqa: FBT003 - a fact of the event

        return hear


def _ignore(line: str, *, cut: bool = False) -> None:
    pass
