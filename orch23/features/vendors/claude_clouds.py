"""The providers `bedrock` and `vertex`: Claude in Amazon Bedrock and in Vertex AI, streamed, with usual credentials."""

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

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
from orch23.providers.faults import TransportError

BEARER_TOKEN: Final = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the name of a variable
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_NAME: Final = re.compile(r"(?:[a-z-]+\.)?anthropic\.(claude-[a-z0-9.-]+?)(?:-v\d+(?::\d+)?)?")


def claude_in_bedrock(model: str) -> str:
    """Return the vendor's name of a model of Bedrock, such as `eu.anthropic.claude-opus-4-6-v1`."""
    found = _NAME.fullmatch(model)
    return found[1] if found else model


class AwsLogin(Struct, frozen=True):
    """A region, and keys (id, secret, token of a session) or a bearer token."""

    region: str
    keys: tuple[str, str, str | None] | None = None
    bearer: str = ""

    def __repr__(self) -> str:
        """Describe it without the keys."""
        return f"AwsLogin(region={self.region!r})"


class BedrockMessages(AnthropicMessages, frozen=True, kw_only=True):
    """The provider. `environ` has the settings of AWS; `login` is the login of one call."""

    name_of: Callable[[str], str] = claude_in_bedrock
    environ: Mapping[str, str]
    login: AwsLogin = AwsLogin("")

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model, as `AnthropicMessages`, with the credentials that AWS has now.

        Raises:
            ConfigurationError: there are no credentials, or no region.
        """
        # Credentials of a role are valid for an hour, so each call looks them up.
        login = aws_login(self.environ)
        url = self.url or f"https://bedrock-runtime.{login.region}.amazonaws.com"
        return AnthropicMessages.complete(replace(self, login=login, url=url), request, deadline_s, on_text)

    def count_tokens(self, request: Request, deadline_s: float) -> NoReturn:
        """Raise an error: Bedrock has an interface of its own for this, which the library does not have.

        Raises:
            TransportError: always.
        """
        del request, deadline_s
        raise TransportError(Diagnostic("E401", "`bedrock` counts no tokens", hint="raise the limit"))

    def identity(self) -> tuple[Hashable, ...]:
        """Return platform, server and login."""
        return ("bedrock", self.url, self.login)

    def client(self, connection: ClientConnection) -> Any:
        """Return a client that does not depend on the environment."""
        access_key, secret_key, session_token = self.login.keys or (None, None, None)
        return anthropic_client(
            "AnthropicBedrock",
            self.url,
            connection,
            self.trust,
            {},
            aws_region=self.login.region,
            aws_access_key=access_key,
            aws_secret_key=secret_key,
            aws_session_token=session_token,
            api_key=self.login.bearer or None,
        )


def aws_login(environ: Mapping[str, str]) -> AwsLogin:
    """Return the credentials and the region: of the environment, else of profile, role or machine.

    Raises:
        ConfigurationError: there are none.
    """
    region = next((environ[name].strip() for name in _REGIONS if environ.get(name, "").strip()), "")
    bearer = environ.get(BEARER_TOKEN, "").strip()
    identity, secret, token = (environ.get(name, "").strip() for name in _KEYS)
    if region and bearer:
        return AwsLogin(region, bearer=bearer)
    if region and identity and secret:
        return AwsLogin(region, (identity, secret, token or None))
    import boto3  # noqa: PLC0415 - heavy, and an extra
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as above

    try:
        session = boto3.Session(profile_name=environ.get("AWS_PROFILE") or None)
        region = region or session.region_name or ""
        found = None if bearer else session.get_credentials()
        keys = found.get_frozen_credentials() if found is not None else None
    except BotoCoreError as error:
        hint = "correct the profile, or log in: `aws sso login`"
        raise ConfigurationError(Diagnostic("E412", f"AWS: {error}", hint=hint)) from None
    errors = []
    if keys is None and not bearer:
        hint = f"set AWS_PROFILE, {_KEYS[0]} and {_KEYS[1]}, or {BEARER_TOKEN}; or log in: `aws sso login`"
        errors.append(Diagnostic("E412", "there are no credentials of AWS for the provider `bedrock`", hint=hint))
    if not region:
        hint = "set AWS_REGION, or the region of the profile"
        errors.append(Diagnostic("E412", "there is no region of AWS for the provider `bedrock`", hint=hint))
    if errors:
        raise ConfigurationError(*errors)
    return AwsLogin(region, (keys.access_key, keys.secret_key, keys.token) if keys is not None else None, bearer)


class BedrockAdapter(ClaudeAdapter, CloudAdapter):
    """The provider `bedrock`, also with a bearer token: the library reads the stream."""

    name = "bedrock"
    keys = (_KEYS[0], BEARER_TOKEN)
    pricing = "aws"
    name_of = staticmethod(claude_in_bedrock)

    def make(self, setting: ProviderContext, _asking: CallContext) -> Provider:
        """Return the provider."""
        base = self.step.base_url
        url = normalize_url(base) if base else ""
        return BedrockMessages(url=url, key="", environ=setting.environ, **shared_connections(setting.share))

    def ready(self, *_: object) -> Iterable[Diagnostic]:
        """Return an error for a missing library."""
        return library_errors("boto3")


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


def claude_in_vertex(model: str) -> str:
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

    name_of: Callable[[str], str] = claude_in_vertex
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
    name_of = staticmethod(claude_in_vertex)

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
