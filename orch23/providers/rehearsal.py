"""Do something once a run, beside the first call: what a library makes at its first answer is there when that comes."""

import contextlib
import threading
from collections.abc import Callable

from msgspec import Struct, field


class Rehearsal(Struct):
    """What the providers of a run share, so that it is done once, and while they wait."""

    _begun: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, act: Callable[[], object]) -> None:
        """Do it in a thread, unless it was begun. Nobody waits for it, and its failure is nobody's."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        threading.Thread(target=_quietly, args=(act,), name="rehearsal", daemon=True).start()

    def close(self) -> None:
        """Begin none any more."""
        with self._lock:
            self._begun = True


def _quietly(act: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        act()
