"""Ask a vendor whether it has a model: for `doctor --online` alone. No build asks, since the answer may change."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.providers import anthropic_messages, openai_client
from orch23.providers.calls import Calls
from orch23.providers.faults import TransportError, no_answer_of_api, refused, unreachable
from orch23.providers.registry import endpoint
from orch23.providers.trust import Trust
from orch23.steps.llm.spec import LLMStep

TIMEOUT_S = 20.0


class _Question(Struct, frozen=True):
    url: str
    key: str
    model: str


def can_look_up(step: LLMStep) -> bool:
    """Say whether the step's provider can be asked for its models at all."""
    return step.provider in _WAYS


def look_up(step: LLMStep, environ: Mapping[str, str]) -> Diagnostic | None:
    """Ask the step's provider for its model, once; return what is wrong, None if the provider has it.

    Raises:
        KeyError: the provider cannot be asked for its models; see `can_look_up`.

    """
    variable, ask = _WAYS[step.provider]
    key = environ.get(variable, "").strip() or "none"  # a server on this machine may want none
    try:
        ask(_Question(endpoint(step), key, step.model))
    except TransportError as fault:
        return fault.diagnostic
    except ProviderError as ended:
        return ended.diagnostics[0]
    return None


def _ask_anthropic(question: _Question) -> None:
    import anthropic  # noqa: PLC0415 - heavy

    timeout = anthropic.Timeout(TIMEOUT_S)
    try:
        with (
            Calls().under_way(TIMEOUT_S) as sockets,
            anthropic_messages.new_client(question.url, question.key, timeout, sockets, Trust()) as client,
        ):
            found = client.models.retrieve(question.model)
    except anthropic.APIStatusError as error:
        said = error.api_message or (error.body if isinstance(error.body, str) else "")
        raise refused(question.url, error.status_code, said) from None
    except anthropic.AnthropicError as error:
        raise unreachable(question.url, error.__cause__ or error) from None
    _hold_to_model(getattr(found, "id", None), question.url)


def _ask_openai(question: _Question) -> None:
    line = openai_client.Line(server=openai_client.Server(question.url, question.key))
    with line.open(line.clock() + TIMEOUT_S) as client:
        found = client.models.retrieve(question.model)
    _hold_to_model(getattr(found, "id", None), question.url)


def _hold_to_model(name: object, url: str) -> None:
    """Refuse an answer that describes no model: a gateway's page comes back as a text, with status 200.

    Raises:
        TransportError: it is none.

    """
    if not isinstance(name, str) or not name:
        raise TransportError(no_answer_of_api(f"{url} answered something that is no model"))


_WAYS: Mapping[str, tuple[str, Callable[[_Question], None]]] = {
    "anthropic": (anthropic_messages.KEY, _ask_anthropic),
    "openai": (openai_client.KEY_VARIABLE, _ask_openai),
}
