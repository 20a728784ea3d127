"""Interrupt a build on the first signal."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READ_BYTES = 64


@contextmanager
def interrupt_on_signal(interrupt: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupt` with the first signal, from a thread; a second one raises KeyboardInterrupt in the main thread.

    Python handlers run only in the main thread, between two of its instructions. A signal that arrives just before the
    main thread blocks on a lock would wait until the lock is released, which may be never. Therefore a thread reads
    the wakeup pipe, which the C handler writes to.
    """
    # Python lets only the main thread set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    count = 0

    def handle(_signum: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    watcher = threading.Thread(target=_watch, args=(read_end, interrupt), name="orch23-signals", daemon=True)
    watcher.start()
    # nohup ignores SIGHUP, and it must stay ignored.
    handled = [one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, handle) for number in handled}
    wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # Closing the pipe ends the thread that reads it.
        os.close(write_end)
        watcher.join()
        os.close(read_end)


def _watch(read_end: int, interrupt: Callable[[int], None]) -> None:
    interrupted = False
    while data := os.read(read_end, _READ_BYTES):
        numbers = [number for number in data if number in SIGNALS]
        if numbers and not interrupted:
            interrupted = True
            interrupt(numbers[0])
