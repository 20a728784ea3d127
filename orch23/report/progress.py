"""Show on stderr that files are being hashed or copied."""

import threading
from collections.abc import Callable

from msgspec import Struct, field

from orch23.report.diagnostics import visible
from orch23.report.values import format_size, pluralize
from orch23.store.file_copy import AdvanceProgress, FileActivity, no_progress

PATIENCE_S = 1.0
PAUSE_S = 0.5
_REFRESH_S = 0.1
_LARGE_BYTES = 32 << 20
_DONE: dict[FileActivity, str] = {"hashing": "hashed", "copying": "copied", "checking": "checked"}
_CLEAR = "\r\x1b[K"


class ProgressLine(Struct, kw_only=True):
    """Shows the progress of hashing and copying: one line, overwritten on a terminal, and written once elsewhere.

    Nothing is shown before one second was spent on files. The time between two files does not count, so that a build
    of many small stages shows nothing; after a pause of half a second the count starts again. Safe for calls from
    several threads.
    """

    write: Callable[[str], None]
    clock: Callable[[], float]
    is_terminal: bool
    is_quiet: bool = False
    _spent_s: float = 0.0
    _last: float = float("-inf")
    _shown: float = float("-inf")
    _files: int = 0
    _bytes: int = 0
    _is_written: bool = False
    _visible: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __call__(self, verb: FileActivity, name: str, size_bytes: int, /) -> AdvanceProgress:
        """Start the work on a file; return the function to call with the number of bytes of each step."""
        if self.is_quiet:
            return no_progress(verb, name, size_bytes)
        with self._lock:
            since = self._step()
            self._files += 1
        done = 0

        def advance(step_bytes: int) -> None:
            nonlocal done, since
            done += step_bytes
            with self._lock:
                self._bytes += step_bytes
                now = self._step()
                self._spent_s += now - since
                since = now
                if self._spent_s >= PATIENCE_S:
                    self._show(now, verb, name, done, size_bytes)
                if self._visible and size_bytes >= _LARGE_BYTES and done >= size_bytes:
                    self.clear()

        return advance

    def clear(self) -> None:
        """Remove the line. Call it before anything else is written."""
        with self._lock:
            if self._visible:
                self._visible = False
                self.write(_CLEAR)

    def _step(self) -> float:
        # Time between two files is spent on other work: it must not make many quick steps look like a slow one.
        now = self.clock()
        if now - self._last > PAUSE_S:
            self._spent_s, self._files, self._bytes, self._is_written = 0.0, 0, 0, False
        self._last = now
        return now

    def _show(self, now: float, verb: FileActivity, name: str, done: int, size_bytes: int) -> None:
        is_large, size = size_bytes >= _LARGE_BYTES, format_size(size_bytes)
        name = visible(name).replace("\n", "?")
        # A log file would get a line for each update, so it gets one line in all.
        if not self.is_terminal:
            if not self._is_written:
                self.write(f"{verb} {f'{name} ({size})' if is_large else 'many files'}\n")
            self._is_written = True
        elif now - self._shown >= _REFRESH_S:
            self._shown, self._visible = now, True
            text = f"{_DONE[verb]} {pluralize(self._files, 'file')}, {format_size(self._bytes)}"
            if is_large:
                text = f"{verb} {name}  {100 * done // size_bytes}% of {size}"
            self.write(f"{_CLEAR}{text}")
