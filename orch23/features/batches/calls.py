"""Send the requests of stages in batches, and give them the responses of batches that have ended.

A stage whose request is in a batch ends its work with `AwaitsResponseError`. Once no other stage can make progress, all
requests are submitted together. A stage whose result has come starts again: the responses of its earlier attempts are
recorded, and the result is its next one.

A batch is in the store before it is submitted. After a crash, the vendor's batches are searched for it before anything
is submitted again, so no batch is paid for twice.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.features.batches.pending import (
    MOST_NAMES,
    PendingBatch,
    PendingBatches,
    PendingCall,
    pending_call,
    waiting_batch,
)
from orch23.features.batches.submission import BatchSubmission, GivenResult, QueuedCall, grouped, server_of
from orch23.model.batches import Batches, BatchResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import AwaitsResponseError, ConfigurationError, ConsentError, ProviderError
from orch23.model.event import BATCH_MARK, BatchSubmitted, CallSubmitted, Event, Warned, waiting_text
from orch23.model.llm import Request, response_data
from orch23.providers.adapter import ProviderContext
from orch23.providers.faults import TransportError
from orch23.providers.middleware import MeteredProvider, RedactingProvider
from orch23.providers.rate_limiter import RateLimiter
from orch23.providers.rate_limits import replies_heard_by
from orch23.providers.recordings import RecordingProvider, TranscriptStore
from orch23.providers.registry import batches_of
from orch23.providers.retries import RateWait, WaitLimit, no_wall, retry_event
from orch23.steps.llm.spec import LLMStep

if TYPE_CHECKING:
    from orch23.attempt.ledger import Ledger

# The clock of the vendor may differ from the clock of this machine.
_CLOCK_DIFFERENCE_S = 3600.0
_GONE = 404
# The delays before further tries, after errors that may pass.
_DELAYS_S = (1.0, 4.0)
# After this time, a batch that the vendor has is in its list. It is searched for after each of the delays.
_LISTED_AFTER_S = 60.0
_SEARCH_DELAYS_S = (5.0, 15.0, 40.0)


class BatchCalls(Struct, kw_only=True):
    """The requests of a run in batches. `take` and `ask` are called from all threads, the rest from one at a time.

    `pipeline` is the file of the pipeline whose batches these are. `now` is the Unix time; `sleep` ends with the build.
    `limiter` has the rate limits of submitting, and `wall` is the wall time of the run: a refused batch waits so long.
    """

    files: PendingBatches
    pipeline: str
    ledger: "Ledger"
    setting: ProviderContext
    exchanges: TranscriptStore
    redact: Callable[[str], str]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    limiter: RateLimiter = field(default_factory=RateLimiter)
    wall: WaitLimit = no_wall
    _open: dict[str, PendingBatch] = field(default_factory=dict)
    _fetched: dict[str, PendingBatch] = field(default_factory=dict)
    _queued: dict[str, QueuedCall] = field(default_factory=dict)
    _results: dict[str, BatchResult] = field(default_factory=dict)
    _failed: dict[str, tuple[Diagnostic, ...]] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _taken: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Read the batches that earlier runs left."""
        self._open = {one.label: one for one in self.files.of_pipeline(self.pipeline)}
        self.ledger.expect(name for one in self._open.values() for name in one.calls)

    @property
    def is_empty(self) -> bool:
        """Whether no request is in a batch, or has a result from one."""
        return not self._open and not self._queued and not self._results

    @property
    def has_unsent(self) -> bool:
        """Whether a request is not submitted yet."""
        return bool(self._queued)

    # ---- for stages -----------------------------------------------------------------------

    def take(self, fingerprint: str) -> BatchResult | None:
        """Return the result of a request, once; None if there is none.

        A stage with an equal request finds the response recorded, or fails like the first one.

        Raises:
            AwaitsResponseError: its batch has not ended.
            ProviderError: its batch could not be submitted or collected.
        """
        with self._lock:
            self._asked.add(fingerprint)
            if fingerprint in self._failed:
                raise ProviderError(*self._failed[fingerprint])
            if fingerprint in self._results:
                result = self._results.pop(fingerprint)
                if result.response is not None:
                    self._taken.add(fingerprint)
                return result
            if fingerprint in self._queued or any(fingerprint in one.calls for one in self._open.values()):
                raise AwaitsResponseError(fingerprint)
            return None

    def ask(self, step: LLMStep, stage: str, request: Request) -> AwaitsResponseError:
        """Reserve the cost of a request, and queue it for the next batch; return the error that says so.

        Raises:
            LimitError: it does not fit into the budget.
        """
        fingerprint = request.fingerprint()
        self.ledger.reserve(stage, request)
        self.ledger.park(stage)
        with self._lock:
            self._queued[fingerprint] = QueuedCall(step, pending_call(stage, step.transcripts, request), request)
        return AwaitsResponseError(fingerprint)

    def fail(self, fingerprint: str, error: Diagnostic) -> None:
        """Note that the result of a request is this error: it is sent again by another run."""
        with self._lock:
            self._failed[fingerprint] = (error,)

    # ---- while nothing else can make progress ---------------------------------------------

    def advance(self) -> frozenset[str]:
        """Collect what has ended, or submit what is queued; return the requests whose stages can go on.

        Stages that can go on do so first: they may have requests for the same batch, and submitting may have to wait.
        """
        # A batch that this run could not collect fails its stages once.
        before = [one for one in self._open.values() if not one.calls.keys() <= self._failed.keys()]
        moved = frozenset(fingerprint for one in before for fingerprint in self._collect(one)) or self._submit()
        self.tidy()
        return moved

    def tidy(self) -> None:
        """Record the results that no stage of this run has asked for, and forget batches whose results are recorded."""
        for label, batch in list(self._fetched.items()):
            for fingerprint, call in batch.calls.items():
                with self._lock:
                    is_awaited = fingerprint in self._asked
                    result = None if is_awaited else self._results.pop(fingerprint, None)
                if result is not None:
                    self._record(result, call)
            if not any(self._is_open(fingerprint, call) for fingerprint, call in batch.calls.items()):
                self.files.remove(batch)
                del self._fetched[label]

    def _is_open(self, fingerprint: str, call: PendingCall) -> bool:
        """Return whether a result is not used yet, or was given to a stage that has not recorded it."""
        if fingerprint in self._results:
            return True
        return fingerprint in self._taken and self.exchanges.get(fingerprint, call.transcripts) is None

    def cancel(self, delays_s: Sequence[float]) -> bool:
        """Ask the vendors to stop all batches, and collect those that have ended.

        Return whether some have not ended after these delays. A batch of which it is not known whether the vendor has
        it is not cancelled.

        Raises:
            ProviderError: a vendor could not be asked.
        """
        for batch in list(self._open.values()):
            self._stop(batch)
        for delay_s in (0.0, *delays_s):
            if not self._open:
                break
            self.sleep(delay_s)
            for batch in list(self._open.values()):
                self._collect(batch)
                if batch.label in self._gone:
                    self._drop(batch)
                    for name in batch.calls:
                        del self._failed[name]
        errors = dict.fromkeys(error for found in self._failed.values() for error in found)
        if errors:
            raise ProviderError(*errors)
        self.tidy()
        return bool(self._open)

    def _stop(self, batch: PendingBatch) -> None:
        """Ask the vendor to stop a batch, if it is known; forget one that the vendor does not have."""
        try:
            batches = self._batches(batch)
            found = self._identified(batch, batches)
            if found is None:
                self._drop(batch)
            elif found.batch_id:
                batches.cancel(found.batch_id)
        except TransportError as fault:
            if fault.status != _GONE:
                raise ProviderError(fault.diagnostic) from None
            self._drop(batch)

    def report(self) -> None:
        """Report the batches that have not ended; the run ends. What was not submitted is not reserved any more."""
        with self._lock:
            queued, self._queued = self._queued, {}
        for fingerprint, one in queued.items():
            self.ledger.release_parked(fingerprint, one.call.stage, one.request)
        # No stage takes a result any more.
        self._asked.clear()
        self.tidy()
        for batch in list(self._open.values()):
            data = waiting_batch(batch)
            self.setting.notice(Event(data, waiting_text(data)))

    # ---- submitting -----------------------------------------------------------------------

    def _submit(self) -> frozenset[str]:
        """Submit what is queued; return the requests of batches that could not be submitted.

        While a batch waits because the vendor refuses it for its rate or load, those of other servers are submitted.
        """
        with self._lock:
            queued = dict(self._queued)
        parts = [deque(filter(None, map(self._submission, group))) for group in grouped(queued)]
        waiting = deque(parts)
        while waiting:
            group = waiting.popleft()
            while group and self._send(group[0]):
                group.popleft()
            if group:
                waiting.append(group)
        return frozenset(queued.keys() & self._failed.keys())

    def _submission(self, group: Mapping[str, QueuedCall]) -> BatchSubmission | None:
        """Return the submission of a batch; None if its server cannot be called."""
        first = next(iter(group.values()))
        created_s = self.now()
        name = f"{created_s}{''.join(sorted(group))}"
        batch = PendingBatch(
            label=hashlib.sha256(name.encode()).hexdigest()[:16],
            pipeline=self.pipeline,
            server=server_of(first.step),
            model=first.call.stored.model,
            created_s=created_s,
            calls={fingerprint: one.call for fingerprint, one in group.items()},
        )
        try:
            batches = self._batches(batch)
        except (ConfigurationError, ConsentError) as error:
            self._give_up(batch, *error.diagnostics)
            return None
        wait = RateWait(
            limiter=self.limiter,
            permit=self.limiter.enter(first.request),
            stage=first.call.stage,
            emit=self.setting.notice,
            wall=self.wall,
        )
        return BatchSubmission(batch=batch, queued=group, batches=batches, wait=wait)

    def _send(self, one: BatchSubmission) -> bool:
        """Submit a batch, when its rate limit allows it; return False if it has to be tried again.

        A wait and a refusal for the rate or load are no tries, as for an ordinary request.
        """
        permit = one.wait.permit
        try:
            one.wait.until_given()
            if not self._begin(one):
                return True
            with replies_heard_by(lambda status, headers: self.limiter.hear(permit, status, headers)):
                batch_id = one.batches.submit(one.batch.label, one.requests)
        except TransportError as fault:
            return self._after(fault, one)
        except ConfigurationError as error:
            self._give_up(one.batch, *error.diagnostics)
        except ProviderError as error:
            # Either the wait takes too long, or the build has ended, and the vendor may have the batch.
            if one.batch.label in self._open:
                self._fail(one.batch, *error.diagnostics)
            else:
                self._give_up(one.batch, *(_unsent(problem, is_sure=True) for problem in error.diagnostics))
        else:
            self.limiter.finish(permit, None)
            self._adopt(one.batch, batch_id)
        self.limiter.leave(permit)
        return True

    def _begin(self, one: BatchSubmission) -> bool:
        """Store a batch before it leaves: after a crash, it is searched for. Return False if the run has ended."""
        one.batch = replace(one.batch, created_s=self.now())
        self.files.write(one.batch)
        with self._lock:
            is_wanted = one.queued.keys() <= self._queued.keys()
            if is_wanted:
                self._open[one.batch.label] = one.batch
                for name in one.queued:
                    del self._queued[name]
        if not is_wanted:
            self.files.remove(one.batch)
        elif not one.sent:
            for fingerprint, call in one.batch.calls.items():
                data = CallSubmitted(
                    fingerprint=fingerprint,
                    response_id=f"{BATCH_MARK}{one.batch.label}",
                    provider=one.batch.server.provider,
                )
                self.setting.notice(Event(data, f"in batch {one.batch.label}", call.stage, "debug"))
        one.sent += 1
        return is_wanted

    def _after(self, fault: TransportError, one: BatchSubmission) -> bool:
        """Handle an error of submitting a batch; return False if it has to be tried again."""
        try:
            if fault.is_refusal:
                self._take_back(one)
                one.wait.again(fault, one.sent + 1)
                return False
            self.limiter.finish(one.wait.permit, None)
            one.wait.end()
            if fault.charged and self._may_be_submitted(one, fault.diagnostic):
                return True
            self._try_again(one, fault)
        except ProviderError as error:
            self._give_up(one.batch, *(_unsent(problem, is_sure=True) for problem in error.diagnostics))
            self.limiter.leave(one.wait.permit)
            return True
        return False

    def _try_again(self, one: BatchSubmission, fault: TransportError) -> None:
        one.faults += 1
        if not fault.transient or one.faults > len(_DELAYS_S):
            raise ProviderError(fault.diagnostic)
        self._take_back(one)
        # The search took longer than the delay.
        delay_s = 0.0 if fault.charged else _DELAYS_S[one.faults - 1]
        self.setting.notice(retry_event(fault, delay_s, one.sent + 1, one.wait.stage))
        self.sleep(delay_s)
        self.limiter.wait_again(one.wait.permit)

    def _may_be_submitted(self, one: BatchSubmission, said: Diagnostic) -> bool:
        """Search for a batch whose submission failed with this error; return False if the vendor does not have it."""
        unknown = _unsent(said, is_sure=False)
        text = f"{unknown.message}; {unknown.hint}"
        self.setting.notice(Event(Warned(code="W425"), text, one.wait.stage, "warning"))
        try:
            for delay_s in _SEARCH_DELAYS_S:
                self.sleep(delay_s)
                found = self._identified(one.batch, one.batches)
                if found is None:
                    return False
                if found.batch_id:
                    return True
        except (ConfigurationError, ProviderError) as error:
            self._fail(one.batch, *error.diagnostics)
        except TransportError:
            self._fail(one.batch, unknown)
        # Another batch of the same size may be this one.
        return True

    def _take_back(self, one: BatchSubmission) -> None:
        self.files.remove(one.batch)
        with self._lock:
            del self._open[one.batch.label]
            self._queued |= one.queued

    def _give_up(self, batch: PendingBatch, *errors: Diagnostic) -> None:
        with self._lock:
            for name in batch.calls:
                self._queued.pop(name, None)
        self._drop(batch)
        self._fail(batch, *errors)

    def _adopt(self, batch: PendingBatch, batch_id: str) -> PendingBatch:
        known = replace(batch, batch_id=batch_id)
        self.files.write(known)
        with self._lock:
            self._open[batch.label] = known
        count = len(batch.calls)
        data = BatchSubmitted(
            batch_id=batch_id,
            provider=batch.server.provider,
            model=batch.model,
            requests=count,
            stages=batch.stages[:MOST_NAMES],
        )
        text = f"submitted {count} request{'s' if count != 1 else ''} to {batch.server.provider} as batch {batch_id}"
        self.setting.notice(Event(data, text))
        return known

    # ---- collecting -----------------------------------------------------------------------

    def _collect(self, batch: PendingBatch) -> frozenset[str]:
        """Get the results of a batch if it has ended; return the requests whose stages can go on."""
        try:
            batches = self._batches(batch)
            found = self._identified(batch, batches)
            if found is None:
                self._drop(batch)
                return frozenset(batch.calls)
            if not found.batch_id or not batches.batch(found.batch_id).has_ended:
                return frozenset()
            requests = {name: call.request for name, call in batch.calls.items()}
            results = {one.fingerprint: one for one in batches.results(found.batch_id, requests)}
        except TransportError as fault:
            if fault.transient:
                text = f"batch {batch.batch_id or batch.label} could not be looked at: {fault.diagnostic.message}"
                self.setting.notice(Event(Warned(code="W425"), text, level="warning"))
                return frozenset()
            if fault.status != _GONE:
                return self._fail(batch, fault.diagnostic)
            self._gone.add(batch.label)
            return self._fail(batch, _gone_error(fault.diagnostic, batch))
        except (ConfigurationError, ConsentError, ProviderError) as error:
            return self._fail(batch, *error.diagnostics)
        missing = {name: _without_result(name, found.batch_id) for name in batch.calls if name not in results}
        with self._lock:
            self._results |= {**results, **missing}
            self._fetched[batch.label] = found
            del self._open[batch.label]
        return frozenset(batch.calls)

    def _identified(self, batch: PendingBatch, batches: Batches) -> PendingBatch | None:
        """Return a batch with its id, or without one if it is not known yet; None if the vendor does not have it.

        A vendor that keeps no label shows only in the results which requests a batch had. A batch that was sent a short
        time ago may not be listed yet.
        """
        if batch.batch_id:
            return batch
        others = {one.batch_id for one in (*self._open.values(), *self._fetched.values())}
        found = batches.created_since(batch.created_s - _CLOCK_DIFFERENCE_S)
        latest_s = batch.created_s + _CLOCK_DIFFERENCE_S
        may_be = [one for one in found if (one.label == batch.label if one.label else one.requests == len(batch.calls))]
        candidates = [one for one in may_be if one.id not in others and one.created_s <= latest_s]
        requests = {name: call.request for name, call in batch.calls.items()}
        for one in candidates:
            if one.label or (one.has_ended and next(iter(batches.results(one.id, requests)), None) is not None):
                return self._adopt(batch, one.id)
        is_listed = self.now() - batch.created_s >= _LISTED_AFTER_S
        return None if is_listed and all(one.has_ended for one in candidates) else batch

    def _batches(self, batch: PendingBatch) -> Batches:
        server = batch.server
        step = LLMStep(
            provider=server.provider,
            model=batch.model,
            prompt="",
            base_url=server.base_url,
            endpoint_alias=server.endpoint_alias,
            api="chat" if server.api == "chat" else "responses" if server.api else None,
            pace="batch",
        )
        return batches_of(self.setting, step)

    # ---- ends -----------------------------------------------------------------------------

    def _drop(self, batch: PendingBatch) -> None:
        """Forget a batch that the vendor does not have: nothing was charged."""
        # The file is last: without it, no later run would release what this one, if it stops now, does not.
        for fingerprint, call in batch.calls.items():
            self.ledger.release_parked(fingerprint, call.stage, call.request)
        self.files.remove(batch)
        with self._lock:
            self._open.pop(batch.label, None)

    def _fail(self, batch: PendingBatch, *errors: Diagnostic) -> frozenset[str]:
        with self._lock:
            self._failed |= dict.fromkeys(batch.calls, errors)
        return frozenset(batch.calls)

    def _record(self, result: BatchResult, call: PendingCall) -> None:
        """Record a result that no stage has asked for, and count what it cost."""
        request = call.request
        is_known = self.exchanges.get(result.fingerprint, call.transcripts) is not None
        if is_known and not self.ledger.is_uncollected(result.fingerprint):
            return
        metered = MeteredProvider(inner=GivenResult(result), stage=call.stage, meter=self.ledger)
        recorded = RecordingProvider(
            inner=RedactingProvider(metered, self.redact),
            store=self.exchanges,
            stage=call.stage,
            mode="cached",
            transcripts=call.transcripts,
        )
        try:
            response = (metered if is_known else recorded).complete(request, 1.0, lambda _text: None)
            self.ledger.settle(call.stage, response)
        except TransportError:
            return
        data = response_data(result.fingerprint, response)
        self.setting.notice(Event(data, "response of a batch recorded; no stage of this run has used it", call.stage))


def _unsent(error: Diagnostic, *, is_sure: bool) -> Diagnostic:
    if is_sure:
        return replace(error, message=f"the batch was not submitted: {error.message}")
    message = f"it is not known whether the batch was submitted: {error.message}"
    return replace(error, message=message, hint="build again: the batch is searched for before it is submitted again")


def _gone_error(error: Diagnostic, batch: PendingBatch) -> Diagnostic:
    # The key may belong to another account: to send the requests again on its own could cost twice.
    message = f"batch {batch.batch_id} cannot be collected: {error.message}"
    hint = "check the key; if the batch is gone, run `orch23 cancel`, and build again to send its requests again"
    return replace(error, message=message, hint=hint)


def _without_result(fingerprint: str, batch_id: str) -> BatchResult:
    message = f"batch {batch_id} has ended without a result for the request"
    error = Diagnostic("E401", message, hint="build again to send the request again")
    return BatchResult(fingerprint=fingerprint, outcome="errored", error=error)
