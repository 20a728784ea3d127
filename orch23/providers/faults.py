"""What goes wrong between an adapter and its server, before anyone has decided whether to ask again."""

import email.utils
import math
from collections.abc import Mapping
from datetime import UTC, datetime

from orch23.model.diagnostic import Diagnostic
from orch23.providers import codes

_BUSY = frozenset({408, 409})
_KEY = frozenset({401, 403})
_RATE_LIMIT = 429
_CLIENT_ERRORS = 400
_SERVER_ERRORS = 500
_SHOWN = 300

_WAYS_OUT: Mapping[str, str] = {
    codes.RATE_LIMITED: "build again later, or with fewer --jobs: nothing that was answered is asked again",
    codes.OVERLOADED: "build again later: nothing that was answered is asked again",
    codes.REJECTED_KEY: "check the variable that holds the key, and what its owner may use",
    codes.BAD_REQUEST: "change what the message names",
    codes.NO_ANSWER_OF_API: "check `llm.base_url`",
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


def refused(
    who: str,
    status: int,
    said: str,
    headers: Mapping[str, str] | None = None,
    *,
    charged: bool = False,
    now: datetime | None = None,
) -> TransportError:
    """Return the fault of a reply that is an error: what the status means, and whether to ask again.

    408, 409, 429 and 5xx are transient, unless the server says in `x-should-retry` that asking again is no use.
    `headers` have names in lower case; `said` is the server's own text, or nothing.
    """
    given = headers or {}
    code = _code_of(status)
    transient = code in {codes.RATE_LIMITED, codes.OVERLOADED} and given.get("x-should-retry", "") != "false"
    message = f"{who} answered {status}" + (f": {shown(said)}" if said.strip() else "")
    return TransportError(
        Diagnostic(code, message, hint=_WAYS_OUT[code]),
        transient=transient,
        charged=charged,
        status=status,
        retry_after_s=retry_after_s(given, now) if transient else None,
    )


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
            return max(0.0, seconds)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - (now or datetime.now(UTC))).total_seconds())


def shown(text: str) -> str:
    """Return a server's text as it may be printed: on one line, escaped, bounded."""
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * _SHOWN])
    short = " ".join(line.split())
    return short if len(short) <= _SHOWN else f"{short[:_SHOWN]}..."


def _code_of(status: int) -> str:
    if status in _KEY:
        return codes.REJECTED_KEY
    if status == _RATE_LIMIT:
        return codes.RATE_LIMITED
    if status in _BUSY or status >= _SERVER_ERRORS:
        return codes.OVERLOADED
    return codes.BAD_REQUEST if status >= _CLIENT_ERRORS else codes.NO_ANSWER_OF_API
