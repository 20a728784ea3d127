"""Answer from the transcripts where they may, and record what a provider answers before anyone judges it."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ProviderError
from orch23.model.llm import Exchange, ExchangeOutcome, Provider, Request, Response
from orch23.providers import codes

Mode: TypeAlias = Literal["cached", "record", "replay"]


class Transcripts(Protocol):
    """The port to recorded exchanges. `transcripts` names the committed folder that is looked at first, if any."""

    def get(self, fingerprint: str, transcripts: str | None, /) -> Exchange | None:
        """Return the exchange of a request."""

    def put(self, exchange: Exchange, transcripts: str | None, /) -> None:
        """Keep an exchange durably, in place of an earlier one of the same request."""

    def nearest(self, stage: str, parts: Mapping[str, Json], transcripts: str | None, /) -> tuple[Exchange, str] | None:
        """Return the exchange of a stage that is most like these parts, and the first part in which it differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A provider with a memory: one stage's view of the transcripts.

    `mode` is that of the step, or of the whole build. `cached` takes every answer that is recorded, whatever became of
    it: so an unchanged failed build costs nothing and fails the same way. `record` asks always, for a further sample;
    `replay` never asks. `reusable` are the fingerprints of an interrupted run, whose answers `record` takes as its own.
    """

    inner: Provider
    store: Transcripts
    stage: str
    mode: Mode = "cached"
    transcripts: str | None = None
    reusable: Container[str] = frozenset()

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Return the recorded answer, or the provider's, which is on disk before this returns.

        Raises:
            ProviderError: the provider failed, or the mode is `replay` and there is no recording.

        """
        known = self.known(request)
        if known is not None:
            return _replayed(known)
        if self.mode == "replay":
            raise ProviderError(self._unrecorded(request))
        response = self.inner.complete(request, deadline_s, on_progress)
        self.store.put(_exchange(request.fingerprint(), self.stage, request, response), self.transcripts)
        return response

    def known(self, request: Request) -> Exchange | None:
        """Return the recorded exchange that answers a request, None where the provider would be asked."""
        found = self.store.get(request.fingerprint(), self.transcripts)
        if found is None or found.superseded:
            return None
        return None if self.mode == "record" and found.fingerprint not in self.reusable else found

    def pass_over(self, request: Request) -> bool:
        """Say whether a further sample of a request is wanted; in `record` that supersedes the recorded answer."""
        found = self.store.get(request.fingerprint(), self.transcripts)
        if found is None:
            return False
        if self.mode == "record" and not found.superseded and found.fingerprint not in self.reusable:
            found = replace(found, superseded=True)
            self.store.put(found, self.transcripts)
        return found.superseded

    def settle(self, fingerprint: str, outcome: ExchangeOutcome, diagnostics: tuple[str, ...]) -> None:
        """Write what became of an answer; in `replay` it keeps the outcome that it has: replaying changes no file."""
        known = self.store.get(fingerprint, self.transcripts)
        if known is None or (known.outcome != "pending" and self.mode == "replay"):
            return
        settled = replace(known, outcome=outcome, diagnostics=diagnostics)
        if settled != known:
            self.store.put(settled, self.transcripts)

    def _unrecorded(self, request: Request) -> Diagnostic:
        found = self.store.nearest(self.stage, request.parts(), self.transcripts)
        if found is None:
            message = "no answer is recorded for this stage"
        else:
            exchange, part = found
            nearest = exchange.fingerprint[:12]
            message = f"no answer is recorded for this request; the nearest ({nearest}) differs in {part}"
        hint = "build without --replay to ask the model, or undo the change"
        return Diagnostic(codes.UNRECORDED, message, subject=self.stage, hint=hint)


def _replayed(known: Exchange) -> Response:
    return Response(
        text=known.response,
        stop=known.stop,
        usage=known.usage,
        duration_s=known.duration_s,
        provenance=known.provenance,
        replayed=True,
        model=known.model,
        client=known.client,
        requests=known.requests,
        cost=known.cost,
        prices=known.prices,
    )


def _exchange(fingerprint: str, stage: str, request: Request, response: Response) -> Exchange:
    sent: list[Json] = [{"role": m.role, "content": m.content} for m in request.messages]
    return Exchange(
        fingerprint=fingerprint,
        stage=stage,
        request={**request.parts(), "sent": sent},
        response=response.text,
        stop=response.stop,
        usage=response.usage,
        outcome="pending",
        duration_s=response.duration_s,
        provenance=response.provenance,
        model=response.model,
        client=response.client,
        requests=response.requests,
        cost=response.cost,
        prices=response.prices,
    )
