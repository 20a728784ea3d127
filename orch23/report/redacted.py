"""Take secrets out of every event before an observer hears of it: the journal, the state, the screen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from orch23.model.digest import Json
from orch23.model.event import Event, Observer


@dataclass(frozen=True, slots=True)
class Redacted:
    """An observer that hears of events without secrets."""

    inner: Observer
    redact: Callable[[str], str]

    def notice(self, event: Event) -> None:
        """Tell of an event, its message, its role and every text of its data redacted."""
        data = {self.redact(name): self._clean(value) for name, value in event.data.items()}
        clean = replace(event, message=self.redact(event.message), role=self.redact(event.role), data=data)
        self.inner.notice(clean)

    def _clean(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact(name): self._clean(one) for name, one in value.items()}
        if isinstance(value, Sequence):
            return [self._clean(one) for one in value]
        return value
