"""Reserve the worst case of each request before it is sent, and say what became of it."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from orch23.model.errors import ConfigurationError, LimitError, ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import TransportError


class Meter(Protocol):
    """The port to whoever counts: calls, tokens, money, time. A stage has one request under way at most."""

    def reserve(self, stage: str, request: Request, /) -> None:
        """Set the worst case of a request aside; wait while it does not fit and others are under way.

        Raises:
            LimitError: it does not fit, and nothing is under way that could make room.
            ConfigurationError: it has no price, and there is a limit of cost.

        """

    def deadline_s(self, stage: str, asked_s: float, /) -> float:
        """Return how long a request may take: as asked, or what is left of the stage's wall time if that is less.

        Raises:
            LimitError: nothing is left of it.

        """

    def priced(self, request: Request, response: Response, /) -> Response:
        """Return an answer with what it cost."""

    def settle(self, stage: str, response: Response, /) -> None:
        """Count what an answer took instead of what was reserved; it is on disk by now."""

    def release(self, stage: str, /) -> None:
        """Give a reservation back: nothing was charged."""

    def forfeit(self, stage: str, /) -> None:
        """Count a reservation in full: it may have been charged, nobody says how much. Nothing if there is none."""


class Metered(Struct, frozen=True, kw_only=True):
    """A provider that reserves before it asks. Whoever records the answer settles it."""

    inner: Provider
    stage: str
    meter: Meter

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request that fits into the budget.

        Raises:
            LimitError: it does not fit, and nothing was sent; or the stage's wall time ended while it was under way.

        """
        self.meter.reserve(self.stage, request)
        try:
            left_s = self.meter.deadline_s(self.stage, deadline_s)
        except LimitError:
            self.meter.release(self.stage)
            raise
        try:
            return self.meter.priced(request, self.inner.complete(request, left_s, on_text))
        except (TransportError, ProviderError) as fault:
            if isinstance(fault, TransportError) and not fault.charged:
                self.meter.release(self.stage)
            else:
                self.meter.forfeit(self.stage)
            self.meter.deadline_s(self.stage, deadline_s)  # if no time is left, that is why it failed
            raise
        except ConfigurationError:
            self.meter.release(self.stage)  # no key, no library: nothing was sent
            raise
        except BaseException:
            self.meter.forfeit(self.stage)
            raise
