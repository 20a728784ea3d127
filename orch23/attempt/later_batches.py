"""The port to requests whose responses come later, in a batch."""

from collections.abc import Sequence
from typing import Protocol

from orch23.model.llm import Provider
from orch23.steps.llm.spec import LLMStep


class LaterBatches(Protocol):
    """The port to the requests of a run in batches, which are sent and collected by the feature `batches`."""

    @property
    def is_empty(self) -> bool:
        """Whether no request is in a batch, or has a result from one."""

    @property
    def has_unsent(self) -> bool:
        """Whether a request is not submitted yet."""

    def provider(self, step: LLMStep, stage: str, inner: Provider | None) -> Provider:
        """Return the provider of a stage. With `inner`, only requests that are in a batch already are."""

    def advance(self) -> frozenset[str]:
        """Submit what is queued, and collect what has ended; return the requests whose stages can go on."""

    def cancel(self, delays_s: Sequence[float]) -> bool:
        """Cancel the batches, and collect those that have ended; return whether some have not after these delays."""

    def report(self) -> None:
        """Report what the run waits for."""
