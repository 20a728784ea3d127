"""Answer from a list that a person wrote: the test double, and what templates ship where no model was asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.model.pipeline import LLMStep
from orch23.providers import codes
from orch23.providers.adapter import Adapter, Asking, Setting

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


def _make(setting: Setting, asking: Asking) -> Provider:
    return Scripted(setting.read_answers(asking.step.answers or ""), asking.stage, asking.attempt)


def _check(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del environ
    hint = "give it as `answers: FILE`, a mapping of stage to a list of answers"
    if not step.answers:
        return (Diagnostic(codes.NO_ANSWER, "the provider `scripted` needs a file of answers", hint=hint),)
    if root is not None and not (root / step.answers).is_file():
        return (Diagnostic(codes.NO_ANSWER, f"there is no file `{step.answers}`", hint=hint),)
    return ()


ADAPTER = Adapter(
    make=_make,
    takes=frozenset({"answers"}),
    parameters=lambda step: {"answers": step.answers},
    endpoint=lambda _step: "scripted",
    api=lambda _step: "",
    pricing="free",
    remote=lambda _step: False,
    check=_check,
)
