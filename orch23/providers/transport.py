"""The transport policy of every provider: ask again where the same request may succeed, and never for long."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from orch23.model.errors import ProviderError
from orch23.model.event import Event
from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import TransportError


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """A provider that is asked again after a transient fault. Never an attempt of the stage."""

    inner: Provider
    stage: str
    notice: Callable[[Event], None]
    delays_s: tuple[float, ...] = (1.0, 4.0)
    longest_wait_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Answer a request.

        Raises:
            ProviderError: the last fault, or the first that asking again does not help.

        """
        try:
            return self.inner.complete(request, deadline_s, on_progress)
        except TransportError as fault:
            raise ProviderError(fault.diagnostic) from None
