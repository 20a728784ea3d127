"""The port to the batches of a vendor: many requests, sent together, for half the price and within a day."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, Response, Usage


class VendorBatch(Struct, frozen=True, kw_only=True):
    """A batch at a vendor. `created_s` is Unix time; `label` was given to `submit`, empty if the vendor keeps none."""

    id: str
    has_ended: bool
    created_s: float
    requests: int
    label: str = ""


class BatchResult(Struct, frozen=True, kw_only=True):
    """The result of one request of a batch that has ended.

    `errored`: the vendor refused it, and `error` says why. It is not charged, and neither are `expired` and `canceled`
    ones. A response that cannot be used has an `error` too, and its `usage` if the vendor counted it: it is charged.
    """

    fingerprint: str
    outcome: Literal["succeeded", "errored", "expired", "canceled"]
    response: Response | None = None
    error: Diagnostic | None = None
    usage: Usage | None = None


class Batches(Protocol):
    """The batches of one server. All methods make calls, and raise these errors.

    Raises:
        ConfigurationError: there is no key, or no library.
        TransportError: the call failed. If `charged`, a batch may have been submitted all the same.
        ProviderError: the build has ended.
    """

    def submit(self, label: str, requests: Mapping[str, Request]) -> str:
        """Submit requests by fingerprint, and return the id of the batch. It may be called again after an error."""

    def created_since(self, created_s: float) -> Sequence[VendorBatch]:
        """Return the batches that were created since a Unix time, newest first."""

    def batch(self, batch_id: str) -> VendorBatch:
        """Return the state of a batch."""

    def results(self, batch_id: str, requests: Mapping[str, Request]) -> Iterator[BatchResult]:
        """Yield the results of a batch that has ended, for these requests; others are skipped."""

    def cancel(self, batch_id: str) -> None:
        """Ask the vendor to stop a batch. It ends later, and requests that are done keep their responses."""
