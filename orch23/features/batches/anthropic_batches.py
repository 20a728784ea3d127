"""Anthropic's Message Batches: submit, list, poll, read results, cancel."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from orch23.features.batches.submission import read_result
from orch23.features.vendors.anthropic_messages import AnthropicMessages, message_arguments, read_message
from orch23.model.batches import BatchResult, VendorBatch
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request
from orch23.model.server_url import url_origin
from orch23.providers.extra_fields import extra_fields
from orch23.providers.faults import TransportError, invalid_reply_diagnostic, printable_line

CALL_S = 120.0
_GONE = 404
_PAGE = 100
_MOST_PAGES = 20


class AnthropicBatches(Struct, frozen=True, kw_only=True):
    """The batches at the server of a provider. The vendor keeps no label of a batch."""

    provider: AnthropicMessages

    def submit(self, label: str, requests: Mapping[str, Request]) -> str:
        """Submit requests; their fingerprints are the ids that the results have."""
        del label
        bodies = {name: (one, message_arguments(one)) for name, one in requests.items()}
        sent: Any = [
            {"custom_id": name, "params": {**body, **extra_fields(one, body)}} for name, (one, body) in bodies.items()
        ]
        with self.provider.opened(CALL_S) as (client, timeout):
            return str(client.messages.batches.create(requests=sent, timeout=timeout).id)

    def created_since(self, created_s: float) -> Sequence[VendorBatch]:
        """Return the batches that were created since a Unix time, newest first."""
        found: list[VendorBatch] = []
        with self.provider.opened(CALL_S) as (client, timeout):
            page = client.messages.batches.list(limit=_PAGE, timeout=timeout)
            for _ in range(_MOST_PAGES):
                found += [_batch(one) for one in page.data]
                if not page.data or found[-1].created_s < created_s or not page.has_next_page():
                    break
                page = page.get_next_page()
        return [one for one in found if one.created_s >= created_s]

    def batch(self, batch_id: str) -> VendorBatch:
        """Return the state of a batch."""
        with self.provider.opened(CALL_S) as (client, timeout):
            return _batch(client.messages.batches.retrieve(batch_id, timeout=timeout))

    def results(self, batch_id: str, requests: Mapping[str, Request]) -> Iterator[BatchResult]:
        """Yield the results of a batch that has ended, for these requests; others are skipped."""
        with self.provider.opened(CALL_S) as (client, timeout):
            place = client.messages.batches.retrieve(batch_id, timeout=timeout).results_url
            if place is None:
                message = f"{batch_id} has no results, or not any more: the vendor keeps them for 29 days"
                raise TransportError(invalid_reply_diagnostic(message), status=_GONE)
            # The library sends the key to the address that the reply names.
            if url_origin(place) != url_origin(self.provider.url):
                message = f"the results of {batch_id} are at {printable_line(str(place))}, not at {self.provider.url}"
                raise TransportError(invalid_reply_diagnostic(message))
            for one in client.messages.batches.results(batch_id, timeout=timeout):
                request = requests.get(one.custom_id)
                if request is not None:
                    yield self._result(one.custom_id, one.result, request)

    def cancel(self, batch_id: str) -> None:
        """Ask the vendor to stop a batch; one that has ended, or is being stopped, stays as it is."""
        try:
            with self.provider.opened(CALL_S) as (client, timeout):
                client.messages.batches.cancel(batch_id, timeout=timeout)
        except TransportError as fault:
            with self.provider.opened(CALL_S) as (client, timeout):
                status = client.messages.batches.retrieve(batch_id, timeout=timeout).processing_status
            if status == "in_progress":
                raise fault from None

    def _result(self, fingerprint: str, result: Any, request: Request) -> BatchResult:
        match result.type:
            case "succeeded":
                return read_result(fingerprint, lambda: read_message(result.message, self.provider.url, request, 0.0))
            case "errored":
                return BatchResult(fingerprint=fingerprint, outcome="errored", error=_error(result.error.error))
            case "expired" | "canceled":
                return BatchResult(fingerprint=fingerprint, outcome=result.type)
            case other:
                message = f"a result of a batch is of the unknown type {printable_line(str(other))}"
                raise TransportError(invalid_reply_diagnostic(message), charged=True)


def _batch(found: Any) -> VendorBatch:
    counts = found.request_counts
    return VendorBatch(
        id=str(found.id),
        has_ended=found.processing_status == "ended",
        created_s=found.created_at.timestamp(),
        requests=counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired,
    )


def _error(error: Any) -> Diagnostic:
    said = printable_line(str(error.message))
    if error.type == "invalid_request_error":
        return Diagnostic("E415", f"the batch refused the request: {said}", hint="change what it names")
    hint = "nothing was charged; build again to send the request again"
    return Diagnostic("E401", f"the request failed in its batch: {error.type}: {said}", hint=hint)
