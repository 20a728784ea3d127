"""Make the request of one attempt: the prompt rendered, with what the provider adds to it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.secrets import Secrets
from orch23.engine.guarding import guard_request
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Request
from orch23.model.strict_json import StrictJsonError, parse
from orch23.providers.registry import api, endpoint, wire_schema
from orch23.resolve.prompts import Round, Sources, make_request
from orch23.resolve.resolution import Resolved

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


class Questions(Struct, frozen=True):
    """Makes the requests of stages: the prompt rendered, without what must not be sent."""

    secrets: Secrets
    sources: Sources
    variables: Mapping[str, Json]

    def request(
        self, resolved: Resolved, step: "LLMStep", this: Round, params: Mapping[str, Json]
    ) -> tuple[Request | None, tuple[Diagnostic, ...]]:
        """Return the request of one attempt, and what forbids it; without a request, what is wrong with its prompt."""
        request, problems = make_request(
            resolved.stage,
            step,
            this,
            self.sources,
            variables=self.variables,
            endpoint=endpoint(step),
            params=params,
            wire_schema=wire_schema(step, _schema(step, self.sources)),
        )
        if request is None:
            return None, problems
        request = replace(request, api=api(step))
        return guard_request(self.secrets, request, resolved.stage, this, self.sources)


def model_of(resolved: Resolved, step: "LLMStep", attempt: int) -> str:
    """Return who is asked at an attempt (from 1): the n-th of `retry.escalate`, of which the last repeats."""
    models = resolved.stage.retry.escalate
    return models[min(attempt, len(models)) - 1] if models else step.model


def _schema(step: "LLMStep", sources: Sources) -> Json:
    """Return the schema of the step's file; None where there is none, or no JSON in it (complained of already)."""
    text, _ = sources.text(step.schema) if step.schema else (None, None)
    try:
        return None if text is None else parse(text)
    except StrictJsonError:
        return None
