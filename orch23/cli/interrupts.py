"""Turn SIGINT, SIGTERM and SIGHUP into a build that stops in good order."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 64


@contextlib.contextmanager
def interrupting(interrupt: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupt` with the first signal, from a thread; a second one raises KeyboardInterrupt in the main thread.

    The first must not wait for Python code of the main thread: a signal that comes just before it blocks on a lock
    would be seen only when that is released, which may be never. So the C handler's wakeup pipe is what is listened to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may take signals
        return
    listening, waking = os.pipe()
    os.set_blocking(waking, False)
    seen = 0

    def take(_signum: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise KeyboardInterrupt

    watcher = threading.Thread(target=_watch, args=(listening, interrupt), name="orch23-signals", daemon=True)
    watcher.start()
    hears_no_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # below nohup
    taken = [number for number in SIGNALS if number != signal.SIGHUP or not hears_no_hangup]
    before = {number: signal.signal(number, take) for number in taken}
    former = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(waking)
        watcher.join()
        os.close(listening)


def _watch(listening: int, interrupt: Callable[[int], None]) -> None:
    """Hand on the first signal; end when the pipe does."""
    asked = False
    while numbers := os.read(listening, _AT_ONCE):
        wanted = [number for number in numbers if number in SIGNALS]
        if wanted and not asked:
            asked = True
            interrupt(wanted[0])
