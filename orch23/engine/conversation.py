"""Talk to a stage's provider with a memory and a limit: the one place where the wrapping of providers is written."""

import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import LimitError
from orch23.model.llm import ExchangeOutcome, Request, Response
from orch23.model.pipeline import LLMStep
from orch23.providers.limits import Limited
from orch23.providers.recorded import Recorded
from orch23.providers.registry import Providers
from orch23.resolve.resolution import Resolved
from orch23.store.exchanges import Exchanges


@dataclass(slots=True)
class CallGate:
    """Counts the calls that providers are asked for, over all threads, and refuses those over the limit."""

    limit: int | None
    made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, _request: Request) -> None:
        """Count one call.

        Raises:
            LimitError: it would be one too many; it is not made.

        """
        with self._lock:
            if self.limit is not None and self.made >= self.limit:
                hint = "raise stop_conditions.max_llm_calls; a further build goes on where this one stopped"
                raise LimitError(Diagnostic("E501", f"max_llm_calls: {self.limit} calls were made", hint=hint))
            self.made += 1


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """One attempt's provider, behind the limit, behind the transcripts."""

    recorded: Recorded
    params: Mapping[str, Json]

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Answer a request."""
        return self.recorded.complete(request, deadline_s, on_progress)

    def settle(self, fingerprint: str, outcome: ExchangeOutcome, diagnostics: tuple[str, ...]) -> None:
        """Keep what became of an answer."""
        self.recorded.settle(fingerprint, outcome, diagnostics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Opens conversations. `replay` lets nobody be asked, whatever a stage says."""

    providers: Providers
    exchanges: Exchanges
    gate: CallGate
    reusable: Container[str] = frozenset()
    replay: bool = False

    def open(self, resolved: Resolved, attempt: int) -> RecordedConversation:
        """Return the conversation of one attempt of an llm stage."""
        stage = resolved.stage
        step = stage.step
        if not isinstance(step, LLMStep):
            message = f"BUG: {stage.name} is no llm stage"
            raise TypeError(message)
        inner = Limited(self.providers.make(step, stage.name, attempt), self.gate)
        recorded = Recorded(
            inner=inner,
            store=self.exchanges,
            stage=stage.name,
            mode="replay" if self.replay else step.mode,
            transcripts=step.transcripts,
            reusable=self.reusable,
        )
        return RecordedConversation(recorded, self.providers.request_parameters(step, stage.name, attempt))
