"""The provider `azure`: GPT in Azure OpenAI, with both of OpenAI's interfaces."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orch23.features.vendors.openai_adapter import GptAdapter
from orch23.features.vendors.openai_client import (
    ServerAccess,
    ServerConnection,
    http_client,
    without_environment,
)
from orch23.features.vendors.vendor_adapters import CloudAdapter
from orch23.model.diagnostic import Diagnostic
from orch23.model.server_url import normalize_url, url_fault
from orch23.providers.adapter import library_errors
from orch23.providers.connections import ClientConnection, TlsContexts

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


def make_azure_client(server: AzureAccess, connection: ClientConnection, trust: TlsContexts) -> "AzureOpenAI":
    """Return a client that does not depend on the environment, as for OpenAI's own server."""
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


class AzureAdapter(CloudAdapter, GptAdapter):
    """The provider `azure`."""

    name = "azure"
    keys = (AZURE_TOKEN, AZURE_KEY)
    key_variable = AZURE_KEY
    address_form = "https://NAME.openai.azure.com"
    limit_field = "max_completion_tokens"
    is_at_vendor = False  # a deployment may have any name

    @property
    def api(self) -> str:
        """The interface, and its version."""
        return f"{self.step.api or 'responses'} {API_VERSION}"

    def connection(self, environ: Mapping[str, str], **shared: Any) -> ServerConnection:
        """Return the connection to the step's resource."""
        return ServerConnection(server=self._access(environ), make_client=make_azure_client, **shared)

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a missing library, for a missing address, and for a missing key."""
        yield from library_errors("openai")
        address = self._address(environ)
        if not address:
            hint = f"write `base_url: https://NAME.openai.azure.com`, or set {AZURE_ENDPOINT}"
            yield Diagnostic("E412", "the provider `azure` has no address of a resource", hint=hint)
        elif self.step.base_url is None and (fault := url_fault(address)):
            hint = "set it to `https://NAME.openai.azure.com`"
            yield Diagnostic("E412", f"{AZURE_ENDPOINT} {fault}", hint=hint)
        if not self._access(environ).key:
            hint = f"set {AZURE_KEY}, or {AZURE_TOKEN} to a token of Microsoft Entra ID"
            yield Diagnostic("E412", "there is no key for the provider `azure`", hint=hint)

    def _address(self, environ: Mapping[str, str]) -> str:
        """Return the address of the resource: of the pipeline, else of the environment, else empty."""
        base = self.step.base_url
        return normalize_url(base) if base else environ.get(AZURE_ENDPOINT, "").strip().rstrip("/")

    def _access(self, environ: Mapping[str, str]) -> AzureAccess:
        token, key = (environ.get(name, "").strip() for name in (AZURE_TOKEN, AZURE_KEY))
        # As in the vendor's library, the token comes first.
        url, variable = f"{self._address(environ)}/openai", AZURE_TOKEN if token else AZURE_KEY
        return AzureAccess(url, token or key, variable, is_token=bool(token))
