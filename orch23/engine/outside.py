"""What a build may reach beyond this machine, for steps that are no models; and how that is broken off."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orch23.model.consent import Grant


class Outside:
    """What the user lets the steps of a build reach. `partial` is a folder for what is half fetched.

    Safe for calls from several threads.
    """

    def __init__(
        self,
        *,
        partial: Path,
        environ: Mapping[str, str],
        trust_command: str,
        offline: bool = False,
        is_granted: Callable[[Grant], bool] = lambda _grant: False,
    ) -> None:
        """Take what the user says; without consent nothing is reached. `trust_command` is how it is given."""
        self.partial, self.environ, self.offline = partial, environ, offline
        self.is_granted, self.trust_command = is_granted, trust_command
        self._lock = threading.Lock()
        self._open: dict[int, Callable[[], None]] = {}
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Say whether the build was asked to stop."""
        return self._is_closed

    @contextlib.contextmanager
    def breakable(self, end: Callable[[], None]) -> Iterator[None]:
        """Have something ended, by another thread, if the build is asked to stop within."""
        with self._lock:
            self._open[id(end)] = end
            closed = self._is_closed
        try:
            if closed:
                end()
            yield
        finally:
            with self._lock:
                self._open.pop(id(end), None)

    def close(self) -> None:
        """Break off all that is open, and what will be."""
        with self._lock:
            self._is_closed = True
            ends = list(self._open.values())
        for end in ends:
            end()
