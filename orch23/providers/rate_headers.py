"""Read the rate limits that a server states in the headers of its replies, and the wait in the text of an error."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct

_ANTHROPIC = {name: name.replace("-", "_") for name in ("requests", "tokens", "input-tokens", "output-tokens")}
_OPENAI = ("requests", "tokens")
_PART = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# `Please try again in 1m2.5s.` of OpenAI and servers like it, and `Please retry after 26 seconds.` of Azure.
_WAIT = re.compile(
    r"\bplease (?:try again|retry) (?:in|after) "
    r"(?P<time>(?:[0-9]{1,9}d)?(?:[0-9]{1,9}h)?(?:[0-9]{1,9}m)?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?m?s)?|[0-9]{1,9} seconds?)"
    r"(?=[.,;!]?(?:\s|$))",
    re.IGNORECASE,
)
# A server that states more is not a rate limit that a build can wait for.
_LONGEST_S = 7 * 86_400.0
_MOST = 10**12


class StatedLimit(Struct, frozen=True):
    """What is left of a limit, and the seconds until all of it is available again; None if they are not stated."""

    limit: int
    remaining: int
    reset_s: float | None


OnReply: TypeAlias = Callable[[int, Mapping[str, str]], None]
"""Gets the status and the headers of a reply; their names are in lower case."""

_ON_REPLY: ContextVar[OnReply | None] = ContextVar("on_reply", default=None)


@contextlib.contextmanager
def replies_heard_by(listener: OnReply) -> Iterator[None]:
    """Pass the headers of all replies that this thread receives to a listener.

    The client libraries read a reply in the thread of its call, so no adapter has to pass the listener on.
    """
    token = _ON_REPLY.set(listener)
    try:
        yield
    finally:
        _ON_REPLY.reset(token)


def report_reply(status: int, headers: Mapping[str, str]) -> None:
    """Pass a reply to the listener of this thread, if there is one."""
    listener = _ON_REPLY.get()
    if listener is not None:
        listener(status, headers)


def stated_limits(headers: Mapping[str, str], now: datetime | None = None) -> dict[str, StatedLimit]:
    """Return the limits that headers state, by the keys of `rates`.

    These are `anthropic-ratelimit-KIND-limit`, `-remaining` and `-reset` (a date), and OpenAI's
    `x-ratelimit-limit-KIND`, `-remaining-` and `-reset-` (a duration such as `6m0s`), which most other servers send.
    Values that make no sense are ignored.
    """
    found: dict[str, StatedLimit] = {}
    for name, kind in _ANTHROPIC.items():
        if f"anthropic-ratelimit-{name}-limit" in headers:
            parts = [headers.get(f"anthropic-ratelimit-{name}-{part}", "") for part in ("limit", "remaining")]
            reset_s = _seconds_until(headers.get(f"anthropic-ratelimit-{name}-reset", ""), headers, now)
            _add(found, kind, parts, reset_s)
    for kind in _OPENAI:
        if f"x-ratelimit-limit-{kind}" in headers:
            parts = [headers.get(f"x-ratelimit-{part}-{kind}", "") for part in ("limit", "remaining")]
            _add(found, kind, parts, _duration_s(headers.get(f"x-ratelimit-reset-{kind}", "")))
    return found


def wait_in_text_s(text: str) -> float | None:
    """Return the seconds after which an error tells the client to try again; None without one clear statement."""
    found = {one["time"].lower().partition(" ")[0] for one in _WAIT.finditer(text)}
    return _duration_s(found.pop()) if len(found) == 1 else None


def _add(found: dict[str, StatedLimit], kind: str, parts: list[str], reset_s: float | None) -> None:
    limit, remaining = (
        int(one) if one.isascii() and one.isdigit() and len(one) <= len(str(_MOST)) else -1 for one in parts
    )
    # Some gateways state a remainder of -1, or above the limit.
    if limit >= 1 and 0 <= remaining <= limit:
        found[kind] = StatedLimit(limit, remaining, reset_s)


def _duration_s(text: str) -> float | None:
    """Return the seconds of `6m0s`, `20ms` or a number of seconds."""
    seconds = 0.0
    rest = text.strip()
    if not rest:
        return None
    if _PART.sub("", rest) == "":
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(rest))
    else:
        try:
            seconds = float(rest)
        except ValueError:
            return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST_S else None


def _seconds_until(text: str, headers: Mapping[str, str], now: datetime | None) -> float | None:
    try:
        date = datetime.fromisoformat(text)
        # The date of a reset belongs to the server's clock: the clock of this machine may differ.
        there = now or http_date(headers.get("date", "")) or datetime.now(UTC)
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - there).total_seconds()
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if seconds <= _LONGEST_S else None


def http_date(text: str) -> datetime | None:
    """Return the date of a header; None if it is none."""
    import email.utils  # noqa: PLC0415 - rarely needed

    try:
        date = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
