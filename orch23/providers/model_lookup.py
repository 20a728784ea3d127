"""Look up a model at its vendor, for `doctor --online`."""

from collections.abc import Mapping

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.providers.faults import TransportError, invalid_reply_diagnostic
from orch23.providers.registry import adapter_for
from orch23.steps.llm.spec import LLMStep

LOOKUP_TIMEOUT_S = 20.0


def find_model(step: LLMStep, environ: Mapping[str, str]) -> Diagnostic | None:
    """Look up the step's model, once, if its provider can. Return the error; None if the provider has the model."""
    # Not part of a build: a network failure would stop builds that need no call (ADR 11).
    adapter = adapter_for(step)
    try:
        name = adapter.look_up(environ, LOOKUP_TIMEOUT_S) if adapter.look_up else step.model
    except TransportError as fault:
        return fault.diagnostic
    except ProviderError as ended:
        return ended.diagnostics[0]
    # A gateway's page is a text with status 200.
    is_found = isinstance(name, str) and name
    return None if is_found else invalid_reply_diagnostic(f"{adapter.endpoint} replied without a model")
