"""Remember which models are down, so that a run waits once for an outage, and not in each stage."""

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from orch23.model.event import Event
from orch23.model.llm import Request

PATIENCE_S = 60.0
"""How long a request waits while its model sends no response, if there is a fallback."""
PROBE_S = 5.0
"""The same for a request that finds out whether an outage is over."""
PAUSE_S = 60.0
"""How long the requests of a run go to the fallback before one of them finds out."""

OUTAGES = frozenset({"E402", "E416", "E417", "E418", "E419", "E420"})
"""Codes of errors after which a fallback is called: the server does not serve, whatever the request is."""

Place: TypeAlias = tuple[str, str, str]


class Outages(Struct, kw_only=True):
    """The outages of a run, by provider, server and model; used by all threads."""

    clock: Callable[[], float] = time.monotonic
    _until: dict[Place, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_down(self, request: Request) -> bool:
        """Return whether the fallback goes first. After each pause one caller gets False: its request finds out."""
        with self._lock:
            now, until = self.clock(), self._until.get(_place(request))
            if until is None or now < until:
                return until is not None
            self._until[_place(request)] = now + PAUSE_S
            return False

    def patience_s(self, request: Request) -> float:
        """Return how long a request may wait without any response of its model."""
        with self._lock:
            return PROBE_S if _place(request) in self._until else PATIENCE_S

    def begin(self, request: Request) -> None:
        """Note that a model is down."""
        with self._lock:
            self._until[_place(request)] = self.clock() + PAUSE_S

    def end(self, request: Request) -> None:
        """Note that a model has responded."""
        with self._lock:
            self._until.pop(_place(request), None)

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


class FallbackSetting(Struct, frozen=True, kw_only=True):
    """What decides whether fallbacks are called. With `is_usable`, one of them can be called on this machine.

    `notice` takes events about them.
    """

    outages: Outages
    is_usable: bool
    notice: Callable[[Event], None]


def _place(request: Request) -> Place:
    return request.provider, request.endpoint, request.model
