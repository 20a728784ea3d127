"""What limits the rate of requests: what replies state, token buckets, and an adaptive pace for unknown limits."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct, field

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


# Rounding must not let a request wait for a part of a token that was already given.
_ALMOST = 1e-9


class TokenBucket(Struct):
    """A token bucket: `size` tokens at once, and `per_s` more each second. Times are in seconds of one clock.

    The level may be negative, if a request took more than was expected.
    """

    label: str
    size: float
    per_s: float
    level: float
    at: float

    def delay(self, tokens: float, now: float) -> float:
        """Return the seconds until so many tokens are there. More than its size needs a full bucket."""
        self._fill(now)
        missing = min(tokens, self.size) - self.level
        return 0.0 if missing <= _ALMOST else missing / self.per_s

    def take(self, tokens: float, now: float) -> None:
        """Take tokens; a negative number gives some back."""
        self._fill(now)
        self.level = min(self.size, self.level - tokens)

    def _fill(self, now: float) -> None:
        self.level = min(self.size, self.level + max(0.0, now - self.at) * self.per_s)
        self.at = max(self.at, now)


# The first pause without `retry-after` is up to this long, or up to the time of some requests at the present rate.
_FIRST_PAUSE_S = 1.0
_INTERVALS = 4
_LONGEST_PAUSE_S = 60.0
# Later pauses are up to this part of the time since the first refusal, so a wait ends soon after the server is back.
_PART_OF_TROUBLE = 0.4
# After a pause that the server required and that did not help.
_FIRST_EXTRA_S = 0.5
_EXTRA_PART = 0.2
_MEASURED = 20
_SLOWEST_PER_S = 1 / 60
_SHORTEST_S = 0.001
# The rate after a refusal is this part of the measured one, and each accepted request adds this part of it.
_BELOW = 0.97
_GROWTH = 0.05
# Without `retry-after` the pause is a guess, and so is the rate: it must not stay too low for long.
_GROWTH_AFTER_GUESS = 0.125
# With so many requests on their way at once, they are not limited in number any more.
_WIDE = 64


class AdaptivePace(Struct):
    """The rate at which requests are sent while the limit is not known, adapted to refusals (AIMD).

    A refusal begins a pause for all requests: what the server requires, else random with an upper bound that grows.
    After it one request is sent, and each accepted one lets one more be on its way, so they do not come all at once.
    The rate becomes the one at which the server accepted requests since the last refusal, or half of that if it did
    not say how long to wait; each accepted request raises it by the same amount. `random` returns a number from 0 to 1.
    `resume_at` is the end of the pause, `required_until` the end of the last pause that the server required.
    """

    random: Callable[[], float]
    resume_at: float = -math.inf
    required_until: float = -math.inf
    rate: float | None = None
    window: float = math.inf
    epoch: int = 0
    _step: float = 0.0
    _next_at: float = -math.inf
    _began: float | None = None
    _accepted: list[float] = field(default_factory=list)
    _is_saturated: bool = True
    _trouble_at: float | None = None

    def delay(self, now: float, *, only_pause: bool = False) -> float:
        """Return the seconds until the pause is over and, unless `only_pause`, the rate allows a request."""
        is_paced = self.rate is not None and not only_pause
        return max(0.0, self.resume_at - now, self._next_at - now if is_paced else 0.0)

    def send(self, now: float, *, has_waited: bool) -> None:
        """Count a request that is sent now."""
        # Requests that no one delays show how many there are, and not how many the server would accept.
        self._is_saturated = self._is_saturated and has_waited
        if self.rate is not None:
            interval = 1 / self.rate
            # A thread that woke late does not lower the rate: up to one interval is made up.
            self._next_at = max(self._next_at, now - interval) + interval

    def accept(self, epoch: int, now: float) -> None:
        """Count a request that the server accepted. `epoch` is the one in which it was sent."""
        if epoch != self.epoch:
            return
        # Not from the first request on, which may load a library.
        self._began = now if self._began is None else self._began
        self._accepted = [*self._accepted[1 - _MEASURED :], now]
        self._trouble_at = None
        self.window = self.window + 1 if self.window < _WIDE else math.inf
        if self.rate is not None:
            self.rate += self._step

    def refuse(self, epoch: int, now: float, retry_after_s: float | None) -> None:
        """Begin a pause, unless the request was sent before the last pause: then one refusal was several replies."""
        if epoch != self.epoch:
            return
        self._slow_down(now, retry_after_s)
        is_repeated = self._trouble_at is not None
        self._trouble_at = now if self._trouble_at is None else self._trouble_at
        trouble_s = now - self._trouble_at
        if retry_after_s is None:
            # At a high rate the next request is possible soon.
            first_s = _FIRST_PAUSE_S if self.rate is None else min(_FIRST_PAUSE_S, _INTERVALS / self.rate)
            pause_s = min(self.random() * max(first_s, _PART_OF_TROUBLE * trouble_s), _LONGEST_PAUSE_S)
            self._began = self._began if is_repeated else now
        else:
            self.required_until = now + retry_after_s
            # A server that requires no wait, and refuses again, would be called in a loop.
            extra_s = self.random() * max(_FIRST_EXTRA_S, _EXTRA_PART * trouble_s) if is_repeated else 0.0
            pause_s = max(retry_after_s, extra_s)
            self._began = now + pause_s
        self.resume_at = self._next_at = now + pause_s
        self._accepted, self._is_saturated = [], True
        self.window = 1
        self.epoch += 1

    def _slow_down(self, now: float, retry_after_s: float | None) -> None:
        """Lower the rate to the measured one. Without an accepted request since the last refusal it stays.

        A server that says when it accepts the next request shows its rate exactly: these are as many intervals as it
        accepted requests since the pause. Otherwise the refused request came somewhere in the last interval.
        """
        count = len(self._accepted)
        if not count or self._began is None:
            return
        began = self._began if count < _MEASURED else self._accepted[0]
        if retry_after_s is None:
            measured = (count + 0.5) / max(now - began, _SHORTEST_S)
        else:
            measured = count / max(now + retry_after_s - began, _SHORTEST_S)
        lowered = measured * _BELOW
        if self.rate is not None:
            # Without demand the measured rate is too low.
            is_exact = retry_after_s is not None and self._is_saturated
            lowered = min(self.rate, lowered if is_exact else max(lowered, self.rate / 2))
        self.rate = max(lowered, _SLOWEST_PER_S)
        self._step = self.rate * (_GROWTH_AFTER_GUESS if retry_after_s is None else _GROWTH)


class TokenEstimate(Struct):
    """Expects how many tokens a request takes, from those before it.

    The first is expected to take as many tokens of input as text usually has, and all that it may take of output.
    """

    per_byte: float = 0.3
    output: float | None = None

    def of(self, sent_bytes: int, max_tokens: int | None) -> dict[str, float]:
        """Return the expected cost of a request, by the keys of `rates`."""
        sent = sent_bytes * self.per_byte
        received = float(max_tokens or 0) if self.output is None else self.output
        return {"requests": 1.0, "tokens": sent + received, "input_tokens": sent, "output_tokens": received}

    def learn(self, sent_bytes: int, input_tokens: int, output_tokens: int) -> None:
        """Use what a response took for the next requests."""
        self.per_byte += (input_tokens / max(sent_bytes, 1) - self.per_byte) * _WEIGHT
        known = float(output_tokens) if self.output is None else self.output
        self.output = known + (output_tokens - known) * _WEIGHT


_WEIGHT = 0.3
