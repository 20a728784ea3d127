"""Pass events to several observers, with secrets redacted."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import astuple, replace

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


_Struct = TypeVar("_Struct", bound=Struct)


class RedactingObserver(Struct, frozen=True):
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
        data = self._struct(event.data)
        return replace(event, message=self.redact(event.message), role=self.redact(event.role), data=data)

    def _struct(self, value: _Struct) -> _Struct:
        """Return facts with their texts redacted. One of a fixed set of words, such as a status, is not a secret."""
        return replace(value, **{name: self._cleaned(getattr(value, name)) for name in _redactable(type(value))})

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact(name): self._cleaned(one) for name, one in value.items()}
        if isinstance(value, Sequence):
            return tuple(self._cleaned(one) for one in value)
        return value


@cache
def _redactable(form: type[Struct]) -> tuple[str, ...]:
    """Return the fields of facts that may hold any text."""
    hints = get_type_hints(form)
    return tuple(name for name in form.__struct_fields__ if not _is_fixed(hints[name]))


def _is_fixed(hint: Any) -> bool:
    """Return whether a type is a set of words: an enum or a Literal."""
    return get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, Enum))


def _add_texts(texts: list[str], value: Any) -> None:
    """Add all texts of a value, the keys of a mapping too."""
    if isinstance(value, Struct):
        for one in astuple(value):
            if one.__class__ is not int:
                _add_texts(texts, one)
    elif isinstance(value, str):
        texts.append(value)
    elif isinstance(value, Mapping):
        texts.extend(value)
        for one in value.values():
            if one is not None and one.__class__ is not int:
                _add_texts(texts, one)
    elif isinstance(value, Sequence):
        for one in value:
            _add_texts(texts, one)


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
