"""The result of a request of a batch, from a response, and as one."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.batches import BatchResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request, Response
from orch23.providers.faults import TransportError


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
