"""Requests on their way into a batch: which of them go together, the waits of a batch; the result of a request."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.features.batches.pending import BatchServer, PendingBatch, PendingCall
from orch23.model.batches import Batches, BatchResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, Response
from orch23.providers.faults import TransportError
from orch23.providers.rate_limiter import RateLimiter
from orch23.providers.retries import RateWait
from orch23.steps.llm.spec import LLMStep


class GivenResult(Struct, frozen=True):
    """A provider that has its only response already."""

    result: BatchResult

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response.

        Raises:
            TransportError: there is none.
        """
        del request, deadline_s
        result = self.result
        if result.response is not None:
            on_text(result.response.text)
            return result.response
        message = f"the request was {result.outcome} in its batch"
        hint = "nothing was charged; build again to send it again"
        error = result.error or Diagnostic("E401", message, hint=hint)
        raise TransportError(error, charged=result.outcome == "succeeded", usage=result.usage)


def read_result(fingerprint: str, read: Callable[[], Response]) -> BatchResult:
    """Return the result of a request that succeeded. `read` reads its response, which may not be usable."""
    try:
        response = replace(read(), pace="batch")
    except TransportError as fault:
        return BatchResult(fingerprint=fingerprint, outcome="succeeded", error=fault.diagnostic, usage=fault.usage)
    return BatchResult(fingerprint=fingerprint, outcome="succeeded", response=response)


_MOST_REQUESTS = 10_000
_MOST_BYTES = 100_000_000
_MOST_RESULT_BYTES = 200_000_000
_BYTES_OF_TOKEN = 8


class BatchLimiter(RateLimiter):
    """The rate limits of submitting batches. Vendors count these apart from those of ordinary requests (`rates`)."""


class QueuedCall(Struct, frozen=True):
    """A request that is not submitted yet."""

    step: LLMStep
    call: PendingCall
    request: Request


class BatchSubmission(Struct, kw_only=True):
    """A batch that is being submitted. `sent` counts the requests for it, `faults` the errors that may pass."""

    batch: PendingBatch
    queued: Mapping[str, QueuedCall]
    batches: Batches
    wait: RateWait
    sent: int = 0
    faults: int = 0

    @property
    def requests(self) -> dict[str, Request]:
        """The requests by fingerprint."""
        return {name: one.request for name, one in self.queued.items()}


def server_of(step: LLMStep) -> BatchServer:
    """Return the server of a step."""
    return BatchServer(provider=step.provider, base_url=step.base_url, endpoint_alias=step.endpoint_alias, api=step.api)


def grouped(queued: Mapping[str, QueuedCall]) -> list[list[dict[str, QueuedCall]]]:
    """Return the requests of each batch, and the batches of each server and model: none is too large."""
    groups: dict[tuple[BatchServer, str], dict[str, QueuedCall]] = {}
    # In the order of stages, whichever thread was first.
    for fingerprint, one in sorted(queued.items(), key=lambda pair: (pair[1].call.stage, pair[0])):
        groups.setdefault((server_of(one.step), one.call.stored.model), {})[fingerprint] = one
    return [list(_parts(group)) for group in groups.values()]


def _parts(group: Mapping[str, QueuedCall]) -> Iterator[dict[str, QueuedCall]]:
    part: dict[str, QueuedCall] = {}
    size = results = 0
    for fingerprint, one in group.items():
        sent, received = _sizes(one.request)
        size, results = size + sent, results + received
        if part and (len(part) == _MOST_REQUESTS or size > _MOST_BYTES or results > _MOST_RESULT_BYTES):
            yield part
            part, size, results = {}, sent, received
        part[fingerprint] = one
    yield part


def _sizes(request: Request) -> tuple[int, int]:
    """Return the bytes of a request, and the most that its result has. Media are sent as base64."""
    media = sum(len(one.data) * 4 // 3 for one in request.media)
    limit = request.params.get("max_tokens")
    tokens = limit if isinstance(limit, int) else 0
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in request.texts) + media, tokens * _BYTES_OF_TOKEN
