"""Talk to a stage's provider: the one place where the wrapping of providers is written.

From the outside in: an answer that was cut off is asked for again with more room; the transcripts answer where they
may, and record what a provider answers; secrets are taken out of it; faults of the transport are tried again; each
request reserves its worst case; the adapter asks.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace

from orch23.decide.secrets import Secrets
from orch23.model.digest import Json
from orch23.model.llm import ExchangeOutcome, Request, Response
from orch23.model.pipeline import LLMStep
from orch23.providers.adapter import Asking, Setting
from orch23.providers.metered import Meter, Metered
from orch23.providers.recorded import Mode, Recorded
from orch23.providers.redacting import Redacting
from orch23.providers.registry import make, on_truncated, request_parameters
from orch23.providers.transport import Transport
from orch23.resolve.resolution import Resolved
from orch23.store.exchanges import Exchanges


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, with the request that it answers: not the first one, if that was cut off and asked with more room."""

    request: Request
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """One attempt's provider, with its memory and its meter."""

    recorded: Recorded
    meter: Meter
    asking: Asking
    params: Mapping[str, Json]

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Answered:
        """Answer a request; one that was cut off is settled as such and asked again with more room.

        Raises:
            ProviderError: the provider failed, or there is no recording where one is needed.
            LimitError: a limit of the run or the stage is reached; nothing was sent.

        """
        more = on_truncated(self.asking.step)
        response = self._once(request, deadline_s, on_progress)
        for _ in range(more.retries):
            room = request.params.get("max_tokens")
            if response.stop != "max_tokens" or not isinstance(room, int):
                break
            self.settle(request.fingerprint(), "truncated", ())
            request = replace(request, params={**request.params, "max_tokens": room * more.factor})
            response = self._once(request, deadline_s, on_progress)
        return Answered(request, response)

    def is_recorded(self, request: Request) -> bool:
        """Say whether a request will be answered from the transcripts: then nothing leaves the machine."""
        return self.recorded.known(request) is not None

    def pass_over(self, request: Request) -> bool:
        """Say whether another sample is to be asked for in place of this request's recorded answer."""
        return self.recorded.pass_over(request)

    def settle(self, fingerprint: str, outcome: ExchangeOutcome, diagnostics: tuple[str, ...]) -> None:
        """Keep what became of an answer."""
        self.recorded.settle(fingerprint, outcome, diagnostics)

    def _once(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        response = self.recorded.complete(request, deadline_s, on_progress)
        if not response.replayed:
            self.meter.settle(self.asking.stage, response)
        return response


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Opens conversations. `replay` lets nobody be asked, `offline` nobody beyond this machine, whatever a stage says.

    `resample` are stages whose recorded answers are passed over, `reusable` the fingerprints of an interrupted run.
    """

    setting: Setting
    exchanges: Exchanges
    meter: Meter
    secrets: Secrets
    reusable: Container[str] = frozenset()
    replay: bool = False
    offline: bool = False
    resample: frozenset[str] = field(default_factory=frozenset)

    def open(self, resolved: Resolved, attempt: int) -> RecordedConversation:
        """Return the conversation of one attempt of an llm stage."""
        stage = resolved.stage
        step = stage.step
        if not isinstance(step, LLMStep):
            message = f"BUG: {stage.name} is no llm stage"
            raise TypeError(message)
        asking = Asking(step, stage.name, attempt)
        metered = Metered(inner=make(self.setting, asking), stage=stage.name, meter=self.meter)
        transport = Transport(inner=metered, stage=stage.name, notice=self.setting.notice)
        recorded = Recorded(
            inner=Redacting(transport, self.secrets.redact),
            store=self.exchanges,
            stage=stage.name,
            mode=self._mode(step, stage.name, stage.family),
            transcripts=step.transcripts,
            reusable=self.reusable,
        )
        params = request_parameters(self.setting, asking)
        return RecordedConversation(recorded=recorded, meter=self.meter, asking=asking, params=params)

    def _mode(self, step: LLMStep, *names: str) -> Mode:
        if self.replay:
            return "replay"
        return "record" if self.resample.intersection(names) else step.mode
