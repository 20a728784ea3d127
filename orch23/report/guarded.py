"""Keep what a plugin's output format does wrong from the build that it shows."""

from msgspec import Struct

from orch23.model.event import Event, Observer


class Guarded(Struct):
    """An observer that tells another one of events until that one fails; `fault` is what it raised."""

    inner: Observer
    fault: Exception | SystemExit | None = None

    def notice(self, event: Event) -> None:
        """Tell of an event."""
        if self.fault is not None:
            return
        try:
            self.inner.notice(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is reported after the build
            self.fault = error
