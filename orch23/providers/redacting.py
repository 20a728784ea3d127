"""Take secrets out of an answer before anyone records or judges it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from orch23.model.llm import Provider, Request, Response


@dataclass(frozen=True, slots=True)
class Redacting:
    """A provider whose answers hold no secret of the caller's environment."""

    inner: Provider
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Answer a request."""
        response = self.inner.complete(request, deadline_s, on_progress)
        return replace(response, text=self.redact(response.text), provenance=self.redact(response.provenance))
