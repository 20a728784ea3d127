"""Client of servers with OpenAI's interfaces: connection, errors, known models, token usage, response format."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from orch23.features.vendors.server_replies import (
    EVENT_STREAM,
    MAX_REPLY_BYTES,
    http_client,
    text_at,
    token_count_at,
)
from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.digest import Json
from orch23.model.llm import Pace, Request, Usage
from orch23.model.media import Media
from orch23.model.parsing import parse_json
from orch23.model.text import join_first
from orch23.providers.cache_marks import NO_MARKS, cache_marks, marked_content
from orch23.providers.connections import (
    CONNECT_S,
    LEAST_S,
    CallSockets,
    ClientConnection,
    RunConnections,
)
from orch23.providers.faults import (
    UNEXPECTED_ERRORS,
    DamagedTextError,
    TransportError,
    invalid_reply_diagnostic,
    library_error,
    printable_line,
    status_error,
    timeout_error,
    unreachable_error,
    with_key_variable,
)
from orch23.providers.model_facts import facts_of

if TYPE_CHECKING:
    from openai import OpenAI, Stream


SCHEMA_NAME = "answer"
_DEEPEST = 10
# A schema with one of these formats is not sent as strict.
_UNKNOWN_FORMATS = frozenset({"uri"})


def response_format(schema: Json) -> dict[str, Json]:
    """Return the named schema as both interfaces take it."""
    return {"name": SCHEMA_NAME, "schema": schema, "strict": is_object_schema(schema) and _is_fit(schema, 0)}


def pace_fields(request: Request) -> dict[str, Json]:
    """Return the field of a request that asks for its pace; both interfaces have it."""
    return {"service_tier": "flex"} if request.pace == "flex" else {}


def served_pace(reply: Json) -> Pace | None:
    """Return the pace that a reply, or a part of a stream, was served at; None if it does not say so."""
    tier = text_at(reply, "service_tier")
    if tier in ("", "auto"):
        return None
    return "flex" if tier == "flex" else "standard"


def is_object_schema(schema: Json) -> bool:
    """Return whether the response is an object: the vendor accepts no other schema."""
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _is_fit(schema: Json, depth: int) -> bool:
    """Return whether a schema follows the rules of strict outputs; the vendor refuses one that does not.

    All properties of all objects are required, and there are at most ten levels.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST or schema.get("format") in _UNKNOWN_FORMATS:
        return False
    properties, required = schema.get("properties"), schema.get("required")
    inner: list[Json] = [schema["items"]] if "items" in schema else []
    if schema.get("type") == "object":
        if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
            return False
        if set(properties) != set(required) or schema.get("additionalProperties") is not False:
            return False
        inner += properties.values()
    branches = schema.get("anyOf")
    inner += branches if isinstance(branches, list | tuple) else ()
    return all(_is_fit(one, depth + 1) for one in inner)


_BREAKPOINT: Mapping[str, Json] = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def message_contents(
    request: Request, part: Callable[[str | Media], Mapping[str, Json]], *, is_vendor: bool
) -> list[Json]:
    """Return the messages of a request. `part` makes a part of a content.

    A content is a text, or parts if it has pictures, PDFs, or ends of prefixes that the vendor's cache keeps.
    """
    marks = cache_marks(request, facts_of("openai", request.model)) if is_vendor else NO_MARKS
    return [
        {"role": message.role, "content": marked_content(message, marks.ends_in(request, at), part, _BREAKPOINT)}
        for at, message in enumerate(request.messages)
    ]


OPENAI_KEY = "OPENAI_API_KEY"
# A model on a slow machine reads a long prompt for minutes before its first word.
_STALL_S = 300.0
# The library's timeout is later than the deadline: the deadline shuts the connection down, with a better message.
_LATER_S = 5.0
# How long a server may take to list its models, after it refused one.
_MODELS_S = 5.0
_SERVERS_OWN = frozenset({"server_error", "overloaded", "overloaded_error", "rate_limit_exceeded", "timeout"})
_SERVERS_STATUS = frozenset({"408", "409", "429", "500", "502", "503", "504", "529"})


class ServerAccess(Struct, frozen=True):
    """A server: its normal address, its key (empty if it has none), and the variable that keys are read from."""

    url: str
    key: str
    variable: str = OPENAI_KEY
    library_class: ClassVar[str] = "OpenAI"

    @property
    def login(self) -> Mapping[str, str | None]:
        """The arguments of the library's class that have the key. It requires one; without a key, none is sent."""
        return {"api_key": self.key or "none"}

    def __repr__(self) -> str:
        """Describe it without the key."""
        return f"{type(self).__name__}(url={self.url!r})"


class ServerConnection(RunConnections, frozen=True, kw_only=True):
    """The connection to a server, with its address.

    With `lists_models`, a second request asks a server that does not know a model for the names of those that it has.
    """

    server: ServerAccess
    lists_models: bool = True

    def seconds_left(self, until: float) -> float:
        """Return the seconds until a deadline, always more than 0."""
        return max(LEAST_S, until - self.clock())

    @contextlib.contextmanager
    def open(self, until: float) -> Iterator["OpenAI"]:
        """Yield a client for one call. Its connections are shut down at the deadline, and when the build ends.

        Raises:
            TransportError: the library raised an exception.
            ProviderError: the build has ended.
        """
        import httpx2  # noqa: PLC0415 - heavy
        import openai  # noqa: PLC0415 - heavy

        with self.calls.track(self.seconds_left(until)) as sockets:
            try:
                with self.clients.client_for(("openai", self.server), sockets, self.client) as client:
                    client.timeout = openai.Timeout(
                        min(self.seconds_left(until) + _LATER_S, _STALL_S), connect=CONNECT_S
                    )
                    yield client
            except (TransportError, openai.OpenAIError, httpx2.HTTPError, *UNEXPECTED_ERRORS) as error:
                fault = timeout_error() if sockets.is_shut_down else transport_error(error, self.server.url)
                fault = with_key_variable(fault, self.server.variable, has_key=bool(self.server.key))
                if self.lists_models and is_unknown_model(fault):
                    fault = with_known_models(fault, lambda: self._models(sockets))
                raise fault from None

    def _models(self, sockets: CallSockets) -> list[str]:
        with self.clients.client_for(("openai", self.server), sockets, self.client) as client:
            return [str(one.id) for one in client.models.list(timeout=_MODELS_S).data]

    def client(self, connection: ClientConnection) -> "OpenAI":
        """Return a client that does not depend on the environment: the library would read six variables.

        It makes no retries (they would hide requests), follows no redirects (the prompt goes only to the address in the
        fingerprint), and uses no proxy for addresses of this machine. Each call sets its timeout.
        """
        import openai  # noqa: PLC0415 - heavy

        server = self.server
        client: OpenAI = getattr(openai, server.library_class)(
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",  # not used
            base_url=server.url,
            max_retries=0,
            http_client=http_client(openai, server.url, connection, self.trust, has_key=bool(server.key)),
            **server.login,
        )
        client.organization = client.project = client.admin_api_key = None  # an empty text would be sent as a header
        client._custom_headers = {}  # noqa: SLF001 - no argument disables OPENAI_CUSTOM_HEADERS
        return client


# ---- errors ------------------------------------------------------------------------------


def invalid_reply_error(url: str, what: str) -> TransportError:
    """Return the error of a reply that does not match the interface."""
    message = f"the reply of {url} does not match OpenAI's interface: {printable_line(what)}"
    return TransportError(invalid_reply_diagnostic(message), charged=True)


def transport_error(error: Exception, url: str) -> TransportError:
    """Return the error for an exception of the library: whether to retry, and whether it is charged."""
    import httpx2  # noqa: PLC0415 - heavy
    import openai  # noqa: PLC0415 - heavy

    match error:
        case TransportError():
            return error
        case openai.APIStatusError():
            what = error.body.get("error", error.body) if isinstance(error.body, Mapping) else None
            marks = {str(what.get("code")), str(what.get("type"))} if isinstance(what, Mapping) else ()
            given = {name.lower(): value for name, value in error.response.headers.items()}
            said = server_message(error.body)
            return status_error(url, error.status_code, said, given, marks=marks, error=what)
        case openai.APIConnectionError() | httpx2.HTTPError():
            return unreachable_error(url, error.__cause__ or error)
        case openai.APIError():  # in the middle of a stream
            return server_error(server_message(error.body), str(error.code or ""), str(error.type or ""))
        case UnicodeDecodeError():
            return DamagedTextError(url)
        case ValueError() | RecursionError():  # of the JSON reader: also nested too deeply, or a number too long
            return invalid_reply_error(url, "a line is not JSON")
        case _:
            return library_error(error, "openai")


def has_broken_off(fault: TransportError) -> bool:
    """Return whether an error, after valid parts of a stream, means only that this response was damaged in transit."""
    is_of_server = isinstance(fault, DamagedTextError)
    return not is_of_server and fault.diagnostic.code in ("E419", "E421")


def server_error(what: str, *marks: str) -> TransportError:
    """Return the error of a request that failed at the server. `marks` (code, type) decide whether it is transient."""
    transient = any(mark in _SERVERS_OWN or mark in _SERVERS_STATUS for mark in marks)
    hint = "build again; if it fails the same way, use another model or change the prompt"
    diagnostic = Diagnostic("E401", f"the provider failed: {printable_line(what)}", hint=hint)
    return TransportError(diagnostic, transient=transient, charged=True)


def server_message(body: object) -> str:
    """Return the server's message in an error."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    found = error.get("message") if isinstance(error, Mapping) else error
    return found if isinstance(found, str) else ""


# ---- replies --------------------------------------------------------------


def parse_reply(text: str | bytes, url: str) -> Mapping[str, Json]:
    """Return the JSON object of a reply.

    Raises:
        TransportError: it is not a JSON object, but for example a web page.
    """
    try:
        value = parse_json(text, max_bytes=MAX_REPLY_BYTES)
    except ValueError as error:  # also not UTF-8
        raise invalid_reply_error(url, str(error)) from None
    if not isinstance(value, Mapping):
        raise invalid_reply_error(url, "it is not a JSON object")
    return value


def token_usage(usage: Json, sent: str, received: str) -> Usage:
    """Return the tokens of a `usage` object. The two interfaces have different names for input and output."""
    return Usage(
        input_tokens=token_count_at(usage, f"{sent}_tokens"),
        output_tokens=token_count_at(usage, f"{received}_tokens"),
        cache_read_tokens=token_count_at(usage, f"{sent}_tokens_details", "cached_tokens"),
        cache_write_tokens=token_count_at(usage, f"{sent}_tokens_details", "cache_write_tokens"),
    )


def reported_usage(usage: Usage) -> Usage | None:
    """Return a usage; None if the server counted nothing."""
    return usage if usage.total else None


# The library's methods for requests that it has no method for, since those that it has take longer than all else of a
# short call: they look up the types of the request, and build objects of each part of the response.


def post_body(client: "OpenAI", path: str, body: Mapping[str, Json], url: str) -> "bytes | Stream[object]":
    """Send a request, and return the body of its reply, or the stream of events that it asked for.

    Raises:
        TransportError: the reply is neither that stream nor JSON.
    """
    import httpx2  # noqa: PLC0415 - heavy
    import openai  # noqa: PLC0415 - heavy

    if not body.get("stream"):
        return client.post(path, body=body, cast_to=httpx2.Response).content
    stream = client.post(path, body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object])
    kind = stream.response.headers.get("content-type", "")
    if kind.startswith(EVENT_STREAM):
        return stream
    if "json" not in kind:
        raise invalid_reply_error(url, f"it sent {kind or 'a reply without a type'}, not a stream")
    # Some servers do not stream. Their response is complete, and it is paid for.
    return stream.response.read()


def stream_objects(stream: "Stream[object]", url: str) -> Iterator[Mapping[str, Json]]:
    """Yield the parts of a stream as JSON objects.

    Raises:
        TransportError: a part is something else.
    """
    for one in stream:
        if not isinstance(one, Mapping):
            raise invalid_reply_error(url, "a part of the stream is not a JSON object")
        yield one


def openai_version() -> str:
    """Return the library and its version."""
    import openai  # noqa: PLC0415 - heavy

    return f"openai {openai.__version__}"


_NOT_FOUND = 404
_MOST = 6
_LONGEST = 100
_MAX_NAMES = 1_000
_NO_LIST = (
    "the server does not list its models: write the exact name from its documentation in `llm.model`; if it is written "
    "like that, the account of your key has no access to it"
)
_QUOTED = re.compile(r"[`'\"]([^`'\"\s]{1,100})[`'\"]")


def is_unknown_model(fault: TransportError) -> bool:
    """Return whether a server replied that it does not have a model."""
    return (
        fault.status == _NOT_FOUND
        and fault.diagnostic.code == "E415"
        and "model" in fault.diagnostic.message.casefold()
    )


def with_known_models(fault: TransportError, names: Callable[[], Iterable[str]]) -> TransportError:
    """Return the fault with the models of the server in its hint; without them if the server does not list them."""
    try:
        known = sorted({printable_line(name) for name, _ in zip(names(), range(_MAX_NAMES), strict=False)})
    except Exception:  # noqa: BLE001 - the request has failed already, and the list only helps to correct it
        known = []
    known = [name for name in known if 0 < len(name) <= _LONGEST]
    if not known:
        return TransportError(replace(fault.diagnostic, hint=_NO_LIST), status=fault.status)
    words = _QUOTED.findall(fault.diagnostic.message)
    fix = next(((word, found) for word in words for found in nearest_names(word, known)), None)
    known.sort(key=lambda name: fix is None or name != fix[1])  # the nearest one first
    mean = f"did you mean `{fix[1]}`? " if fix else ""
    listed = join_first([f"`{name}`" for name in known], _MOST)
    hint = f"{mean}write a model of this server in `llm.model`; it has {listed}"
    return TransportError(replace(fault.diagnostic, hint=hint, fix=fix), status=fault.status)
