"""Answer from a list that a person wrote: the test double, and what templates ship where no model was asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.llm import Request, Response
from orch23.providers import codes

PROVENANCE = "scripted: written by hand, no model was asked"


@dataclass(frozen=True, slots=True)
class Scripted:
    """The answer of one attempt of one stage; `answers` maps `stage` or `stage@item` to texts by attempt, from 1."""

    answers: Mapping[str, Sequence[str]]
    stage: str
    attempt: int

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Return the scripted answer; neither the request nor the deadline matters to it.

        Raises:
            ProviderError: the list is too short.

        """
        del request, deadline_s
        text = self.answer()
        if text is None:
            raise ProviderError(self._missing())
        on_progress(len(text))
        return Response(text=text, provenance=PROVENANCE)

    def answer(self) -> str | None:
        """Return the text, or None where there is none; an item's own list wins over its stage's."""
        found = _texts(self.answers, self.stage)
        return found[self.attempt - 1] if 0 < self.attempt <= len(found) else None

    def _missing(self) -> Diagnostic:
        found = _texts(self.answers, self.stage)
        if found:
            message = f"there is no scripted answer for attempt {self.attempt}, only {len(found)}"
        else:
            message = f"there is no scripted answer for attempt {self.attempt}, nor any for this stage"
        hint = f"add it under `{self.stage}` in the file that `llm.answers` names"
        return Diagnostic(codes.NO_ANSWER, message, subject=self.stage, hint=hint)


def _texts(answers: Mapping[str, Sequence[str]], stage: str) -> Sequence[str]:
    own = answers.get(stage)
    return own if own is not None else answers.get(stage.partition("@")[0], ())
