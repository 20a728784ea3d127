"""The provider `scripted`: responses from a file, for tests and templates."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_bytes, digest_json
from orch23.model.errors import ProviderError
from orch23.model.llm import SCRIPTED_PROVENANCE, Request, Response
from orch23.providers.adapter import Adapter, CallContext, ProviderContext, ScriptedCase, ScriptedResponses

# Hex digits of the digest of a request. No one gains from a collision, so a short one is enough.
_DIGITS = 16


class ScriptedProvider(Struct, frozen=True):
    """The scripted responses of one attempt (from 1) of one stage."""

    answers: ScriptedResponses
    stage: str
    attempt: int

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response of the first case whose `when` the request contains, and which is for this request.

        Raises:
            ProviderError: no case matches the request, or its list is too short.
        """
        del deadline_s
        cases = _cases(self.answers, self.stage)
        said = "\n".join(request.texts)
        matching = [one for one in cases if one.when in said]
        # Further attempts have feedback, which may differ between machines; the first request was compared.
        is_later, digest = self.attempt > 1, request_digest(request)
        case = next((one for one in matching if is_later or not one.requests or digest in one.requests), None)
        if case is None and matching:
            raise ProviderError(self._outdated(request))
        text = None if case is None else _text(case, self.attempt)
        if text is None:
            raise ProviderError(self._missing(cases, case))
        on_text(text)
        return Response(text=text, provenance=SCRIPTED_PROVENANCE)

    def digest(self) -> Json:
        """Return the digest of the response; with several cases, the digest of all of them."""
        cases = _cases(self.answers, self.stage)
        texts = [_text(case, self.attempt) for case in cases]
        # The prompt decides which case matches, so all cases are part of the request.
        if any(case.when for case in cases):
            return digest_json([[case.when, text] for case, text in zip(cases, texts, strict=True)])
        return digest_bytes(texts[0].encode()).sha256 if texts and texts[0] is not None else None

    def _outdated(self, request: Request) -> Diagnostic:
        message = "the scripted responses were written for other requests: the prompt, an input or a test was edited"
        hint = (
            "undo the edit, or set a model instead of `scripted`, without `answers`: `provider: anthropic` and `model: "
            "claude-opus-4-8`, or for one small function the local model, `provider: local` and `model: smollm2` (in a "
            "project of `orch23 init`: `orch23 template update --data provider=anthropic --data "
            "model=claude-opus-4-8`); or write a response, for `requests: "
            f'["{request_digest(request)}"]`, under `{self.stage}` in the file that `llm.answers` names'
        )
        return Diagnostic("E404", message, subject=self.stage, hint=hint)

    def _missing(self, cases: Sequence[ScriptedCase], case: ScriptedCase | None) -> Diagnostic:
        message = f"there is no scripted response for attempt {self.attempt}"
        if case is not None:
            message += f", only {len(case.texts)}" if case.texts else ", nor any for this stage"
        else:
            message += ": the request contains the text of no `when`" if cases else ", nor any for this stage"
        hint = f"add it under `{self.stage}` in the file that `llm.answers` names"
        return Diagnostic("E404", message, subject=self.stage, hint=hint)


def request_digest(request: Request) -> str:
    """Return a digest of the texts of a request: what recordings compare, without model and parameters."""
    parts = request.parts()
    return digest_json({"system": parts["system"], "messages": parts["messages"]})[:_DIGITS]


def _cases(answers: ScriptedResponses, stage: str) -> Sequence[ScriptedCase]:
    """Return the cases of a stage. An item's own cases replace those of its stage."""
    return answers.get(stage, answers.get(stage.partition("@")[0], ()))


def _text(case: ScriptedCase, attempt: int) -> str | None:
    return case.texts[attempt - 1] if 0 < attempt <= len(case.texts) else None


class ScriptedAdapter(Adapter):
    """The provider `scripted`."""

    takes = frozenset({"answers"})
    sends = ("answers",)
    pricing = "free"
    endpoint = "scripted"
    api = ""
    is_remote = False

    def make(self, setting: ProviderContext, asking: CallContext) -> ScriptedProvider:
        """Return the provider."""
        return ScriptedProvider(setting.read_answers(self.step.answers or ""), asking.stage, asking.attempt)

    def check(self, root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a missing file of responses."""
        hint = "write `answers: FILE`, a mapping from stage to a list of responses"
        if not self.step.answers:
            yield Diagnostic("E404", "the provider `scripted` needs a file of responses", hint=hint)
        elif root is not None and not (root / self.step.answers).is_file():
            yield Diagnostic("E404", f"there is no file `{self.step.answers}`", hint=hint, subject="answers")
