"""Talk to a stage's provider: the one place where the wrapping of providers is written.

From the outside in: an answer that was cut off is asked for again with more room; the transcripts answer where they
may, and record what a provider answers; secrets are taken out of it; faults of the transport are tried again; each
request reserves its worst case; the adapter asks. Where nobody may be asked, a refusal stands in for the last three.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.difference import difference
from orch23.decide.secrets import Secrets
from orch23.model.digest import Json
from orch23.model.llm import Exchange, ExchangeOutcome, Mode, OnTruncated, Provider, Request, Response
from orch23.providers.adapter import Asking, Setting
from orch23.providers.calls import Calls
from orch23.providers.codes import OFFLINE, UNRECORDED
from orch23.providers.metered import Meter, Metered
from orch23.providers.prepared import Prepared
from orch23.providers.recorded import Once, Recorded
from orch23.providers.redacting import Redacting
from orch23.providers.registry import is_remote, make, on_truncated, request_parameters
from orch23.providers.transport import Transport
from orch23.providers.unasked import Unasked
from orch23.resolve.resolution import Resolved
from orch23.steps.registry import is_llm
from orch23.store.exchanges import Exchanges

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep

_REPLAY_HINT = "build without --replay to ask the model, or undo the change"
_MODE_HINT = "the stage says `mode: replay`; `orch23 build --resample {stage}` asks the model, or undo the change"
_OFFLINE_HINT = "build without --offline to ask the model, undo the change, or name a provider on this machine"


class Listener(Protocol):
    """Who is told of each request before it goes out, and of each answer once it is recorded."""

    def asking(self, request: Request, /) -> None:
        """Hear of a request that is about to be answered, by whomever."""

    def wrote(self, text: str, /) -> None:
        """Hear of a piece of an answer, as it comes."""

    def answered(self, request: Request, response: Response, /) -> None:
        """Hear of an answer, which is on disk."""


class Answered(Struct, frozen=True):
    """An answer, with the request that it answers: not the first one, if that was cut off and asked with more room."""

    request: Request
    response: Response


class RecordedConversation(Struct, frozen=True, kw_only=True):
    """One attempt's provider, with its memory and its meter.

    `asked` are the fingerprints that this way through the attempts has used: a question that comes up again is another
    sample. `passed` are recorded answers that this attempt does not use, since others are asked for in their place.
    """

    recorded: Recorded
    meter: Meter
    asking: Asking
    params: Mapping[str, Json]
    asked: set[str] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)

    @property
    def mode(self) -> Mode:
        """Give what holds for recorded answers."""
        return self.recorded.mode

    def choose(self, request: Request) -> Request:
        """Return a request as the first sample that is not used yet, nor passed over."""
        while (fingerprint := request.fingerprint()) in self.asked or self.recorded.passes(request):
            if fingerprint not in self.asked:
                self.passed.append(fingerprint)
            request = replace(request, sample=request.sample + 1)
        self.asked.add(fingerprint)
        return request

    def complete(self, request: Request, deadline_s: float, listener: Listener) -> Answered:
        """Answer a chosen request; one that was cut off is settled as such and asked again with more room.

        Raises:
            ProviderError: the provider failed, or may not be asked and nothing is recorded.
            LimitError: a limit of the run or the stage is reached; nothing was sent.

        """
        more = on_truncated(self.asking.step)
        response = self._once(request, deadline_s, listener)
        for _ in range(more.retries):
            wider = roomier(request, response.stop, more)
            if wider is None:
                break
            self.settle(request.fingerprint(), "truncated", ())
            request = self.choose(wider)
            response = self._once(request, deadline_s, listener)
        return Answered(request, response)

    def is_recorded(self, request: Request) -> bool:
        """Say whether a chosen request will be answered from the transcripts: then nothing leaves the machine."""
        return self.recorded.known(request) is not None

    def settle(self, fingerprint: str, outcome: ExchangeOutcome, diagnostics: tuple[str, ...]) -> None:
        """Keep what became of an answer."""
        self.recorded.settle(fingerprint, outcome, diagnostics)

    def _once(self, request: Request, deadline_s: float, listener: Listener) -> Response:
        listener.asking(request)
        try:
            response = self.recorded.complete(request, deadline_s, listener.wrote)
            while self.passed:
                self.recorded.supersede(self.passed.pop())
        except BaseException:
            self.meter.forfeit(self.asking.stage)  # an answer that came and could not be kept: nobody settles it
            raise
        if not response.replayed:
            self.meter.settle(self.asking.stage, response)
        listener.answered(request, response)
        return response


def roomier(request: Request, stop: str, more: OnTruncated) -> Request | None:
    """Return a request whose answer was cut off as it is asked again, with more room; None where it was not cut off."""
    room = request.params.get("max_tokens")
    if stop != "max_tokens" or not isinstance(room, int):
        return None
    return replace(request, params={**request.params, "max_tokens": room * more.factor})


class Way(Struct, frozen=True, kw_only=True):
    """The recorded answers that the first attempt of a stage would come to, and the request that none is for."""

    found: tuple[Exchange, ...] = ()
    missing: Request | None = None


def walk(recorded: Recorded, step: "LLMStep", request: Request) -> Way:
    """Go the way of `complete` through what is recorded, asking nobody."""
    more = on_truncated(step)
    found: list[Exchange] = []
    for _ in range(more.retries + 1):
        while recorded.passes(request):
            request = replace(request, sample=request.sample + 1)
        known = recorded.known(request)
        if known is None:
            return Way(found=tuple(found), missing=request)
        found.append(known)
        wider = roomier(request, known.stop, more)
        if wider is None:
            break
        request = wider
    return Way(found=tuple(found))


class Conversations(Struct, frozen=True, kw_only=True):
    """Opens conversations. `replay` lets nobody be asked, `offline` nobody beyond this machine, whatever a stage says.

    `resample` are stages whose recorded answers are passed over; `once` knows those that are the run's own.
    """

    setting: Setting
    exchanges: Exchanges
    meter: Meter
    secrets: Secrets
    once: Once = field(default_factory=Once)
    replay: bool = False
    offline: bool = False
    resample: frozenset[str] = field(default_factory=frozenset)

    def open(self, resolved: Resolved, attempt: int, asked: set[str]) -> RecordedConversation:
        """Return the conversation of one attempt of an llm stage. `asked` is shared by the stage's attempts."""
        stage = resolved.stage
        step = stage.step
        if not is_llm(step):
            message = f"BUG: {stage.name} is no llm stage"
            raise TypeError(message)
        asking = Asking(step, stage.name, attempt)
        mode = self._mode(step, stage.name, stage.family)
        recorded = Recorded(
            inner=self._inner(asking, mode),
            store=self.exchanges,
            stage=stage.name,
            mode=mode,
            transcripts=step.transcripts,
            once=self.once,
        )
        params = request_parameters(self.setting, asking)
        return RecordedConversation(recorded=recorded, meter=self.meter, asking=asking, params=params, asked=asked)

    def compared(self, resolved: Resolved, request: Request) -> str:
        """Return how an unrecorded request of a stage differs from the nearest that is recorded, if any is."""
        stage, parts = resolved.stage, request.parts()
        place = stage.step.transcripts if is_llm(stage.step) else None
        near = self.exchanges.nearest(stage.name, parts, place)
        return difference(near.request, parts, self.secrets.redact) if near else ""

    def _inner(self, asking: Asking, mode: Mode) -> Provider:
        """Return who is asked for what is not recorded."""
        if mode == "replay":
            hint = _REPLAY_HINT if self.replay else _MODE_HINT.format(stage=asking.stage)
            return self._refusing(asking, UNRECORDED, hint)
        if self.offline and is_remote(asking.step):
            return self._refusing(asking, OFFLINE, _OFFLINE_HINT)
        metered = Metered(inner=make(self.setting, asking), stage=asking.stage, meter=self.meter)
        sleep = self.setting.share(Calls, Calls).wait
        transport = Transport(inner=metered, stage=asking.stage, notice=self.setting.notice, sleep=sleep)
        return Redacting(Prepared(transport, self.setting, asking), self.secrets.redact)

    def _refusing(self, asking: Asking, code: str, hint: str) -> Unasked:
        return Unasked(
            store=self.exchanges,
            stage=asking.stage,
            transcripts=asking.step.transcripts,
            code=code,
            hint=hint,
            redact=self.secrets.redact,
        )

    def _mode(self, step: "LLMStep", *names: str) -> Mode:
        if self.replay:
            return "replay"
        return "record" if self.resample.intersection(names) else step.mode
