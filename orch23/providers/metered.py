"""Reserve the worst case of each request before it is sent, and say what became of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import TransportError


class Meter(Protocol):
    """The port to whoever counts: calls, tokens, money. A stage has one request under way at most."""

    def reserve(self, stage: str, request: Request, /) -> None:
        """Set the worst case of a request aside; wait while it does not fit and others are under way.

        Raises:
            LimitError: it does not fit, and nothing is under way that could make room.

        """

    def priced(self, request: Request, response: Response, /) -> Response:
        """Return an answer with what it cost."""

    def settle(self, stage: str, response: Response, /) -> None:
        """Count what an answer took instead of what was reserved; it is on disk by now."""

    def release(self, stage: str, /) -> None:
        """Give a reservation back: nothing was charged."""

    def forfeit(self, stage: str, /) -> None:
        """Count a reservation in full: it may have been charged, and nobody says how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A provider that reserves before it asks. Whoever records the answer settles it."""

    inner: Provider
    stage: str
    meter: Meter

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Answer a request that fits into the budget.

        Raises:
            LimitError: it does not fit; nothing was sent.

        """
        self.meter.reserve(self.stage, request)
        try:
            response = self.inner.complete(request, deadline_s, on_progress)
        except TransportError as fault:
            if fault.charged:
                self.meter.forfeit(self.stage)
            else:
                self.meter.release(self.stage)
            raise
        except BaseException:
            self.meter.forfeit(self.stage)
            raise
        return self.meter.priced(request, response)
