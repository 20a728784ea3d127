"""Hand every event to several observers, one at a time, whatever thread it comes from."""

import threading

from orch23.model.event import Event, Observer, RunFinished


class Fanout:
    """An observer of observers; the order they are given in is the order they hear of an event in.

    `run_finished` is the last event: what threads that outlive an interrupted run still have to tell is not heard.
    """

    def __init__(self, *observers: Observer) -> None:
        """Take the observers."""
        self._observers = observers
        self._lock = threading.Lock()
        self._over = False

    def notice(self, event: Event) -> None:
        """Tell all of them."""
        with self._lock:
            if self._over:
                return
            self._over = isinstance(event.data, RunFinished)
            for observer in self._observers:
                observer.notice(event)
