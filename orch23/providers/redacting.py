"""Take secrets out of an answer, and out of a failure, before anyone records or judges it."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.faults import redacting


class Redacting(Struct, frozen=True):
    """A provider whose answers and complaints hold no secret of the caller's environment."""

    inner: Provider
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request.

        Raises:
            ProviderError: the provider failed; what it said of that, which may echo a header, is redacted too.

        """
        try:
            with redacting(self.redact):
                response = self.inner.complete(request, deadline_s, on_text)
        except ProviderError as error:
            raise ProviderError(*(self._plain(one) for one in error.diagnostics)) from None
        return replace(
            response,
            text=self.redact(response.text),
            provenance=self.redact(response.provenance),
            model=self.redact(response.model),
            client=self.redact(response.client),
        )

    def _plain(self, complaint: Diagnostic) -> Diagnostic:
        return replace(
            complaint,
            message=self.redact(complaint.message),
            hint=None if complaint.hint is None else self.redact(complaint.hint),
            subject=None if complaint.subject is None else self.redact(complaint.subject),
        )
