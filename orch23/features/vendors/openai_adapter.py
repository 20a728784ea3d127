"""The providers `openai` and `azure` (Azure OpenAI): server, interface, parameters and requirements of a step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from orch23.features.vendors.openai_chat import ChatCompletions
from orch23.features.vendors.openai_client import OPENAI_KEY, ServerAccess, ServerConnection, is_object_schema
from orch23.features.vendors.openai_responses import ResponsesApi, StreamedResponses, SubmittedResponses
from orch23.features.vendors.vendor_adapters import CloudAdapter, ServerAdapter, VendorAdapter
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.features import BATCHES, load_feature
from orch23.model.llm import OnTruncated, Provider
from orch23.model.server_url import is_loopback, normalize_url, url_fault
from orch23.providers.adapter import CallContext, ProviderContext, library_errors, unsupported_error
from orch23.providers.connections import ClientConnection, TlsContexts, shared_connections
from orch23.providers.media import OPENAI_MEDIA
from orch23.providers.wire import wire_schema

if TYPE_CHECKING:
    from orch23.model.batches import Batches

OPENAI_URL = "https://api.openai.com/v1"


class GptAdapter(VendorAdapter):
    """A provider with OpenAI's interfaces."""

    vendor = "openai"
    takes = frozenset({"effort", "base_url", "endpoint_alias", "seed", "temperature", "api", "background", "extra"})
    sets = frozenset({"model", "messages", "input", "instructions", "stream", "stream_options", "background", "store"})
    sets |= {"max_tokens", "max_completion_tokens", "max_output_tokens", "response_format", "text.format"}
    sets |= {"reasoning.effort", "reasoning_effort", "temperature", "seed"}
    sets |= {"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
    sends = ("max_tokens", "effort", "seed", "temperature")
    pricing = "openai"
    on_truncated = OnTruncated(1, 2)
    media = OPENAI_MEDIA
    key_variable: ClassVar[str]
    address_form: ClassVar[str]
    # Returns the connection to the step's server, with what the calls of a run share.
    connection: ClassVar[Callable[..., ServerConnection]]

    @property
    def api(self) -> str:
        """The interface: the step's, or `responses`."""
        return self.step.api or "responses"

    @property
    def stored_at(self) -> str:
        """The server that keeps the responses of background requests."""
        return "" if self.is_chat or self.step.background is False else self.endpoint

    @property
    def limit_field(self) -> str:
        """The field of the limit: the vendor has renamed it; other servers know the old name."""
        return "max_completion_tokens" if self.is_at_vendor else "max_tokens"

    @property
    def is_chat(self) -> bool:
        """Whether the interface is Chat Completions."""
        return self.api.startswith("chat")

    def wire(self, schema: Json) -> Json:
        """Return the reduced schema; None if the interface would refuse it because it is not an object."""
        reduced = wire_schema(self.step, schema)
        return reduced if self.is_chat or is_object_schema(reduced) else None

    def check(self, _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a wrong address, and for each setting that only the other interface has."""
        base = self.step.base_url
        if base is not None and (fault := url_fault(base)):
            hint = f"write it as `{self.address_form}`; the key comes from {self.key_variable}"
            yield unsupported_error("base_url", f"`llm.base_url` {fault}", hint)
        interface = "chat" if self.is_chat else "responses"
        for name, lacking, other in (("seed", "responses", "chat"), ("background", "chat", "responses")):
            if getattr(self.step, name) is not None and interface == lacking:
                hint = f"remove it, or use the other interface: `api: {other}`"
                yield unsupported_error(name, f"the interface `{lacking}` does not have `{name}`", hint)

    def is_elsewhere(self, _environ: Mapping[str, str]) -> bool:
        """Return whether the environment names another server, which may refuse the vendor's newest fields."""
        return False

    def make(self, setting: ProviderContext, asking: CallContext) -> Provider:
        """Return the provider of the interface."""
        connection = self.connection(setting.environ, **shared_connections(setting.share))
        is_elsewhere = self.is_elsewhere(setting.environ)
        is_vendor = self.is_at_vendor and not is_elsewhere
        if self.is_chat:
            limit_field = "max_tokens" if is_elsewhere else self.limit_field
            return ChatCompletions(connection=connection, limit_field=limit_field, is_vendor=is_vendor)
        if self.step.background is False:
            return StreamedResponses(connection=connection, is_vendor=is_vendor)
        return ResponsesApi(
            connection=connection,
            stage=asking.stage,
            emit=setting.notice,
            submitted_earlier=setting.submitted,
            submitted=setting.share(SubmittedResponses, SubmittedResponses),
            is_vendor=is_vendor,
        )

    def prepare(self, setting: ProviderContext) -> None:
        """Import the library, and the interface."""
        line = self.connection(setting.environ, trust=setting.share(TlsContexts, TlsContexts))
        with line.client(ClientConnection()) as client:
            _ = client if self.is_chat else client.responses  # imported when it is accessed


class OpenAIAdapter(GptAdapter, ServerAdapter):
    """The provider `openai`."""

    takes = GptAdapter.takes | {"pace"}
    url = OPENAI_URL
    url_variable = "OPENAI_BASE_URL"
    key_variable = OPENAI_KEY
    address_form = "https://host/v1"

    @property
    def api(self) -> str:
        """The interface: `chat` for a server other than the vendor's, since all servers have it."""
        return self.step.api or ("chat" if self.step.base_url else "responses")

    @property
    def streams(self) -> bool:
        """Whether a call reports the first event."""
        return self.is_chat and self.is_at_vendor

    def batches(self, setting: ProviderContext) -> "Batches":
        """Return the batches of the server."""
        connection = self.connection(setting.environ, **shared_connections(setting.share))
        found: Batches = load_feature(BATCHES["openai"])(connection=connection, is_vendor=self.is_at_vendor)
        return found

    def check(self, root: Path | None) -> Iterator[Diagnostic]:
        """Yield the errors of the step."""
        step = self.step
        yield from GptAdapter.check(self, root)
        if step.pace == "batch" and self.is_chat:
            message = "the provider `openai` does not have `pace: batch` with `api: chat`"
            hint = "remove it; OpenAI's own batches need `api: responses`"
            yield unsupported_error("pace", message, hint)
        if (facts := self.facts) is not None and step.pace in facts.lacks_paces:
            message = f"{step.model} does not have `pace: {step.pace}`"
            hint = "remove it, or use a model that has it; the price list of the vendor says which"
            yield unsupported_error("pace", message, hint)

    def is_elsewhere(self, environ: Mapping[str, str]) -> bool:
        """Return whether the environment names another server."""
        return bool(self.server(environ)[1])

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterable[Diagnostic]:
        """Yield an error for a missing library, and for a missing key."""
        yield from ServerAdapter.ready(self, environ, _root)
        yield from library_errors("openai")
        url = self.server(environ)[0]
        if not self.key(environ) and not is_loopback(url):
            hint = f"set {OPENAI_KEY}" + (" (to any text, if the server needs none)" if url != self.url else "")
            yield Diagnostic("E412", f"there is no key for {url}", hint=hint)

    def look_up(self, environ: Mapping[str, str], timeout_s: float) -> object:
        """Ask the server for the model."""
        line = self.connection(environ, lists_models=False)
        with line.open(line.clock() + timeout_s) as client:
            return getattr(client.models.retrieve(self.step.model), "id", None)

    def connection(self, environ: Mapping[str, str], **shared: Any) -> ServerConnection:
        """Return the connection to the step's server."""
        return ServerConnection(server=ServerAccess(self.server(environ)[0], self.key(environ)), **shared)


AZURE_KEY: Final = "AZURE_OPENAI_API_KEY"
AZURE_TOKEN: Final = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - the name of a variable
AZURE_ENDPOINT: Final = "AZURE_OPENAI_ENDPOINT"
# Part of every fingerprint: with another version, no recorded response is found.
API_VERSION: Final = "2025-04-01-preview"


class AzureAccess(ServerAccess, frozen=True):
    """A resource: its address, and its key, or a token of Microsoft Entra ID."""

    is_token: bool = False
    library_class: ClassVar[str] = "AzureOpenAI"

    @property
    def login(self) -> Mapping[str, str | None]:
        """The arguments of the library's class that have key or token."""
        key, token = (None, self.key) if self.is_token else (self.key, None)
        return {"api_key": key, "azure_ad_token": token, "api_version": API_VERSION}


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
        return ServerConnection(server=self._access(environ), **shared)

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
