"""What an output format of `build` is, and the observers between it and the events, which redact secrets."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import astuple, replace

from orch23.model.event import Event, Observer, RunFinished
from orch23.model.pipeline import Pipeline
from orch23.model.sink import Sink
from orch23.report.values import LINE_WIDTH, Style
from orch23.text.secrets import secrets_from

if TYPE_CHECKING:
    from orch23.model.run_facts import RunFold
    from orch23.report.terminal import TerminalArea

ReadSource: TypeAlias = Callable[[str], str]
"""Return the text of a file of the project, by its path; an empty one if it cannot be read."""


class View(Struct, frozen=True, kw_only=True):
    """The input of a format. `tell` writes to stderr, `answer` to stdout; `clock` is monotonic, in seconds.

    `area` is the bottom of the terminal that stderr is; None if nothing may be painted there. `columns` returns the
    width of a line. `watch` takes a sink that shows what stages do while they run. `usual_s` reads the usual durations
    of stages in seconds, by name. `at_end` takes a function to call when the command ends. `redact` removes secrets:
    from `area` they are not removed again. `folder` is the place of the project in the repository. `read_source`
    returns the text of a file of the project, or an empty one.
    """

    pipeline: Pipeline
    tell: Callable[[str], None]
    answer: Callable[[str], None]
    logs: Path
    style: Style
    clock: Callable[[], float]
    verbose: bool = False
    area: "TerminalArea | None" = None
    usual_s: Callable[[], Mapping[str, float]] = dict
    columns: Callable[[], int] = lambda: LINE_WIDTH
    watch: Callable[[Any], object] = lambda _: None
    at_end: Callable[[Callable[[], None]], object] = lambda _: None
    redact: Callable[[str], str] = str
    folder: PurePosixPath = PurePosixPath()
    read_source: ReadSource = str


Document: TypeAlias = Callable[[View], Sink]
"""Returns a sink that writes one text to `View.answer` when the run has ended."""


class Format(Struct, frozen=True, kw_only=True):
    """An output format. `make` returns the sink that shows a build.

    `in_a_line`: the format shows idle stages at most as a count. Then a build of what an edit reaches reports no other
    stage to the sink, and a build with nothing to do repeats the stderr text of the last one. Without it, each
    build reports each stage. `is_alone`: nothing else is shown beside the format, such as progress.
    """

    make: Callable[[View], Sink]
    in_a_line: bool = False
    is_alone: bool = False

    def observer(self, view: View) -> Observer:
        """Return the observer that shows a build."""
        return sink_observer(self.make(view), view.clock)


class Fanout(Sink):
    """Passes each event to several observers, in the order of the arguments. Safe for calls from several threads.

    `run_finished` is the last event: worker threads can outlive an interrupted run, and what they report after it
    would follow the end of the journal.
    """

    def __init__(self, *observers: Observer) -> None:
        """Create a fanout for these observers."""
        self._observers = observers
        self._lock = threading.Lock()
        self._is_finished = False

    def notice(self, event: Event) -> None:
        """Pass the event to all observers, unless the run is finished."""
        # Under the lock, so that all observers get the events of all threads in the same order.
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = isinstance(event.data, RunFinished)
            for observer in self._observers:
                observer.notice(event)


_Struct = TypeVar("_Struct", bound=Struct)


class _WithFacts(Struct):
    sink: Sink
    clock: Callable[[], float]
    began: float
    fold: "RunFold"

    def notice(self, event: Event) -> None:
        self.sink.notice(event)
        self.fold.add(event, self.clock() - self.began)
        if isinstance(ended := event.data, RunFinished):
            from orch23.model.run_facts import EndedRun  # noqa: PLC0415 - the screens need no facts

            facts = self.fold.facts
            run = EndedRun(run_id=facts.run_id, ended=ended, duration_s=facts.last_s, stages=facts.ends, facts=facts)
            self.sink.finish(run)


def sink_observer(sink: Sink, clock: Callable[[], float]) -> Observer:
    """Return an observer that passes a run on to a sink. One that takes no facts is an observer itself."""
    if getattr(type(sink), "finish", Sink.finish) is Sink.finish:
        return sink
    from orch23.model.run_facts import RunFold  # noqa: PLC0415 - as above

    return _WithFacts(sink, clock, clock(), RunFold())


class RedactingObserver(Struct, frozen=True):
    """Passes events on with their secrets redacted.

    `suspects` returns whether `redact` might change one of the texts of an event. It is much faster, and nearly always
    false, so that few events are copied.
    """

    inner: Observer
    redact: Callable[[str], str]
    suspects: Callable[[Iterable[str]], bool]

    def notice(self, event: Event) -> None:
        """Pass on an event without secrets."""
        self.inner.notice(self.redacted(event))

    def redacted(self, event: Event) -> Event:
        """Return an event without secrets in its message, in its role and in every text of its data."""
        texts = [event.message, event.role]
        _add_texts(texts, event.data)
        if not self.suspects(texts):
            return event
        data = self._redacted_struct(event.data)
        return replace(event, message=self.redact(event.message), role=self.redact(event.role), data=data)

    def _redacted_struct(self, value: _Struct) -> _Struct:
        return replace(value, **{name: self._redacted(getattr(value, name)) for name in _text_fields(type(value))})

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._redacted_struct(value)
        if isinstance(value, str):
            return self.redact(value)
        # Keys are redacted too: the name of a file can contain a secret.
        if isinstance(value, Mapping):
            return {self.redact(name): self._redacted(one) for name, one in value.items()}
        if isinstance(value, Sequence):
            return tuple(self._redacted(one) for one in value)
        return value


@cache
def _text_fields(struct: type[Struct]) -> tuple[str, ...]:
    # A value of an enum or a Literal, such as a status, is not a secret, even if the secret is a word like `ok`.
    hints = get_type_hints(struct)
    free = (name for name in struct.__struct_fields__ if get_origin(hints[name]) is not Literal)
    return tuple(name for name in free if not (isinstance(hints[name], type) and issubclass(hints[name], Enum)))


_WITHOUT_TEXT = frozenset({int, bool, float, type(None)})


def _add_texts(texts: list[str], value: Any) -> None:
    # This runs for every event. Most values are of these classes: to ask for them here saves a call each.
    if isinstance(value, str):
        texts.append(value)
        return
    parts: Iterable[Any] = ()
    if isinstance(value, Struct):
        parts = astuple(value)
    elif isinstance(value, dict) or (not isinstance(value, tuple) and isinstance(value, Mapping)):
        texts.extend(value)
        parts = value.values()
    elif isinstance(value, (tuple, Sequence)):
        parts = value
    for one in parts:
        if one.__class__ is str:
            texts.append(one)
        elif one and one.__class__ not in _WITHOUT_TEXT:
            _add_texts(texts, one)


def event_redactor(environ: Mapping[str, str]) -> Callable[[Event], Event]:
    """Return a function that removes the secrets of the environment from events.

    A build redacts its journal. These are secrets that the environment of the build did not have.
    """
    secrets = secrets_from(environ)
    if not secrets.values:
        return lambda event: event
    return RedactingObserver(Fanout(), secrets.redact, secrets.may_contain).redacted


class Guarded(Struct, Sink):
    """Passes events to another observer until that one fails; `fault` is the exception.

    An output format of a plugin must not stop a build that is paid for.
    """

    inner: Observer
    fault: Exception | SystemExit | None = None

    def notice(self, event: Event) -> None:
        """Pass on the event, unless the other observer has failed."""
        if self.fault is not None:
            return
        try:
            self.inner.notice(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is reported after the build
            self.fault = error
