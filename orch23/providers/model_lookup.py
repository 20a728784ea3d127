"""Look up a model at its vendor, for `doctor --online`."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.providers import anthropic_messages, openai_client
from orch23.providers.connections import ClientConnection, ClientPool, OpenCalls, TlsContexts
from orch23.providers.faults import TransportError, invalid_reply_diagnostic, status_error, unreachable_error
from orch23.providers.registry import endpoint_of
from orch23.steps.llm.spec import LLMStep

LOOKUP_TIMEOUT_S = 20.0


class _Lookup(Struct, frozen=True):
    url: str
    key: str
    model: str


def can_find_models(step: LLMStep) -> bool:
    """Return whether the step's provider has an interface to look up models."""
    return step.provider in _LOOKUPS


def find_model(step: LLMStep, environ: Mapping[str, str]) -> Diagnostic | None:
    """Look up the step's model, once. Return the error; None if the provider has the model.

    Raises:
        KeyError: the provider has no such interface; see `can_find_models`.

    """
    # Not part of a build: a network failure would stop builds that need no call (ADR 11).
    variable, look_up = _LOOKUPS[step.provider]
    key = environ.get(variable, "").strip()  # a server on this machine may need none
    try:
        look_up(_Lookup(endpoint_of(step), key, step.model))
    except TransportError as fault:
        return fault.diagnostic
    except ProviderError as ended:
        return ended.diagnostics[0]
    return None


def _look_up_at_anthropic(lookup: _Lookup) -> None:
    import anthropic  # noqa: PLC0415 - heavy

    def make(connection: ClientConnection) -> "anthropic.Anthropic":
        return anthropic_messages.make_anthropic_client(lookup.url, lookup.key or "none", connection, TlsContexts())

    try:
        with (
            OpenCalls().track(LOOKUP_TIMEOUT_S) as sockets,
            ClientPool().client_for(lookup.url, sockets, make) as client,
        ):
            found = client.models.retrieve(lookup.model, timeout=LOOKUP_TIMEOUT_S)
    except anthropic.APIStatusError as error:
        said = error.api_message or (error.body if isinstance(error.body, str) else "")
        raise status_error(lookup.url, error.status_code, said) from None
    except anthropic.AnthropicError as error:
        raise unreachable_error(lookup.url, error.__cause__ or error) from None
    _require_model(getattr(found, "id", None), lookup.url)


def _look_up_at_openai(lookup: _Lookup) -> None:
    server = openai_client.ServerAccess(lookup.url, lookup.key)
    line = openai_client.ServerConnection(server=server, lists_models=False)
    with line.open(line.clock() + LOOKUP_TIMEOUT_S) as client:
        found = client.models.retrieve(lookup.model)
    _require_model(getattr(found, "id", None), lookup.url)


def _require_model(name: object, url: str) -> None:
    """Refuse a reply that does not describe a model: a gateway's page is a text with status 200.

    Raises:
        TransportError: the reply has no model id.

    """
    if not isinstance(name, str) or not name:
        raise TransportError(invalid_reply_diagnostic(f"{url} replied without a model"))


_LOOKUPS: Mapping[str, tuple[str, Callable[[_Lookup], None]]] = {
    "anthropic": (anthropic_messages.ANTHROPIC_KEY, _look_up_at_anthropic),
    "openai": (openai_client.OPENAI_KEY, _look_up_at_openai),
}
