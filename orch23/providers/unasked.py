"""Stand in for a provider that may not be asked: what is not recorded is refused, with the nearest that is."""

from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

from msgspec import Struct

from orch23.decide.difference import difference
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ProviderError
from orch23.model.llm import Exchange, Request


class Nearest(Protocol):
    """The port to what is recorded, for a request that is not."""

    def nearest(self, stage: str, parts: Mapping[str, Json], transcripts: str | None, /) -> Exchange | None:
        """Return the exchange of a stage that is most like these parts, and is another."""


class Unasked(Struct, frozen=True, kw_only=True):
    """A provider that is never asked. `code` and `hint` say whose rule that is, and the ways forward."""

    store: Nearest
    stage: str
    transcripts: str | None
    code: str
    hint: str
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> NoReturn:
        """Refuse a request.

        Raises:
            ProviderError: always, with the first difference from the nearest recording.

        """
        del deadline_s, on_text
        near = self.store.nearest(self.stage, request.parts(), self.transcripts)
        if near is None:
            message = "no answer is recorded for this stage"
        else:
            how = difference(near.request, request.parts(), self.redact)
            message = f"no answer is recorded for this request; next to the nearest ({near.fingerprint[:12]}), {how}"
        raise ProviderError(Diagnostic(self.code, message, subject=self.stage, hint=self.hint))
