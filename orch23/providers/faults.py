"""Errors of one request: which are transient, which may be charged, what to do."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime

from orch23.model.diagnostic import Diagnostic
from orch23.providers import codes

_BUSY = frozenset({408, 409})
_KEY = frozenset({401, 403})
_RATE_LIMIT = 429
_AT_WORK = frozenset({500, 502, 504})
"""The server broke down, or who stands before it has lost it: somebody may have worked on the request."""

_CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_SHOWN = 300
_YEAR_S = 365 * 86_400.0  # whoever says longer than that means never
UNEXPECTED_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a vendor's library raises, beyond what it says it would, where a server answers what none of its API would."""

_CONNECTING = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError"})
_REDACT: ContextVar[Callable[[str], str] | None] = ContextVar("redact", default=None)

_WAYS_OUT: Mapping[str, str] = {
    codes.RATE_LIMITED: "build again later, or with fewer --jobs: nothing that was answered is asked again",
    codes.OVERLOADED: "build again later: nothing that was answered is asked again",
    codes.REJECTED_KEY: "check the variable that holds the key, and what its owner may use",
    codes.BAD_REQUEST: "change what the message names",
    codes.INVALID_REPLY: "check `llm.base_url`",
}


class TransportError(Exception):
    """One request that brought no usable answer.

    `transient` says that the same request may succeed later, `retry_after_s` how long the server asks to wait,
    `charged` that the server may have worked on the request and so may bill it: a stream that was cut is, a 429 is not.
    """

    def __init__(
        self,
        diagnostic: Diagnostic,
        *,
        transient: bool = False,
        charged: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep the complaint and the facts."""
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.transient = transient
        self.charged = charged
        self.status = status
        self.retry_after_s = retry_after_s


def status_error(
    who: str,
    status: int,
    said: str,
    headers: Mapping[str, str] | None = None,
    *,
    charged: bool = False,
    now: datetime | None = None,
) -> TransportError:
    """Return the fault of a reply that is an error: what the status means, and whether to ask again.

    408, 409, 429 and 5xx are transient, unless the server says in `x-should-retry` that asking again is no use. Of
    these 500, 502 and 504 may have been charged; 503 and 529 turn requests away.
    `headers` have names in lower case; `said` is the server's own text, or nothing.
    """
    given = headers or {}
    code = _code_of(status)
    transient = code in {codes.RATE_LIMITED, codes.OVERLOADED} and given.get("x-should-retry", "") != "false"
    message = f"{who} answered {status}" + (f": {printable_line(said)}" if said.strip() else "")
    return TransportError(
        Diagnostic(code, message, hint=_WAYS_OUT[code]),
        transient=transient,
        charged=charged or status in _AT_WORK,
        status=status,
        retry_after_s=retry_after_s(given, now) if transient else None,
    )


def unreachable_error(url: str, why: BaseException) -> TransportError:
    """Return the fault of a request that got no reply; it is charged unless there was no connection to send it by.

    A library wraps in this way what `reply_limits` raises while it reads: that fault is returned as it is.
    """
    if isinstance(why, TransportError):
        return why
    said = printable_line(str(why)) or "no reason given"
    message = f"{url} cannot be reached: {said} ({type(why).__name__})"
    hint = "check the network and `llm.base_url`, then build again"
    charged = type(why).__name__ not in _CONNECTING
    return TransportError(Diagnostic(codes.UNREACHABLE, message, hint=hint), transient=True, charged=charged)


def library_error(error: Exception, library: str) -> TransportError:
    """Return the fault of a library that raised what none of its errors is; the request may have arrived."""
    message = f"the library `{library}` gave up: {type(error).__name__}: {printable_line(str(error))}"
    hint = "see what it says; another version of the library may do"
    return TransportError(Diagnostic(codes.PROVIDER_FAILED, message, hint=hint), charged=True)


def incomplete_error(url: str, why: str) -> TransportError:
    """Return the fault of an answer that is not whole. It was worked on, and so is charged."""
    message = f"the answer of {url} broke off: {printable_line(why)}"
    diagnostic = Diagnostic(codes.INCOMPLETE_RESPONSE, message, hint="build again: half an answer is never used")
    return TransportError(diagnostic, transient=True, charged=True)


def too_long_error(url: str, what: str) -> TransportError:
    """Return the fault of a reply that is over a limit. A model that is called again is likely to do the same."""
    message = f"the reply of {url} is too long: {what}"
    hint = "check `llm.base_url`; if a model answers there, lower `llm.max_tokens`"
    return TransportError(Diagnostic(codes.RESPONSE_TOO_LONG, message, hint=hint), charged=True)


def timeout_error() -> TransportError:
    """Return the fault of a call that had no whole answer at its deadline: no further try has any time."""
    message = "there was no complete answer within `llm.timeout`"
    return TransportError(Diagnostic(codes.TIMED_OUT, message, hint="raise `llm.timeout`"), charged=True)


def unknown_stop_error(reason: str) -> TransportError:
    """Return the fault of an answer that stopped for a reason that is not known."""
    message = f"the answer stopped for a reason that is not known: {printable_line(reason)}"
    hint = "ask another model, or shorten the prompt if its context is full; a newer orch23 may know the reason"
    return TransportError(Diagnostic(codes.UNKNOWN_STOP, message, hint=hint), charged=True)


def invalid_reply_diagnostic(message: str) -> Diagnostic:
    """Return the complaint of a reply that is none of the interface: whoever answered is somebody else."""
    return Diagnostic(codes.INVALID_REPLY, message, hint=_WAYS_OUT[codes.INVALID_REPLY])


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds the server asks to wait, None where it does not, or says something senseless.

    `retry-after` is a number of seconds or a date of HTTP; `retry-after-ms`, where there is one, is more exact.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return min(max(0.0, seconds), _YEAR_S)
    try:
        import email.utils  # noqa: PLC0415 - where a server asks for patience

        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max(0.0, (aware - (now or datetime.now(UTC))).total_seconds()), _YEAR_S)


@contextlib.contextmanager
def redacted_messages(redact: Callable[[str], str]) -> Iterator[None]:
    """Let `plain`, and so all that is shown of a server, be without secrets while a call of this thread is made."""
    token = _REDACT.set(redact)
    try:
        yield
    finally:
        _REDACT.reset(token)


def redacted(text: str) -> str:
    """Return a text from outside without secrets; this comes before any cut, which would hide a part of one."""
    redact = _REDACT.get()
    return text if redact is None else redact(text)


def printable_line(text: str) -> str:
    """Return a server's text as it may be printed: without secrets, on one line, escaped, bounded."""
    line = "".join(c if c.isprintable() else " " for c in redacted(text)[: 4 * _SHOWN])
    short = " ".join(line.split())
    return short if len(short) <= _SHOWN else f"{short[:_SHOWN]}..."


def _code_of(status: int) -> str:
    if status in _KEY:
        return codes.REJECTED_KEY
    if status == _RATE_LIMIT:
        return codes.RATE_LIMITED
    if status in _BUSY or status >= _SERVER_ERRORS:
        return codes.OVERLOADED
    return codes.BAD_REQUEST if status >= _CLIENT_ERRORS else codes.INVALID_REPLY
