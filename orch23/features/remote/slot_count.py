"""Count the slots of the workers of an engine in a thread, so that the build loop does not wait for the engine."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

from orch23.features.remote.engine import EngineFault
from orch23.model.errors import Orch23Error

_EACH_S = 2.0


class SlotCount:
    """The number of slots now. It follows workers that start or end while the build runs."""

    def __init__(self, ask: Callable[[], int], wait: Callable[[float], bool]) -> None:
        """Ask nothing yet. `ask` may take long, or raise EngineFault; `wait` returns whether the executor has ended."""
        self._ask, self._wait = ask, wait
        self._lock = threading.Lock()
        self._is_running = False
        self._count = 1

    def now(self) -> int:
        """Return the number, at least 1: an action that waits for a worker reports that there is none."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._follow, name="orch23-slots", daemon=True).start()
        return max(1, self._count)

    def _follow(self) -> None:
        while True:
            try:
                self._count = self._ask()
            except CancelledError:
                return
            except (EngineFault, Orch23Error):
                pass  # the actions report it
            if self._wait(_EACH_S):
                return
