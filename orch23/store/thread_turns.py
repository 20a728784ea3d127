"""Let threads take turns with work that consists of many short system calls.

CPython runs one thread at a time, and a thread gives way during each system call. Two such threads wake each other
thousands of times a second, which costs more than their calls. A thread that has the turn is left alone by the others:
they sleep until it gives the turn back, or waits for something.
"""

import threading

# Nothing but speed depends on the turn, so a thread that has waited this long goes on without it. So long work, such as
# the copy of a large file, holds no one up, and a turn that is never given back blocks no one.
_PATIENCE_S = 0.02


class _Lock:
    """The lock of the turn. `is_kept` is True once a thread has waited for it in vain."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_kept = False

    def take(self) -> bool:
        """Take the turn, and return whether it came in time.

        While long work has it, only the first thread waits. Otherwise each system call that pauses would wait again.
        """
        taken = self.lock.acquire(timeout=0 if self.is_kept else _PATIENCE_S)
        self.is_kept = not taken
        return taken

    def give_back(self) -> None:
        self.is_kept = False
        self.lock.release()


_LOCK = _Lock()


class _Held(threading.local):
    """How many blocks of this thread are within each other, and whether they have the turn."""

    depth = 0
    has_turn = False


_HELD = _Held()


class _Turn:
    """A context manager whose block has the turn, if it comes in time. Blocks may be within each other."""

    def __enter__(self) -> None:
        if not _HELD.depth:
            _HELD.has_turn = _LOCK.take()
        _HELD.depth += 1

    def __exit__(self, *error: object) -> None:
        _HELD.depth -= 1
        if not _HELD.depth and _HELD.has_turn:
            _LOCK.give_back()


class _Pause:
    """A context manager whose block waits, for a process or the disk: others have the turn meanwhile."""

    def __enter__(self) -> None:
        if _HELD.depth and _HELD.has_turn:
            _HELD.has_turn = False
            _LOCK.give_back()

    def __exit__(self, *error: object) -> None:
        if _HELD.depth and not _HELD.has_turn:
            _HELD.has_turn = _LOCK.take()


TURN = _Turn()
PAUSE = _Pause()
