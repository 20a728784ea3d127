"""The provider `openai`: server, interface, parameters and requirements of a step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orch23.features.vendors.openai_chat import ChatCompletions
from orch23.features.vendors.openai_client import (
    OPENAI_KEY,
    ServerAccess,
    ServerConnection,
    is_object_schema,
    make_openai_client,
)
from orch23.features.vendors.openai_responses import ResponsesApi, SubmittedResponses
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.features import BATCHES, load_feature
from orch23.model.llm import OnTruncated, Provider
from orch23.model.server_url import is_loopback, normalize_url, url_fault
from orch23.providers.adapter import Adapter, CallContext, ProviderContext, library_errors, unsupported_error
from orch23.providers.connections import ClientConnection, TlsContexts, shared_connections
from orch23.providers.media import OPENAI_MEDIA
from orch23.providers.model_facts import facts_of
from orch23.providers.registry import server_grant
from orch23.providers.wire import wire_schema
from orch23.steps.llm.spec import LLMStep

if TYPE_CHECKING:
    from orch23.model.batches import Batches

OPENAI_URL = "https://api.openai.com/v1"


def server_url(step: LLMStep) -> str:
    """Return the normal form of the address of a step's server."""
    return normalize_url(step.base_url or OPENAI_URL)


def _is_vendor(step: LLMStep) -> bool:
    # An invalid address has no normal form; `_check` reports it.
    return step.base_url is None or (url_fault(step.base_url) is None and server_url(step) == OPENAI_URL)


def interface_of(step: LLMStep) -> str:
    """Return the interface: the step's, else `chat` for a server other than the vendor's, since all servers have it."""
    return step.api or ("chat" if step.base_url else "responses")


def _make(setting: ProviderContext, asking: CallContext) -> Provider:
    step = asking.step
    url = server_url(step)
    connection = _connection(setting, step)
    is_vendor = url == OPENAI_URL
    # The vendor has renamed the field; other servers know the old name.
    limit_field = "max_completion_tokens" if is_vendor else "max_tokens"
    return provider_of(setting, asking, connection, interface_of(step), limit_field, is_vendor=is_vendor)


def provider_of(
    setting: ProviderContext,
    asking: CallContext,
    connection: ServerConnection,
    interface: str,
    limit_field: str,
    *,
    is_vendor: bool,
) -> Provider:
    """Return the provider of an interface at a server."""
    step = asking.step
    if interface == "chat":
        return ChatCompletions(connection=connection, limit_field=limit_field, is_vendor=is_vendor)
    if step.background is False:
        from orch23.features.vendors.openai_streamed import StreamedResponses  # noqa: PLC0415 - only some stages need it

        return StreamedResponses(connection=connection, is_vendor=is_vendor)
    return ResponsesApi(
        connection=connection,
        stage=asking.stage,
        emit=setting.notice,
        submitted_earlier=setting.submitted,
        submitted=setting.share(SubmittedResponses, SubmittedResponses),
        is_vendor=is_vendor,
    )


def _connection(setting: ProviderContext, step: LLMStep) -> ServerConnection:
    return ServerConnection(
        server=ServerAccess(server_url(step), _key(setting.environ)),
        **shared_connections(setting.share),
    )


def _batches(setting: ProviderContext, step: LLMStep) -> "Batches":
    is_vendor = server_url(step) == OPENAI_URL
    found: Batches = load_feature(BATCHES["openai"])(connection=_connection(setting, step), is_vendor=is_vendor)
    return found


def _prepare(setting: ProviderContext, step: LLMStep) -> None:
    server = ServerAccess(server_url(step), _key(setting.environ))
    with make_openai_client(server, ClientConnection(), setting.share(TlsContexts, TlsContexts)) as client:
        if interface_of(step) == "responses":
            _ = client.responses  # the library imports an interface when it is accessed


def openai_parameters(step: LLMStep) -> Mapping[str, Json]:
    """Return the parameters of a request."""
    given = {"effort": step.effort, "seed": step.seed, "temperature": step.temperature}
    return {"max_tokens": step.max_tokens, **{name: value for name, value in given.items() if value is not None}}


def wire_of(step: LLMStep, schema: Json, interface: str) -> Json:
    """Return the reduced schema; None if the interface would refuse it because it is not an object."""
    reduced = wire_schema(step, schema)
    return reduced if interface == "chat" or is_object_schema(reduced) else None


def interface_errors(step: LLMStep, interface: str) -> Iterator[Diagnostic]:
    """Yield an error for each setting that only the other interface has."""
    for name, lacking, other in (("seed", "responses", "chat"), ("background", "chat", "responses")):
        if getattr(step, name) is not None and interface == lacking:
            hint = f"remove it, or use the other interface: `api: {other}`"
            yield unsupported_error(name, f"the interface `{lacking}` does not have `{name}`", hint)


def _check(step: LLMStep, _environ: Mapping[str, str], _root: Path | None) -> tuple[Diagnostic, ...]:
    found = []
    fault = url_fault(step.base_url) if step.base_url is not None else None
    if fault is not None:
        hint = f"write it as `https://host/v1`; the key comes from {OPENAI_KEY}"
        found.append(unsupported_error("base_url", f"`llm.base_url` {fault}", hint))
    found += interface_errors(step, interface_of(step))
    if step.pace == "batch" and interface_of(step) == "chat":
        message = "the provider `openai` does not have `pace: batch` with `api: chat`"
        hint = "remove it; OpenAI's own batches need `api: responses`"
        found.append(unsupported_error("pace", message, hint))
    facts = facts_of("openai", step.model) if _is_vendor(step) else None
    if facts is not None and step.pace in facts.lacks_paces:
        message = f"{step.model} does not have `pace: {step.pace}`"
        hint = "remove it, or use a model that has it; the price list of the vendor says which"
        found.append(unsupported_error("pace", message, hint))
    return tuple(found)


def _ready(step: LLMStep, environ: Mapping[str, str], _root: Path | None) -> tuple[Diagnostic, ...]:
    found = library_errors("openai")
    if not _key(environ) and not is_loopback(server_url(step)):
        hint = f"set {OPENAI_KEY}" + (" (to any text, if the server needs none)" if step.base_url else "")
        found.append(Diagnostic("E412", f"there is no key for {server_url(step)}", hint=hint))
    return tuple(found)


def _look_up(step: LLMStep, environ: Mapping[str, str], timeout_s: float) -> object:
    line = ServerConnection(server=ServerAccess(server_url(step), _key(environ)), lists_models=False)
    with line.open(line.clock() + timeout_s) as client:
        return getattr(client.models.retrieve(step.model), "id", None)


def _key(environ: Mapping[str, str]) -> str:
    return environ.get(OPENAI_KEY, "").strip()


ADAPTER = Adapter(
    make=_make,
    takes=frozenset({"effort", "base_url", "endpoint_alias", "seed", "temperature", "api", "background", "pace"}),
    parameters=openai_parameters,
    endpoint=server_url,
    api=interface_of,
    pricing="openai",
    remote=lambda step: not is_loopback(server_url(step)),
    wire=lambda step, schema: wire_of(step, schema, interface_of(step)),
    check=_check,
    batches=_batches,
    ready=_ready,
    consent=lambda step, *_: server_grant(server_url(step), OPENAI_URL, OPENAI_KEY),
    prepare=_prepare,
    on_truncated=OnTruncated(1, 2),
    stored_at=lambda step: "" if interface_of(step) == "chat" or step.background is False else server_url(step),
    streams=lambda step: interface_of(step) == "chat" and server_url(step) == OPENAI_URL,
    accepts=lambda step: facts_of("openai", step.model).media,
    media=OPENAI_MEDIA,
    facts=lambda step: facts_of("openai", step.model) if _is_vendor(step) else None,
    look_up=_look_up,
)
