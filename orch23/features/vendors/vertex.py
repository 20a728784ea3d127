"""The provider `vertex`: Claude in Google's Vertex AI, streamed, with application default credentials."""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.features.vendors.anthropic_messages import AnthropicMessages, ClaudeAdapter
from orch23.features.vendors.anthropic_sdk import anthropic_client
from orch23.features.vendors.vendor_adapters import CloudAdapter
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.llm import Provider, Request, Response
from orch23.model.server_url import normalize_url
from orch23.providers.adapter import CallContext, ProviderContext, library_errors
from orch23.providers.connections import ClientConnection, shared_connections

REGION: Final = "CLOUD_ML_REGION"
PROJECT: Final = "ANTHROPIC_VERTEX_PROJECT_ID"
CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
# Addresses of regions that are several places.
_ADDRESSES: Final = {
    "global": "https://aiplatform.googleapis.com/v1",
    "us": "https://aiplatform.us.rep.googleapis.com/v1",
    "eu": "https://aiplatform.eu.rep.googleapis.com/v1",
}


def claude_of(model: str) -> str:
    """Return the vendor's name of a model of Vertex AI, such as `claude-sonnet-4-5@20250929`."""
    return model.replace("@", "-")


class GoogleLogin(Struct):
    """The credentials of Google, which the calls of a run share."""

    _found: Any = None
    _project: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self) -> tuple[str, str]:
        """Return a valid token, and the project of the credentials (empty if they have none).

        Raises:
            ConfigurationError: there are no credentials, or they are refused.
        """
        import google.auth  # noqa: PLC0415 - heavy, and an extra
        import google.auth.transport.requests  # noqa: PLC0415 - as above

        with self._lock:
            try:
                if self._found is None:
                    # The library reads the environment of the process: variables, files of gcloud, the machine.
                    self._found, project = google.auth.default(_SCOPES)
                    self._project = project or ""
                if not self._found.valid:
                    self._found.refresh(google.auth.transport.requests.Request())
            except google.auth.exceptions.GoogleAuthError as error:
                hint = (
                    f"log in: `gcloud auth application-default login`, or set {CREDENTIALS} to a file with credentials"
                )
                raise ConfigurationError(Diagnostic("E412", f"Google: {error.args[0]}", hint=hint)) from None
            return self._found.token, self._project

    def close(self) -> None:
        """Forget the credentials."""
        self._found = None


class VertexMessages(AnthropicMessages, frozen=True, kw_only=True):
    """The provider. `key` is the token of a call."""

    name_of: Callable[[str], str] = claude_of
    environ: Mapping[str, str]
    login: GoogleLogin
    project: str = ""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model, as `AnthropicMessages`, with a token that is valid now.

        Raises:
            ConfigurationError: there are no credentials, or no project.
        """
        return AnthropicMessages.complete(self._logged_in(), request, deadline_s, on_text)

    def count_tokens(self, request: Request, deadline_s: float) -> int:
        """Return the input tokens as the server counts them, as `AnthropicMessages`, with a token that is valid now.

        Raises:
            ConfigurationError: there are no credentials, or no project.
        """
        return AnthropicMessages.count_tokens(self._logged_in(), request, deadline_s)

    def _logged_in(self) -> "VertexMessages":
        token, project = self.login.token()
        project = self.environ.get(PROJECT, "").strip() or project
        if not project:
            hint = f"set {PROJECT}"
            raise ConfigurationError(Diagnostic("E412", "the provider `vertex` has no project", hint=hint))
        return replace(self, key=token, project=project)

    def identity(self) -> tuple[Hashable, ...]:
        """Return platform, server, project and token."""
        return ("vertex", self.url, self.project, self.key)

    def client(self, connection: ClientConnection) -> Any:
        """Return a client that does not depend on the environment."""
        login = {"region": _region(self.environ), "project_id": self.project, "access_token": self.key}
        return anthropic_client("AnthropicVertex", self.url, connection, self.trust, {}, **login)


def _region(environ: Mapping[str, str]) -> str:
    return environ.get(REGION, "").strip()


class VertexAdapter(ClaudeAdapter, CloudAdapter):
    """The provider `vertex`."""

    name = "vertex"
    keys = (CREDENTIALS,)
    pricing = "google"
    name_of = staticmethod(claude_of)

    def make(self, setting: ProviderContext, _asking: CallContext) -> Provider:
        """Return the provider."""
        base, region = self.step.base_url, _region(setting.environ)
        url = _ADDRESSES.get(region, f"https://{region}-aiplatform.googleapis.com/v1")
        return VertexMessages(
            url=normalize_url(base) if base else url,
            key="",
            environ=setting.environ,
            login=setting.share(GoogleLogin, GoogleLogin),
            **shared_connections(setting.share),
        )

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a missing library or region."""
        yield from library_errors("google-auth", "google.auth")
        if not _region(environ):
            hint = f"set {REGION}, for example to `global`"
            yield Diagnostic("E412", "the provider `vertex` has no region", hint=hint)
