"""The provider `azure`: GPT in Azure OpenAI, with both of OpenAI's interfaces."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orch23.features.vendors.openai_adapter import interface_errors, openai_parameters, provider_of, wire_of
from orch23.features.vendors.openai_client import (
    ServerAccess,
    ServerConnection,
    http_client,
    without_environment,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import OnTruncated, Provider
from orch23.model.server_url import is_loopback, normalize_url, url_fault
from orch23.providers.adapter import Adapter, CallContext, ProviderContext, library_errors, unsupported_error
from orch23.providers.connections import ClientConnection, TlsContexts, shared_connections
from orch23.providers.media import OPENAI_MEDIA
from orch23.providers.model_facts import facts_of
from orch23.providers.registry import named_server_grant
from orch23.steps.llm.spec import LLMStep

if TYPE_CHECKING:
    from openai import AzureOpenAI

AZURE_KEY: Final = "AZURE_OPENAI_API_KEY"
AZURE_TOKEN: Final = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - the name of a variable
AZURE_ENDPOINT: Final = "AZURE_OPENAI_ENDPOINT"
# Part of every fingerprint: with another version, no recorded response is found.
API_VERSION: Final = "2025-04-01-preview"


class AzureAccess(ServerAccess, frozen=True):
    """A resource: its address, and its key, or a token of Microsoft Entra ID."""

    is_token: bool = False


def _address(step: LLMStep, environ: Mapping[str, str]) -> str:
    """Return the address of the resource: of the pipeline, else of the environment, else empty."""
    return normalize_url(step.base_url) if step.base_url else environ.get(AZURE_ENDPOINT, "").strip().rstrip("/")


def _access(step: LLMStep, environ: Mapping[str, str]) -> AzureAccess:
    token, key = (environ.get(name, "").strip() for name in (AZURE_TOKEN, AZURE_KEY))
    # As in the vendor's library, the token comes first.
    url, variable = f"{_address(step, environ)}/openai", AZURE_TOKEN if token else AZURE_KEY
    return AzureAccess(url, token or key, variable, is_token=bool(token))


def make_azure_client(server: AzureAccess, connection: ClientConnection, trust: TlsContexts) -> "AzureOpenAI":
    """Return a client that does not depend on the environment, as that of OpenAI's own server."""
    import openai  # noqa: PLC0415 - heavy

    client = openai.AzureOpenAI(
        api_key=None if server.is_token else server.key,
        azure_ad_token=server.key if server.is_token else None,
        api_version=API_VERSION,
        base_url=server.url,
        admin_api_key="",
        organization="",
        webhook_secret="",  # not used
        max_retries=0,
        http_client=http_client(server.url, connection, trust),
    )
    without_environment(client)
    return client


def _interface(step: LLMStep) -> str:
    return step.api or "responses"


def _make(setting: ProviderContext, asking: CallContext) -> Provider:
    connection = ServerConnection(
        server=_access(asking.step, setting.environ),
        **shared_connections(setting.share),
        make_client=make_azure_client,
    )
    interface = _interface(asking.step)
    return provider_of(setting, asking, connection, interface, "max_completion_tokens", is_vendor=False)


def _prepare(setting: ProviderContext, step: LLMStep) -> None:
    access = _access(step, setting.environ)
    with make_azure_client(access, ClientConnection(), setting.share(TlsContexts, TlsContexts)) as client:
        if _interface(step) == "responses":
            _ = client.responses  # the library imports an interface when it is accessed


def _check(step: LLMStep, _environ: Mapping[str, str], _root: Path | None) -> tuple[Diagnostic, ...]:
    found = []
    if step.base_url is not None and (fault := url_fault(step.base_url)):
        hint = f"write it as `https://NAME.openai.azure.com`; the key comes from {AZURE_KEY}"
        found.append(unsupported_error("base_url", f"`llm.base_url` {fault}", hint))
    found += interface_errors(step, _interface(step))
    return tuple(found)


def _ready(step: LLMStep, environ: Mapping[str, str], _root: Path | None) -> tuple[Diagnostic, ...]:
    found = library_errors("openai")
    address = _address(step, environ)
    if not address:
        hint = f"write `base_url: https://NAME.openai.azure.com`, or set {AZURE_ENDPOINT}"
        found.append(Diagnostic("E412", "the provider `azure` has no address of a resource", hint=hint))
    elif step.base_url is None and (fault := url_fault(address)):
        hint = "set it to `https://NAME.openai.azure.com`"
        found.append(Diagnostic("E412", f"{AZURE_ENDPOINT} {fault}", hint=hint))
    if not _access(step, environ).key:
        hint = f"set {AZURE_KEY}, or {AZURE_TOKEN} to a token of Microsoft Entra ID"
        found.append(Diagnostic("E412", "there is no key for the provider `azure`", hint=hint))
    return tuple(found)


def _endpoint(step: LLMStep) -> str:
    return normalize_url(step.base_url) if step.base_url else "azure"


ADAPTER = Adapter(
    make=_make,
    takes=frozenset({"effort", "base_url", "endpoint_alias", "seed", "temperature", "api", "background"}),
    parameters=openai_parameters,
    endpoint=_endpoint,
    api=lambda step: f"{_interface(step)} {API_VERSION}",
    pricing="openai",
    remote=lambda step: step.base_url is None or not is_loopback(step.base_url),
    wire=lambda step, schema: wire_of(step, schema, _interface(step)),
    check=_check,
    ready=_ready,
    consent=lambda step, *_: named_server_grant(step, AZURE_TOKEN, AZURE_KEY),
    prepare=_prepare,
    on_truncated=OnTruncated(1, 2),
    stored_at=lambda step: "" if _interface(step) == "chat" or step.background is False else _endpoint(step),
    accepts=lambda step: facts_of("openai", step.model).media,
    media=OPENAI_MEDIA,
)
