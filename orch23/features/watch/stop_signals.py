"""The signals that end `watch`."""

import signal
from types import FrameType

from msgspec import Struct, field

from orch23.model.errors import ExitCode

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
