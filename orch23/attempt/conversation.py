"""Build the request of an attempt and get its response: from recordings or from the provider.

The layers, outermost first: request a truncated response again with more tokens; use a recorded response, or record a
new one; remove secrets from it; wait for the rate limit, and retry transport errors; let the first item of a foreach
write to the vendor's cache; reserve the maximum cost of each request; call the model through the adapter. With
`replay`, or `offline` for a remote model, an error replaces the last four.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.sent_data import guard_files, guard_request
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.event_data import RecordingMode
from orch23.model.llm import Exchange, OnTruncated, Provider, Request, Response
from orch23.model.parsing import StrictJsonError, json_at, parse_json
from orch23.model.pipeline import ForeachStage, Pipeline, RateLimits, Stage
from orch23.model.plan import Resample, resample_of
from orch23.model.record import program_of
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.prices import Prices
from orch23.providers.recordings import RecordingProvider, ReplayOnlyProvider, UniqueCalls
from orch23.providers.registry import (
    adapter_for,
    endpoint_of,
    grant_for,
    is_remote,
    max_output_tokens,
    readiness_errors,
    request_parameters,
    sent_schema_of,
    truncation_policy,
)
from orch23.resolve.prompt_inputs import AttemptContext, AuthorTexts
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm
from orch23.store.exchanges import Exchanges
from orch23.text.request_difference import describe_difference
from orch23.text.secrets import Secrets

if TYPE_CHECKING:
    from orch23.attempt.later_batches import LaterBatches
    from orch23.providers.middleware import CallMeter
    from orch23.providers.rate_limiter import RateLimiter
    from orch23.providers.retries import FallbackSetting
    from orch23.steps.llm.spec import LLMStep


class RequestBuilder(Struct, frozen=True):
    """Builds the requests of stages: renders the prompt, and checks it for secrets and files that are never sent.

    `systems` are the files of system texts that several stages of the pipeline use. `is_live`: responses are shown
    while they arrive.
    """

    secrets: Secrets
    sources: AuthorTexts
    pipeline: Pipeline
    systems: frozenset[str] = frozenset()
    is_live: bool = False

    def build(
        self, resolved: ResolvedStage, step: "LLMStep", this: AttemptContext, params: Mapping[str, Json]
    ) -> tuple[Request | None, tuple[Diagnostic, ...]]:
        """Return the request of one attempt and the errors that forbid it; None if the prompt cannot be rendered.

        `step` is the step of the attempt.
        """
        from orch23.model.media import accepting  # noqa: PLC0415 - only for stages that call a model

        if this.dialogue is None:
            from orch23.resolve.prompts import make_request as make  # noqa: PLC0415 - as above
        else:
            from orch23.resolve.dialogue import continued_request as make  # noqa: PLC0415 - few stages need it
        adapter = adapter_for(step)
        with accepting(adapter.accepts):
            request, problems = make(resolved.stage, step, this, self.sources, self.pipeline.vars)
        if request is None:
            return None, problems
        schema, form = None, step
        if this.exploring is not None:
            request, schema = this.exploring.request_of(request), this.exploring.schema
            form = replace(step, returns="json", schema=None)
        wire = None
        if step.structured_output:
            wire = adapter_for(form).wire(_schema(step, self.sources) if schema is None else schema)
        users = "stages" if request.system and step.system in self.systems else request.system_users
        sent = sent_schema_of(form, wire)
        request = replace(
            request,
            endpoint=endpoint_of(step),
            api=adapter.api,
            params=params,
            system_users=users,
            cache=step.cache,
            pace=step.pace,
            program=program_of(resolved.manifest) if step.command else {},
            adopts=bool(resolved.earlier_key),
            schema=sent,
            schema_identity=None if sent == wire else wire,
            is_live=self.is_live,
        )
        refused = guard_files(self.pipeline.never_send, request, resolved.stage, this, self.sources)
        sendable, found = guard_request(self.secrets, request, resolved.stage, this, self.sources)
        return sendable, (*refused, *found)


def shared_systems(pipeline: Pipeline) -> frozenset[str]:
    """Return the files of system texts that several stages of a pipeline use."""
    users: dict[str, int] = {}
    for node in pipeline.stages:
        step = node.step if isinstance(node, Stage) else None
        path = json_at(node.body, "llm", "system") if isinstance(node, ForeachStage) else None
        path = step.system if is_llm(step) else path
        if isinstance(path, str):
            users[path] = users.get(path, 0) + 1
    return frozenset(path for path, count in users.items() if count > 1)


def _schema(step: "LLMStep", sources: AuthorTexts) -> Json:
    """Return the JSON schema in the step's file; None if there is none or it is invalid (reported elsewhere)."""
    text, _ = sources.text(step.schema) if step.schema else (None, None)
    try:
        return None if text is None else parse_json(text)
    except StrictJsonError:
        return None


_REPLAY_HINT = "undo the change, or build without --replay to call the model"
_MODE_HINT = "the stage says `mode: replay`: undo the change, or `orch23 build --resample {stage}` to call the model"
_COMMIT = ", and commit the recording in `{}`; without a key, as in a fork, someone who has it can do so on your branch"
_SET_FOLDER = ", with `llm.transcripts` set to a folder, and commit the recording there"
_OFFLINE_HINT = "build without --offline to call the model, undo the change, or name a provider on this machine"


class CallListener(Protocol):
    """Gets each request before it is sent, and each response once it is recorded."""

    def requested(self, request: Request, /) -> None:
        """Handle a request, before a model or a recording responds to it."""

    def received(self, text: str, /) -> None:
        """Handle a part of a response, as it arrives."""

    def responded(self, request: Request, response: Response, /) -> None:
        """Handle a response that is on disk."""


class CallResult(Struct, frozen=True):
    """A response, with the request it belongs to: the last one, if earlier ones were truncated."""

    request: Request
    response: Response


class RecordedConversation(Struct, frozen=True, kw_only=True):
    """One attempt's provider, with its recordings and its meter.

    `used` are the fingerprints that the stage's attempts have used: a repeated request gets the next sample number.
    `skipped` are recorded responses that this attempt replaces by new ones.
    """

    recorded: RecordingProvider
    meter: "CallMeter"
    call: CallContext
    params: Mapping[str, Json]
    used: set[str] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)

    def next_sample(self, request: Request) -> Request:
        """Return a request as its first sample that is neither used nor skipped.

        If that is not recorded, and the request without the feedback that was appended is, it is that one.
        """
        request, skipped = self._unused(request)
        # Recordings of earlier versions are used as before.
        for form in request.earlier_forms() if not self.is_recorded(request) else ():
            earlier, _ = self._unused(replace(form, sample=0))
            if self.is_recorded(earlier):
                request, skipped = earlier, []
                break
        self.skipped.extend(skipped)
        self.used.add(request.fingerprint())
        return request

    def _unused(self, request: Request) -> tuple[Request, list[str]]:
        """Return the next sample of a request, and the fingerprints of recorded responses that it replaces."""
        skipped: list[str] = []
        # A used response failed in an earlier attempt, and would fail again (ADR 6).
        while (fingerprint := request.fingerprint()) in self.used or self.recorded.is_excluded(request):
            if fingerprint not in self.used:
                skipped.append(fingerprint)
            request = replace(request, sample=request.sample + 1)
        return request, skipped

    def complete(self, request: Request, deadline_s: float, listener: CallListener) -> CallResult:
        """Get the response to a request. A truncated response is recorded as such, and called again with more tokens.

        Raises:
            ProviderError: the provider failed, or a call is forbidden and nothing is recorded.
            LimitError: a limit of the run or the stage is reached; nothing was sent.
        """
        more = truncation_policy(self.call.step)
        response = self._once(request, deadline_s, listener)
        for _ in range(more.retries):
            wider = with_more_tokens(request, response.stop, more, max_output_tokens(self.call.step))
            if wider is None:
                break
            # A truncated response stays recorded: a replay must find the same sequence of responses.
            self.recorded.settle(request.fingerprint(), "truncated", ())
            request = self.next_sample(wider)
            response = self._once(request, deadline_s, listener)
        return CallResult(request, response)

    def is_recorded(self, request: Request) -> bool:
        """Return whether the response comes from the transcripts: then nothing leaves the machine."""
        return self.recorded.find(request) is not None

    def _once(self, request: Request, deadline_s: float, listener: CallListener) -> Response:
        listener.requested(request)
        try:
            response = self.recorded.complete(request, deadline_s, listener.received)
            while self.skipped:
                self.recorded.supersede(self.skipped.pop())
        except BaseException:
            self.meter.forfeit(self.call.stage)  # the response may have been charged, but could not be recorded
            raise
        if not response.replayed:
            self.meter.settle(self.call.stage, response)
        listener.responded(request, response)
        return response


def with_more_tokens(request: Request, stop: str, more: OnTruncated, most: int | None = None) -> Request | None:
    """Return a truncated request with a higher token limit, at most the limit of the model.

    None if its response is complete, or the limit cannot be raised.
    """
    limit = request.params.get("max_tokens")
    if stop != "max_tokens" or not isinstance(limit, int):
        return None
    higher = limit * more.factor if most is None else min(limit * more.factor, most)
    return replace(request, params={**request.params, "max_tokens": higher}) if higher > limit else None


def find_recorded(
    recorded: RecordingProvider, step: "LLMStep", request: Request
) -> tuple[list[Exchange], Request | None]:
    """Follow `complete` through the recordings, without any call. `step` is the step of the attempt.

    Return the recorded responses that the attempt would use, and the first request without one.
    """
    more = truncation_policy(step)
    found: list[Exchange] = []
    for _ in range(more.retries + 1):
        while recorded.is_excluded(request):
            request = replace(request, sample=request.sample + 1)
        known = recorded.find(request)
        if known is None:
            earlier = ((form, recorded.find(form)) for form in request.earlier_forms())
            request, known = next((one for one in earlier if one[1] is not None), (request, None))
        if known is None:
            return found, request
        found.append(known)
        wider = with_more_tokens(request, known.stop, more, max_output_tokens(step))
        if wider is None:
            break
        request = wider
    return found, None


class Conversations(Struct, frozen=True, kw_only=True):
    """Opens conversations. `replay` forbids all calls, `offline` those beyond this machine, whatever a stage says.

    With `holds`, a stage that would make a forbidden call waits instead of failing.

    `resample` are stages whose recorded responses are not used, `built` those that have a result; `once` lets equal
    requests of this run share one call.
    `rates` are the limits of the pipeline; `max_wall_s` is the wall time of the run. `batches` has the requests
    that are in batches.
    """

    setting: ProviderContext
    exchanges: Exchanges
    meter: "CallMeter"
    secrets: Secrets
    once: UniqueCalls = field(default_factory=UniqueCalls)
    rates: Mapping[str, RateLimits] = field(default_factory=dict)
    max_wall_s: float = math.inf
    replay: bool = False
    offline: bool = False
    holds: bool = False
    resample: Resample = field(default_factory=dict)
    built: Container[str] = ()
    batches: "LaterBatches | None" = None

    def open(self, resolved: ResolvedStage, attempt: int, used: set[str]) -> RecordedConversation:
        """Return the conversation of one attempt of an llm stage. `used` is shared by the stage's attempts."""
        stage = resolved.stage
        step = stage.step
        if not is_llm(step):
            message = f"BUG: {stage.name} is not an llm stage"
            raise TypeError(message)
        call = CallContext(step.of_attempt(stage.retry, attempt), stage.name, attempt)
        return self._open(call, stage, used, step.fallbacks())

    def fallback_setting(self, resolved: ResolvedStage) -> "FallbackSetting":
        """Return what decides whether the fallbacks of a stage are called."""
        from orch23.providers.retries import FallbackSetting, Outages  # noqa: PLC0415 - few stages have fallbacks

        step = resolved.stage.step
        return FallbackSetting(
            outages=self.setting.share(Outages, Outages),
            is_usable=is_llm(step) and any(map(self._can_call, step.fallbacks())),
            notice=self.setting.notice,
        )

    def open_fallbacks(self, resolved: ResolvedStage, attempt: int, used: set[str]) -> list[RecordedConversation]:
        """Return the conversation of one attempt with each fallback of its stage."""
        stage, step = resolved.stage, resolved.stage.step
        steps = step.fallbacks() if is_llm(step) else ()
        calls = [CallContext(one, stage.name, attempt) for one in steps]
        return [self._open(call, stage, used, steps[number + 1 :]) for number, call in enumerate(calls)]

    def _open(
        self, call: CallContext, stage: Stage, used: set[str], fallbacks: "Sequence[LLMStep]"
    ) -> RecordedConversation:
        step = call.step
        mode = self._mode(step, stage.name)
        recorded = RecordingProvider(
            inner=self._inner(call, stage, mode, fallbacks),
            store=self.exchanges,
            stage=stage.name,
            mode=mode,
            transcripts=step.transcripts,
            unique_calls=self.once,
            keeps=stage.name in self.built,
        )
        params = request_parameters(self.setting, call)
        return RecordedConversation(recorded=recorded, meter=self.meter, call=call, params=params, used=used)

    def prepare(self, stages: Sequence[Stage]) -> None:
        """Load what the calls of stages that have not started need, once for each provider.

        A stage with recorded exchanges may need no call, whatever its inputs will be. A stage that cannot call its
        provider reports that itself.
        """
        families: dict[str | None, frozenset[str]] = {}
        prepared: set[str] = set()
        for stage in stages:
            step = stage.step.of_attempt(stage.retry, 1) if is_llm(stage.step) else None
            if step is None or step.provider in prepared:
                continue
            load, mode = adapter_for(step).prepare, self._mode(step, stage.name)
            if load is None or mode == "replay":
                continue
            if mode == "cached" and step.transcripts not in families:
                families[step.transcripts] = self.exchanges.families(step.transcripts)
            is_recorded = mode == "cached" and stage.family in families[step.transcripts]
            if not is_recorded and self._can_call(step):
                prepared.add(step.provider)
                Prices(plugins=step.from_plugins).tariff_of(step.provider, step.model)  # loads the table of prices
                load(self.setting)

    def _can_call(self, step: "LLMStep") -> bool:
        if (self.offline and is_remote(step)) or readiness_errors(step, self.setting.environ, self.setting.root):
            return False
        grant = grant_for(step, self.setting)
        return grant is None or self.setting.is_granted(grant)

    def difference_from_nearest(self, resolved: ResolvedStage, request: Request) -> str:
        """Describe how a request differs from the nearest recorded one of its stage; empty if there is none."""
        stage, parts = resolved.stage, request.parts()
        place = stage.step.transcripts if is_llm(stage.step) else None
        near = self.exchanges.nearest(stage.name, parts, place)
        return describe_difference(near.request, parts, self.secrets.redact) if near else ""

    def expect(self, requests: Iterable[tuple[str, Request]]) -> None:
        """Compare the first requests of stages of this run: what they share, the vendor's cache gets once."""
        from orch23.providers.cache_marks import CachedPrefixes  # noqa: PLC0415 - only for such stages
        from orch23.providers.shared_beginnings import shared_beginnings  # noqa: PLC0415 - as above

        self.setting.share(CachedPrefixes, CachedPrefixes).shared = shared_beginnings(requests)

    def _expects_retry(self, stage: Stage, request: Request, attempt: int, transcripts: str | None) -> bool:
        """Return whether a further attempt of a stage is likely enough to write to the vendor's cache for it."""
        from orch23.providers.cache_marks import pays_to_write  # noqa: PLC0415 - few edits call a model

        if request.is_final or attempt > 1 or stage.retry.is_conversation:
            return not request.is_final
        return pays_to_write(*self.exchanges.judged(stage.family, transcripts))

    def _inner(self, call: CallContext, stage: Stage, mode: RecordingMode, fallbacks: "Sequence[LLMStep]") -> Provider:
        """Return the provider for requests that are not recorded."""
        if mode == "replay" and self.holds:
            from orch23.providers.middleware import HoldingProvider  # noqa: PLC0415 - only for `watch`

            return HoldingProvider()
        if mode == "replay":
            hint, folder = _REPLAY_HINT if self.replay else _MODE_HINT.format(stage=call.stage), call.step.transcripts
            return self._refusing(call, "E403", hint + (_COMMIT.format(folder) if folder else _SET_FOLDER))
        if self.offline and is_remote(call.step):
            return self._refusing(call, "E423", _OFFLINE_HINT)
        from orch23.providers import middleware, retries  # noqa: PLC0415 - few edits call a model
        from orch23.providers.connections import OpenCalls  # noqa: PLC0415 - `socket` takes long to load

        # Each retry is a request of its own, so the meter is inside of the retries.
        provider = adapter_for(call.step).make(self.setting, call)
        metered: Provider = middleware.MeteredProvider(inner=provider, stage=call.stage, meter=self.meter)
        if isinstance(provider, middleware.TokenCounter):
            metered = middleware.CountingProvider(
                inner=metered,
                counter=provider,
                facts=adapter_for(call.step).facts,
                might_fit=lambda one: self.meter.might_fit(call.stage, one),
            )
        tried = metered
        if call.step.cache is not None and adapter_for(call.step).streams:
            from orch23.providers.cache_marks import CachedPrefixes, WarmingProvider  # noqa: PLC0415 - as above

            # Outside of the meter, so that a call that waits reserves nothing; inside of the retries, so that another
            # call goes first while a failed one waits.
            tried = WarmingProvider(
                inner=metered,
                prefixes=self.setting.share(CachedPrefixes, CachedPrefixes),
                expects_retry=lambda one: self._expects_retry(stage, one, call.attempt, call.step.transcripts),
            )
        # Outside of the meter: a request that waits for a rate limit must not hold a reservation (ADR 39).
        transport = retries.RetryingProvider(
            inner=tried,
            stage=call.stage,
            emit=self.setting.notice,
            limiter=self._limiter(),
            counts_cached=adapter_for(call.step).limits_cached_input,
            wall=lambda: self._wall(call.stage),
            patience=lambda request: self._patience_s(request, fallbacks),
            sleep=self.setting.share(OpenCalls, OpenCalls).wait,
        )
        if self.batches is not None and (call.step.pace == "batch" or not self.batches.is_empty):
            # A request that is in a batch already is paid for there, whatever the pace is now.
            own = None if call.step.pace == "batch" else transport
            return self._guarded(self.batches.provider(call.step, call.stage, own), call)
        return self._guarded(transport, call)

    def _guarded(self, transport: Provider, call: CallContext) -> Provider:
        from orch23.providers import middleware  # noqa: PLC0415 - as above

        # Outermost, so that nothing is recorded or judged before secrets are removed from it.
        return middleware.RedactingProvider(
            middleware.CheckedProvider(transport, self.setting, call), self.secrets.redact
        )

    def _limiter(self) -> "RateLimiter":
        from orch23.providers.rate_limiter import RateLimiter  # noqa: PLC0415 - as above

        def make() -> RateLimiter:
            limiter = RateLimiter(rates=self.rates)
            self.setting.at_stop(limiter.stop)
            return limiter

        return self.setting.share(RateLimiter, make)

    def _wall(self, stage: str) -> tuple[float, bool]:
        """Return what is left of the wall time of a stage, and whether it or the run has a limit of it.

        Of the run it is the whole limit: a longer wait than that is not begun. The build ends the others.
        """
        left_s = min(self.meter.deadline_s(stage, math.inf), self.max_wall_s)
        return left_s, left_s < math.inf

    def _patience_s(self, request: Request, fallbacks: "Sequence[LLMStep]") -> float | None:
        """Return how long a request waits without any response of its model; None without a fallback to call."""
        if not any(map(self._can_call, fallbacks)):
            return None
        from orch23.providers.retries import Outages  # noqa: PLC0415 - few stages have fallbacks

        return self.setting.share(Outages, Outages).patience_s(request)

    def _refusing(self, call: CallContext, code: str, hint: str) -> ReplayOnlyProvider:
        return ReplayOnlyProvider(
            store=self.exchanges,
            stage=call.stage,
            transcripts=call.step.transcripts,
            code=code,
            hint=hint,
            redact=self.secrets.redact,
        )

    def _mode(self, step: "LLMStep", stage: str) -> RecordingMode:
        # `--replay` overrides everything, and `--resample` the `mode` of a stage.
        if self.replay:
            return "replay"
        return step.mode if resample_of(self.resample, stage) is None else "record"
