"""Hold each call of a provider to a gate that may refuse it."""

from collections.abc import Callable
from dataclasses import dataclass

from orch23.model.llm import Provider, Request, Response


@dataclass(frozen=True, slots=True)
class Limited:
    """A provider that asks `gate` before each call; the gate raises LimitError where a limit is reached."""

    inner: Provider
    gate: Callable[[Request], None]

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Answer, unless the gate refuses; then nothing is sent.

        Raises:
            LimitError: a stop condition of the run is reached.

        """
        self.gate(request)
        return self.inner.complete(request, deadline_s, on_progress)
