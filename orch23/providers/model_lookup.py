"""Ask a vendor whether it has a model, for `doctor --online`."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.providers import anthropic_messages, openai_client
from orch23.providers.connections import OpenCalls, TlsContexts
from orch23.providers.faults import TransportError, invalid_reply_diagnostic, status_error, unreachable_error
from orch23.providers.registry import endpoint_of
from orch23.steps.llm.spec import LLMStep

LOOKUP_TIMEOUT_S = 20.0


class _Question(Struct, frozen=True):
    url: str
    key: str
    model: str


def can_find_models(step: LLMStep) -> bool:
    """Say whether the step's provider can be asked for its models at all."""
    return step.provider in _WAYS


def find_model(step: LLMStep, environ: Mapping[str, str]) -> Diagnostic | None:
    """Ask the step's provider for its model, once; return what is wrong, None if the provider has it.

    Raises:
        KeyError: the provider cannot be asked for its models; see `can_look_up`.

    """
    variable, ask = _WAYS[step.provider]
    key = environ.get(variable, "").strip() or "none"  # a server on this machine may want none
    try:
        ask(_Question(endpoint_of(step), key, step.model))
    except TransportError as fault:
        return fault.diagnostic
    except ProviderError as ended:
        return ended.diagnostics[0]
    return None


def _ask_anthropic(question: _Question) -> None:
    import anthropic  # noqa: PLC0415 - heavy

    timeout = anthropic.Timeout(LOOKUP_TIMEOUT_S)
    try:
        with (
            OpenCalls().track(LOOKUP_TIMEOUT_S) as sockets,
            anthropic_messages.make_anthropic_client(
                question.url, question.key, timeout, sockets, TlsContexts()
            ) as client,
        ):
            found = client.models.retrieve(question.model)
    except anthropic.APIStatusError as error:
        said = error.api_message or (error.body if isinstance(error.body, str) else "")
        raise status_error(question.url, error.status_code, said) from None
    except anthropic.AnthropicError as error:
        raise unreachable_error(question.url, error.__cause__ or error) from None
    _hold_to_model(getattr(found, "id", None), question.url)


def _ask_openai(question: _Question) -> None:
    line = openai_client.ServerConnection(server=openai_client.ServerAccess(question.url, question.key))
    with line.open(line.clock() + LOOKUP_TIMEOUT_S) as client:
        found = client.models.retrieve(question.model)
    _hold_to_model(getattr(found, "id", None), question.url)


def _hold_to_model(name: object, url: str) -> None:
    """Refuse an answer that describes no model: a gateway's page comes back as a text, with status 200.

    Raises:
        TransportError: it is none.

    """
    if not isinstance(name, str) or not name:
        raise TransportError(invalid_reply_diagnostic(f"{url} answered something that is no model"))


_WAYS: Mapping[str, tuple[str, Callable[[_Question], None]]] = {
    "anthropic": (anthropic_messages.ANTHROPIC_KEY, _ask_anthropic),
    "openai": (openai_client.OPENAI_KEY, _ask_openai),
}
