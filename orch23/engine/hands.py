"""Threads that do the work of stages, one piece at a time each, and stay for the next."""

import queue
import threading
from collections.abc import Callable

from msgspec import Struct, field

_IDLE = "orch23-idle"


class Hands(Struct):
    """As many threads as were ever busy at once. Only the loop thread calls this: it knows when a piece is done."""

    _work: "queue.SimpleQueue[tuple[str, Callable[[], Callable[[], None]]] | None]" = field(
        default_factory=queue.SimpleQueue
    )
    _idle: int = 0
    _count: int = 0

    def give(self, name: str, work: Callable[[], Callable[[], None]]) -> None:
        """Have a piece of work done; what it returns is called last, and says so to the loop thread."""
        self._work.put((name, work))
        if self._idle:
            self._idle -= 1
            return
        self._count += 1
        threading.Thread(target=self._take, name=_IDLE, daemon=True).start()

    def done(self) -> None:
        """Note that a piece of work has come to its end."""
        self._idle += 1

    def dismiss(self) -> None:
        """Let all threads go, each when it has done its work; one that is held up for ever stays."""
        for _ in range(self._count):
            self._work.put(None)

    def _take(self) -> None:
        this = threading.current_thread()
        while (piece := self._work.get()) is not None:
            this.name, work = piece
            tell = work()
            this.name = _IDLE
            tell()
