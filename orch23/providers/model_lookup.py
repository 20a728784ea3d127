"""Look up a model at its vendor, for `doctor --online`."""

from collections.abc import Mapping

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.providers.anthropic_messages import make_anthropic_client
from orch23.providers.connections import ClientConnection, ClientPool, OpenCalls, TlsContexts
from orch23.providers.faults import TransportError, invalid_reply_diagnostic, status_error, unreachable_error
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


def look_up_at_anthropic(url: str, key: str, model: str, timeout_s: float) -> object:
    """Return the name of a model at a server with Anthropic's interface. A server on this machine may need no key.

    Raises:
        TransportError: the server does not have it, or cannot be reached.
    """
    import anthropic  # noqa: PLC0415 - heavy

    def make(connection: ClientConnection) -> "anthropic.Anthropic":
        return make_anthropic_client(url, key or "none", connection, TlsContexts())

    try:
        with OpenCalls().track(timeout_s) as sockets, ClientPool().client_for(url, sockets, make) as client:
            return getattr(client.models.retrieve(model, timeout=timeout_s), "id", None)
    except anthropic.APIStatusError as error:
        said = error.api_message or (error.body if isinstance(error.body, str) else "")
        raise status_error(url, error.status_code, said) from None
    except anthropic.AnthropicError as error:
        raise unreachable_error(url, error.__cause__ or error) from None
