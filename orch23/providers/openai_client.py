"""Reach a server of OpenAI's interfaces through the library `openai`: one client a call, one deadline for all of it."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.model.address import is_loopback
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Usage
from orch23.model.strict_json import StrictJsonError, parse
from orch23.providers import codes
from orch23.providers.calls import Calls, Sockets
from orch23.providers.faults import (
    ODD,
    TransportError,
    gave_up,
    no_answer_of_api,
    refused,
    shown,
    timed_out,
    unreachable,
)
from orch23.providers.replies import count
from orch23.providers.reply_limits import MAX_REPLY_BYTES, UNCOMPRESSED, limit_reply
from orch23.providers.trust import Trust

if TYPE_CHECKING:
    from openai import OpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
_CONNECT_S = 15.0
_STALL_S = 300.0  # a model on a slow machine reads a long prompt for minutes before its first word
_LATER_S = 5.0  # than the deadline, which cuts the connection and so says what it was
_LEAST_S = 0.001
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_SERVERS_OWN = frozenset({"server_error", "overloaded", "overloaded_error", "rate_limit_exceeded", "timeout"})
_SERVERS_STATUS = frozenset({"408", "409", "429", "500", "502", "503", "504", "529"})


class Server(Struct, frozen=True):
    """Who is asked: the normal address, and the key that it gets."""

    url: str
    key: str

    def __repr__(self) -> str:
        """Describe it without the key."""
        return f"Server(url={self.url!r})"


class Line(Struct, frozen=True, kw_only=True):
    """The way to a server: who it is, what else is under way, what is trusted, and the clock of all deadlines."""

    server: Server
    calls: Calls = field(default_factory=Calls)
    trust: Trust = field(default_factory=Trust)
    clock: Callable[[], float] = time.monotonic

    def left(self, until: float) -> float:
        """Return the seconds until a deadline, never none."""
        return max(_LEAST_S, until - self.clock())

    @contextlib.contextmanager
    def open(self, until: float) -> Iterator["OpenAI"]:
        """Give a client for one call. At the deadline, and when the build ends, its connections are cut.

        Raises:
            TransportError: whatever the library raised meanwhile.
            ProviderError: the build has ended.

        """
        import httpx2  # noqa: PLC0415 - heavy
        import openai  # noqa: PLC0415 - heavy

        with self.calls.under_way(self.left(until)) as sockets:
            try:
                with new_client(self.server, self.left(until), sockets, self.trust) as client:
                    yield client
            except (TransportError, openai.OpenAIError, httpx2.HTTPError, *ODD) as error:
                raise (timed_out() if sockets.is_cut else fault_of(error, self.server.url)) from None


def new_client(server: Server, timeout_s: float, sockets: Sockets, trust: Trust) -> "OpenAI":
    """Return a client that knows nothing of the environment: the library would take six of its variables.

    It retries nothing (that would hide requests), follows no redirect (the prompt goes to the address that is in the
    fingerprint and nowhere else), and takes no proxy on the way to this machine itself.
    """
    import openai  # noqa: PLC0415 - heavy

    connections = openai.DefaultHttpxClient(
        follow_redirects=False,
        trust_env=not is_loopback(server.url),
        verify=trust.of(server.url),
        headers=UNCOMPRESSED,
        event_hooks={
            "request": [lambda request: request.extensions.update(trace=sockets.trace)],
            "response": [lambda reply: limit_reply(reply, server.url, sockets)],
        },
    )
    client = openai.OpenAI(
        api_key=server.key,
        admin_api_key="",
        organization="",
        project="",
        webhook_secret="",  # it is for what we do not use
        base_url=server.url,
        timeout=openai.Timeout(min(timeout_s + _LATER_S, _STALL_S), connect=_CONNECT_S),
        max_retries=0,
        http_client=connections,
    )
    client.organization = client.project = client.admin_api_key = None  # an empty text would be sent as a header
    client._custom_headers = {}  # noqa: SLF001 - those of OPENAI_CUSTOM_HEADERS, which no argument keeps out
    return client


# ---- what goes wrong ------------------------------------------------------------------------------


def strange_reply(what: str, url: str) -> TransportError:
    """Return the fault of a reply that is none of the interface."""
    message = f"{url} gave no answer of OpenAI's interface: {shown(what)}"
    return TransportError(no_answer_of_api(message), charged=True)


def fault_of(error: Exception, url: str) -> TransportError:
    """Return what an exception of the library means to whoever decides whether to ask again."""
    import httpx2  # noqa: PLC0415 - heavy
    import openai  # noqa: PLC0415 - heavy

    match error:
        case TransportError():
            return error
        case openai.APIStatusError():
            return _status_fault(error.status_code, error.body, error.response.headers, url)
        case openai.APIConnectionError() | httpx2.HTTPError():
            return unreachable(url, error.__cause__ or error)
        case openai.APIError():  # in the middle of a stream
            return server_failed(said(error.body), str(error.code or ""), str(error.type or ""))
        case ValueError() | RecursionError():  # what reading JSON may raise: also too deep, also a number too long
            return strange_reply("a line of it is no JSON", url)
        case _:
            return gave_up(error, "openai")


def server_failed(what: str, *marks: str) -> TransportError:
    """Return the fault of a request that was taken and failed; its marks (code, type) say if a later one may not."""
    transient = any(mark in _SERVERS_OWN or mark in _SERVERS_STATUS for mark in marks)
    hint = "build again; if it fails the same way, ask another model or change the prompt"
    diagnostic = Diagnostic(codes.FAILED, f"the provider failed: {what}", hint=hint)
    return TransportError(diagnostic, transient=transient, charged=True)


def said(body: object) -> str:
    """Return the server's own words in an error, short and on one line."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    found = error.get("message") if isinstance(error, Mapping) else error
    return shown(found) if isinstance(found, str) else ""


def _status_fault(status: int, body: object, headers: Mapping[str, str], url: str) -> TransportError:
    fault = refused(url, status, said(body), {name.lower(): value for name, value in headers.items()})
    if fault.transient and _is_without_credit(body):
        hint = "fill the account of the key, or name another provider"
        return TransportError(Diagnostic(codes.BAD_REQUEST, fault.diagnostic.message, hint=hint), status=status)
    return fault


def _is_without_credit(body: object) -> bool:
    """Say whether a 429 means an empty account: waiting does not fill it."""
    error = body.get("error", body) if isinstance(body, Mapping) else None
    return isinstance(error, Mapping) and not _NO_CREDIT.isdisjoint({str(error.get("code")), str(error.get("type"))})


# ---- what is sent and what comes back --------------------------------------------------------------


def read_reply(text: str, url: str) -> Mapping[str, Json]:
    """Return the JSON object of a reply.

    Raises:
        TransportError: it is something else, such as a web page.

    """
    try:
        value = parse(text, max_bytes=MAX_REPLY_BYTES)
    except StrictJsonError as error:
        raise strange_reply(str(error), url) from None
    if not isinstance(value, Mapping):
        what = "it is no JSON object"
        raise strange_reply(what, url)
    return value


def usage_of(usage: Json, sent: str, answered: str) -> Usage:
    """Return the tokens of a `usage` object, of which the two interfaces differ in the names of what went each way."""
    return Usage(
        input_tokens=count(usage, f"{sent}_tokens"),
        output_tokens=count(usage, f"{answered}_tokens"),
        cache_read_tokens=count(usage, f"{sent}_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, f"{sent}_tokens_details", "cache_write_tokens"),
    )


def client_name() -> str:
    """Return the library and its version."""
    import openai  # noqa: PLC0415 - heavy

    return f"openai {openai.__version__}"
