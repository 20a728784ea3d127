"""Take secrets out of every event before an observer hears of it: the journal, the state, the screen."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.event import Event, Observer


class Redacted(Struct, frozen=True):
    """An observer that hears of events without secrets.

    `suspects` says of all texts of an event at once whether `redact` might change one: of hardly any it does.
    """

    inner: Observer
    redact: Callable[[str], str]
    suspects: Callable[[Iterable[str]], bool]

    def notice(self, event: Event) -> None:
        """Tell of an event, its message, its role and every text of its data redacted."""
        texts = [event.message, event.role]
        _add_texts(texts, event.data)
        self.inner.notice(self._clean(event) if self.suspects(texts) else event)

    def _clean(self, event: Event) -> Event:
        data = {self.redact(name): self._cleaned(value) for name, value in event.data.items()}
        return replace(event, message=self.redact(event.message), role=self.redact(event.role), data=data)

    def _cleaned(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact(name): self._cleaned(one) for name, one in value.items()}
        if isinstance(value, Sequence):
            return [self._cleaned(one) for one in value]
        return value


def _add_texts(texts: list[str], value: Json) -> None:
    """Add all texts of a value, the names in it too."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, Mapping):
        texts.extend(value)
        for one in value.values():
            if one is not None and one.__class__ is not int:
                _add_texts(texts, one)
    elif isinstance(value, Sequence):
        for one in value:
            _add_texts(texts, one)
