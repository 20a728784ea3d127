"""Errors of one request: which are transient, which may be charged, what to do."""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ProviderError
from orch23.model.llm import Request, Usage
from orch23.model.parsing import json_at
from orch23.providers.rate_limits import http_date, wait_in_text_s

_BUSY = frozenset({408, 409})
_KEY = frozenset({401, 403})
_RATE_LIMIT = 429
# The server refused the request for its rate or load before any work: it can be sent again, as often as needed.
_REFUSED = frozenset({_RATE_LIMIT, 503, 529})
_PAYMENT = 402
# Codes and types of errors that mean an empty account, or a limit of spending. OpenAI sends them with 429.
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"})
# Anthropic sends this with 400 or 403, and the type of any invalid request.
_NO_CREDIT_TEXT = "credit balance is too low"
# OpenAI sends this with 429 for a request that alone exceeds the tokens of a minute: waiting does not help.
_TOO_LARGE_TEXT = "request too large"
# The server failed, or a proxy lost it: a model may have worked on the request.
_AT_WORK = frozenset({500, 502, 504})

CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_SHOWN = 300
# The reason why a server refuses a schema ends with the place in it.
_SHOWN_OF_SCHEMA = 2_000
_OF_SCHEMA = re.compile("schema|grammar", re.IGNORECASE)
# A server that requires a longer wait means never.
_YEAR_S = 365 * 86_400.0
# What a vendor's library raises, beyond its documented errors, if a reply does not match the API.
UNEXPECTED_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_CONNECTING = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError"})
_REDACT: ContextVar[Callable[[str], str] | None] = ContextVar("redact", default=None)

_REJECTED_KEY, _BAD_REQUEST, _RATE_LIMITED, _OVERLOADED, _INVALID_REPLY = "E414", "E415", "E416", "E417", "E421"
_HINTS: Mapping[str, str] = {
    _RATE_LIMITED: "build again later, or with fewer --jobs: recorded responses are reused",
    _OVERLOADED: "build again later: recorded responses are reused",
    "E427": "add credit to the account of the key, raise its spending limit, or use another provider",
    _REJECTED_KEY: "check the key of the provider, and the permissions of its owner",
    _BAD_REQUEST: "change what the message names",
    _INVALID_REPLY: "check `llm.base_url`",
}
_CONTEXT_HINT = "give the stage fewer or shorter inputs, or start the server with a larger context"
_SCHEMA_HINT = "change the schema, or write `structured_output: false`: it is not sent then, only checked"
_TOO_LARGE_HINT = "give the stage fewer or shorter inputs, lower `llm.max_tokens`, or use another model"


class TransportError(Exception):
    """One request without a usable response.

    `transient`: the same request may succeed later. `retry_after_s`: the wait that the server requires. `charged`: the
    server may have worked on the request and may bill it, as for a stream that was cut, not for a 429. `usage` is the
    token count, if the server reported one; without `is_final`, more may be charged.
    """

    def __init__(
        self,
        diagnostic: Diagnostic,
        *,
        transient: bool = False,
        charged: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Make the error of one request."""
        super().__init__(diagnostic.message)
        self.diagnostic, self.status = diagnostic, status
        self.transient, self.retry_after_s = transient, retry_after_s
        # A charged call without a usage counts in full against the limits, since its cost is unknown (ADR 8).
        self.charged, self.usage, self.is_final = charged, usage, True

    def knowing(self, usage: Usage) -> "TransportError":
        """Add what the server had counted when a response was cut, unless it reported all."""
        if self.charged and self.usage is None and usage.total:
            self.usage, self.is_final = usage, False
        return self

    @property
    def is_refusal(self) -> bool:
        """Whether the server refused the request for its rate or load, so that waiting is all it takes."""
        return self.transient and not self.charged and self.status in _REFUSED


class DamagedTextError(TransportError):
    """A response with bytes that are not UTF-8. It is paid for, and a second one may have them too."""

    def __init__(self, url: str) -> None:
        """Make the error of a response of a server."""
        message = f"the response of {url} has bytes that are not UTF-8"
        super().__init__(invalid_reply_diagnostic(message), charged=True)


class NotCollectedError(Exception):
    """A response that an interrupted run submitted cannot be collected: the request has to be sent again.

    `usage` is its token count, if the server reported one; otherwise it may have been charged in full.
    """

    def __init__(self, usage: Usage | None) -> None:
        """Make the error of one submitted response."""
        super().__init__()
        self.usage = usage


def status_error(
    who: str,
    status: int,
    said: str,
    headers: Mapping[str, str] | None = None,
    *,
    charged: bool = False,
    marks: Iterable[str] = (),
    error: Json = None,
) -> TransportError:
    """Return the error of a reply with an error status.

    408, 409, 429 and 5xx are transient, unless the server sends `x-should-retry: false`. Of these 500, 502 and 504 may
    be charged; 503 and 529 reject requests before any work. An empty account is not transient, whatever the status,
    nor is a request that alone exceeds the limit of tokens.
    `headers` have names in lower case; `said` is the server's text, or empty; `marks` are code and type of its error,
    `error` is the object with these, if it has more fields.
    """
    given = headers or {}
    is_too_large = status == _RATE_LIMIT and said.strip().lower().startswith(_TOO_LARGE_TEXT)
    code = "E427" if is_without_credit(status, said, marks) else _code_of(status)
    code = _BAD_REQUEST if is_too_large else code
    transient = code in {_RATE_LIMITED, _OVERLOADED} and given.get("x-should-retry", "") != "false"
    wait_s = retry_after_s(given)
    if wait_s is None and code == _RATE_LIMITED:
        wait_s = wait_in_text_s(said)
    hint, most = (_TOO_LARGE_HINT if is_too_large else _HINTS[code]), _SHOWN
    if over := _over_context(error):
        said, hint = over, _CONTEXT_HINT
    elif code == _BAD_REQUEST and _OF_SCHEMA.search(said):
        hint, most = _SCHEMA_HINT, _SHOWN_OF_SCHEMA
    message = f"{who} replied {status}" + (f": {printable_line(said, most)}" if said.strip() else "")
    return TransportError(
        Diagnostic(code, message, hint=hint),
        transient=transient,
        charged=charged or status in _AT_WORK,
        status=status,
        retry_after_s=wait_s if transient else None,
    )


def _over_context(error: Json) -> str:
    """Return what llama.cpp says of a prompt that is larger than its context; empty for another error."""
    prompt, context = json_at(error, "n_prompt_tokens"), json_at(error, "n_ctx")
    if json_at(error, "type") == "exceed_context_size_error" and isinstance(prompt, int) and isinstance(context, int):
        return f"the prompt has {prompt:,} tokens, and the context of the server only {context:,}"
    return ""


def with_key_variable(fault: TransportError, variable: str, *, has_key: bool) -> TransportError:
    """Return a fault with the variable of the key in its hint, if the server refused the key or the lack of one."""
    if fault.diagnostic.code != _REJECTED_KEY:
        return fault
    hint = f"check the key in {variable}, and the permissions of its owner"
    if not has_key:
        hint = f"the request had no key, since {variable} is not set: set it to a key of this server"
    fault.diagnostic = replace(fault.diagnostic, hint=hint)
    return fault


def is_without_credit(status: int | None, said: str, marks: Iterable[str]) -> bool:
    """Return whether an error means an empty account, or a limit of spending: then waiting does not help."""
    return status == _PAYMENT or not _NO_CREDIT.isdisjoint(marks) or _NO_CREDIT_TEXT in said.lower()


def unreachable_error(url: str, why: BaseException) -> TransportError:
    """Return the error of a request without a reply; it is charged unless there was no connection to send it.

    `limit_reply` raises a TransportError while the library reads, and the library wraps it. Such an error is returned
    unchanged.
    """
    if isinstance(why, TransportError):
        return why
    said = printable_line(str(why)) or "no reason given"
    message = f"{url} cannot be reached: {said} ({type(why).__name__})"
    hint = "check the network and `llm.base_url`, then build again"
    # A broken connection may have been broken after the server started to work: count the call in full (ADR 8).
    charged = type(why).__name__ not in _CONNECTING
    return TransportError(Diagnostic("E419", message, hint=hint), transient=True, charged=charged)


def context_exceeded_error(request: Request, input_tokens: int, context: int) -> TransportError:
    """Return the error of a request that the vendor would refuse: it was counted and not sent."""
    limit = request.params.get("max_tokens")
    message = (
        f"the prompt has {input_tokens:,} tokens, and with `max_tokens: {limit}` that is more than the context of "
        f"{request.model}, {context:,}"
    )
    hint = "give the stage fewer or shorter inputs, a lower `max_tokens`, or another model"
    return TransportError(Diagnostic(_BAD_REQUEST, message, hint=hint))


def library_error(error: Exception, library: str) -> TransportError:
    """Return the error of a library that raised an undocumented exception; the request may have arrived."""
    message = f"the library `{library}` failed: {type(error).__name__}: {printable_line(str(error))}"
    hint = "read its message; another version of the library may work"
    return TransportError(Diagnostic("E401", message, hint=hint), charged=True)


def incomplete_error(url: str, why: str) -> TransportError:
    """Return the error of an incomplete response. The server worked on it, so it is charged."""
    message = f"the response of {url} is incomplete: {printable_line(why)}"
    diagnostic = Diagnostic("E420", message, hint="build again: an incomplete response is never used")
    return TransportError(diagnostic, transient=True, charged=True)


def too_long_error(url: str, what: str) -> TransportError:
    """Return the error of a reply over a limit. It is not transient: a second one would be as long."""
    message = f"the reply of {url} is too long: {what}"
    hint = "check `llm.base_url`; if it is a model's server, lower `llm.max_tokens`"
    return TransportError(Diagnostic("E408", message, hint=hint), charged=True)


def build_ended_error() -> ProviderError:
    """Return the error of a call that the end of the build ends."""
    return ProviderError(Diagnostic("E401", "the build ended before the response", hint="build again to continue"))


def timeout_error() -> TransportError:
    """Return the error of a call without a complete response at its deadline. No time is left for a retry."""
    message = "there was no complete response within `llm.timeout`"
    return TransportError(Diagnostic("E402", message, hint="raise `llm.timeout`"), charged=True)


def unknown_stop_error(reason: str, usage: Usage | None = None) -> TransportError:
    """Return the error of a response with an unknown stop reason, and with its usage if the server reported it."""
    message = f"the response has an unknown stop reason: {printable_line(reason)}"
    hint = "use another model, or shorten the prompt if the context is full; a newer orch23 may know the reason"
    return TransportError(Diagnostic("E422", message, hint=hint), charged=True, usage=usage)


def invalid_reply_diagnostic(message: str) -> Diagnostic:
    """Return the diagnostic of a reply that does not match the interface: another server may have sent it."""
    return Diagnostic(_INVALID_REPLY, message, hint=_HINTS[_INVALID_REPLY])


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that the server requires to wait; None if it does not, or the value is not valid.

    `retry-after` is a number of seconds or an HTTP date; `retry-after-ms`, if present, is more exact.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return min(max(0.0, seconds), _YEAR_S)
    date = http_date(headers.get("retry-after", ""))
    return None if date is None else min(max(0.0, (date - (now or datetime.now(UTC))).total_seconds()), _YEAR_S)


@contextlib.contextmanager
def redacted_messages(redact: Callable[[str], str]) -> Iterator[None]:
    """Redact secrets in all texts of servers and programs during a call in this thread."""
    token = _REDACT.set(redact)
    try:
        yield
    finally:
        _REDACT.reset(token)


def redacted(text: str) -> str:
    """Return a text from outside without secrets. Redact before shortening: a part of a secret is not recognized."""
    redact = _REDACT.get()
    return text if redact is None else redact(text)


def printable_line(text: str, most: int = _SHOWN) -> str:
    """Return a server's text for a message: without secrets, on one line, printable, limited."""
    line = "".join(c if c.isprintable() else " " for c in redacted(text)[: 4 * most])
    short = " ".join(line.split())
    return short if len(short) <= most else f"{short[:most]}..."


def _code_of(status: int) -> str:
    if status in _KEY:
        return _REJECTED_KEY
    if status == _RATE_LIMIT:
        return _RATE_LIMITED
    if status in _BUSY or status >= _SERVER_ERRORS:
        return _OVERLOADED
    return _BAD_REQUEST if status >= CLIENT_ERRORS else _INVALID_REPLY
