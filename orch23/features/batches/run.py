"""The requests of a run in batches, their provider, and what the build has: money, consent, recordings, secrets."""

import math
import threading
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from orch23.attempt.ledger import Ledger
from orch23.cli.project_loading import Project
from orch23.features.batches.calls import BatchCalls
from orch23.features.batches.pending import PendingBatches
from orch23.features.batches.submission import BatchLimiter, GivenResult
from orch23.model.errors import ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.adapter import ProviderContext
from orch23.providers.connections import OpenCalls
from orch23.providers.faults import TransportError
from orch23.providers.middleware import MeteredProvider
from orch23.steps.llm.spec import LLMStep


class RunBatches(Struct, kw_only=True):
    """The batches of a run, read when they are needed: most builds have none. `has_files`: an earlier run left some."""

    project: Project
    setting: ProviderContext
    ledger: Ledger
    redact: Callable[[str], str]
    has_files: bool
    _made: BatchCalls | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_empty(self) -> bool:
        """Whether no request is in a batch, or has a result from one."""
        made = self._made
        return not self.has_files if made is None else made.is_empty

    @property
    def has_unsent(self) -> bool:
        """Whether a request is not submitted yet."""
        return self._made is not None and self._made.has_unsent

    def provider(self, step: LLMStep, stage: str, inner: Provider | None) -> Provider:
        """Return the provider of a stage. With `inner`, only requests that are in a batch already are."""
        return BatchingProvider(calls=self.calls(), step=step, stage=stage, inner=inner)

    def calls(self) -> BatchCalls:
        """Return the batches."""
        with self._lock:
            if self._made is None:
                self._made = self._read()
            return self._made

    def advance(self) -> frozenset[str]:
        """Submit what is queued, and collect what has ended; return the requests whose stages can go on."""
        return self.calls().advance()

    def cancel(self, delays_s: Sequence[float]) -> bool:
        """Cancel the batches, and collect those that have ended; return whether some have not after these delays."""
        return not self.is_empty and self.calls().cancel(delays_s)

    def report(self) -> None:
        """Report what the run waits for."""
        if self._made is not None or self.has_files:
            self.calls().report()

    def _read(self) -> BatchCalls:
        project, setting = self.project, self.setting
        limiter = setting.share(BatchLimiter, BatchLimiter)
        setting.at_stop(limiter.close)
        limit_s = project.pipeline.stop.max_wall_s
        wall_s = math.inf if limit_s is None else limit_s
        return BatchCalls(
            files=PendingBatches(project.store.batches, project.store.key),
            pipeline=project.pipeline.file,
            ledger=self.ledger,
            setting=setting,
            exchanges=project.store.exchanges,
            redact=self.redact,
            sleep=setting.share(OpenCalls, OpenCalls).wait,
            now=lambda: project.settings.clock().timestamp(),
            limiter=limiter,
            # The whole limit of the run: a longer wait is not begun. The build ends the others.
            wall=lambda: (wall_s, wall_s < math.inf),
        )


class BatchingProvider(Struct, frozen=True, kw_only=True):
    """A provider that sends its requests in batches. With `inner`, only requests that are in a batch already are."""

    calls: BatchCalls
    step: LLMStep
    stage: str
    inner: Provider | None = None

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response of a batch that has ended.

        Raises:
            AwaitsResponseError: it is not there yet.
            ProviderError: the vendor refused the request, or the batch could not be submitted.
        """
        result = self.calls.take(request.fingerprint())
        if result is not None:
            metered = MeteredProvider(inner=GivenResult(result), stage=self.stage, meter=self.calls.ledger)
            try:
                return metered.complete(request, deadline_s, on_text)
            except TransportError as fault:
                if result.outcome != "expired":
                    self.calls.fail(result.fingerprint, fault.diagnostic)
                    raise ProviderError(fault.diagnostic) from None
        if self.inner is not None:
            return self.inner.complete(request, deadline_s, on_text)
        raise self.calls.ask(self.step, self.stage, request)
