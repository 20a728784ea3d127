"""Wait for changes in folders, by inotify or by a short interval without watches, and for signals that end `watch`."""

import os
import signal
import time
from collections.abc import Collection
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.model.errors import ExitCode

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

# Changes are delivered once none has come for a step, at most this long after the first.
_STEP_MS = 20
_LONGEST_MS = 1000
_POLL_S = 1.0
_SLEEP_S = 0.05


class StopSignals(Struct):
    """The signals that end `watch`: between two builds the first one ends its wait, and no exception is raised.

    A KeyboardInterrupt could be raised anywhere, also where Python ignores exceptions. It is raised by a second signal,
    and while `is_building`: a build that is being prepared cannot end otherwise. A build that runs has handlers of its
    own.
    """

    received: list[int] = field(default_factory=list)
    is_building: bool = False

    def is_set(self) -> bool:
        """Return whether a signal was received: watchfiles calls it while it waits."""
        return bool(self.received)

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal, such as 130 for Ctrl-C."""
        return 128 + self.received[0] if self.received else ExitCode.SIGINT

    def handle_signals(self) -> None:
        """Handle signals from now on."""
        for one in _SIGNALS:
            if signal.getsignal(one) != signal.SIG_IGN:  # nohup ignores SIGHUP, and it must stay ignored
                signal.signal(one, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self.is_building or len(self.received) > 1:
            raise KeyboardInterrupt


class FolderEvents(Struct):
    """The events of some folders, without those below them. Close it after use.

    Events of the time between two waits are kept: none is lost while a build runs. A signal of `stop` ends a wait.
    """

    stop: StopSignals = field(default_factory=StopSignals)
    problem: str = ""
    _folders: frozenset[str] = frozenset()
    _notify: "RustNotify | None" = None

    def follow(self, folders: Collection[str]) -> bool:
        """Watch these folders; return True if they were not watched before, so that changes may have been missed."""
        wanted = frozenset(filter(os.path.isdir, folders))
        if self.problem or (self._notify is not None and wanted == self._folders):
            return False
        self.close()
        try:
            self._notify = _notify_of(wanted)
        except FileNotFoundError:  # one was removed meanwhile: tried again after the next wait, which is short
            return False
        except (OSError, RuntimeError) as error:  # no watches or instances are left
            self.problem = str(error)
            return False
        self._folders = wanted
        return True

    def wait(self, longest_s: float) -> bool:
        """Wait for changes, at most so long, and return whether there were some."""
        if self._notify is None:
            self.pause(min(longest_s, _POLL_S))
            return False
        try:
            found = self._notify.watch(_LONGEST_MS, _STEP_MS, max(1, int(longest_s * 1000)), self.stop)
        except RuntimeError:  # of the thread that reads the events
            self.close()
            self.pause(min(longest_s, _POLL_S))
            return False
        if isinstance(found, str):  # `timeout`, or `stop`
            return False
        if any(path in self._folders for _, path in found):  # a folder that was replaced has lost its watch
            self.close()
        return True

    def pause(self, longest_s: float) -> None:
        """Wait without regard to changes, at most so long: until a signal."""
        until = time.monotonic() + longest_s
        # A signal does not end a sleep.
        while not self.stop.is_set() and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLEEP_S))

    def close(self) -> None:
        """End the thread that reads the events; `follow` starts a new one, with new watches."""
        if self._notify is not None:
            self._notify.close()
            self._notify = None


def _notify_of(folders: Collection[str]) -> "RustNotify":
    from watchfiles._rust_notify import RustNotify  # noqa: PLC0415 - only `watch` needs it

    return RustNotify(sorted(folders), False, False, 0, False, True)  # noqa: FBT003 - it has no keywords


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
