"""Bring the lines that a process prints from a worker to the build while it runs, with limited memory.

The output of an outcome stays the truth: a line that did not arrive while the process ran comes from there.
"""

import codecs
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Protocol, TextIO, TypeAlias, runtime_checkable

from orch23.model.text import MAX_LINE_LENGTH, LineListener, LineSplitter

Line: TypeAlias = tuple[str, bool]
"""A line, and whether it is the beginning of a longer one."""

SEND_EACH_S = 0.2
BATCH_CHARACTERS = 4096
"""Limit of one message. An engine may keep some messages of a build in memory; dask keeps 1000."""
MAX_CHARACTERS = 1 << 20
"""Limit of one start of an action. The lines after that are heard when it has ended."""
_WAITING_CHARACTERS = 64 << 10
_LONGEST_LINE = 2 * MAX_LINE_LENGTH
_KEY_CHARACTERS = 1000
_LINE_COST = 50
"""What a short line costs in memory beside its characters: they are kept, to be counted."""


@runtime_checkable
class StepListener(LineListener, Protocol):
    """Also receives why a process may print nothing, such as that its machine cannot be reached."""

    def know(self, text: str) -> None:
        """Receive the reason each time that it changes; an empty text if none is known."""


class LineSender(Protocol):
    """Sends the lines of a process from a worker. It never waits long, and never raises."""

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Take a line."""

    def send_waiting(self) -> None:
        """Send lines that were not sent yet, if it is time. It is called several times a second."""


class LineBatches:
    """Sends the lines of a process from a worker. Safe for calls from several threads; never waits.

    If a process prints faster than lines are sent, or more than the maximum, no more are sent: so those that were sent
    are the first ones, in order.
    """

    def __init__(self, send: Callable[[Sequence[Line]], object], clock: Callable[[], float] = monotonic) -> None:
        """Set what sends a message; if it raises, no more are sent."""
        self._send, self._clock = send, clock
        self._lock = threading.Lock()
        self._waiting: deque[Line] = deque()
        self._waiting_characters = self._all_characters = 0
        self._sent_s = -SEND_EACH_S
        self._is_over = False

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Take a line, and send it if the last message is old enough."""
        with self._lock:
            if self._is_over:
                return
            self._waiting.append((line, cut))
            self._waiting_characters += len(line) + 1
            self._all_characters += len(line) + 1
            if self._waiting_characters > _WAITING_CHARACTERS or self._all_characters > MAX_CHARACTERS:
                self._end()
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send the lines that wait, or as many of them as fit into one message, if the last one is old enough."""
        with self._lock:
            now_s = self._clock()
            if not self._waiting or now_s < self._sent_s + SEND_EACH_S:
                return
            self._sent_s = now_s
            batch = [self._waiting.popleft()]
            size = len(batch[0][0]) + 1
            while self._waiting and size + len(self._waiting[0][0]) < BATCH_CHARACTERS:
                batch.append(self._waiting.popleft())
                size += len(batch[-1][0]) + 1
            self._waiting_characters -= size
            try:
                self._send(batch)
            except Exception:  # noqa: BLE001 - the step must not fail because its lines cannot be shown
                self._end()

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()


class PrintedLines:
    """Writes the lines of a process to a stream, up to the maximum. An error of the stream ends it, not the step."""

    def __init__(self, stream: TextIO) -> None:
        """Set the stream."""
        self._stream = stream
        self._characters = 0

    def __call__(self, line: str, *, cut: bool = False) -> None:
        """Write a line at once."""
        self._characters += len(line) + 1
        if self._characters > MAX_CHARACTERS:
            return
        try:
            self._stream.write(f"{line}...\n" if cut else f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._characters = MAX_CHARACTERS

    def send_waiting(self) -> None:
        """Do nothing: no line waits."""


class HeardLines:
    """Hears each line of an action once: from the engine while it runs, else from its outcome.

    If the action starts again after a fault, its lines are heard again. An engine may report lines from any thread;
    the listener is called only by `pass_on` and `finish`.
    """

    def __init__(self, hear: LineListener | None) -> None:
        """Set the listener; None if no one listens."""
        self._hear = hear
        self._lock = threading.Lock()
        self._waiting: deque[Line] = deque()
        self._heard: Counter[str] = Counter()
        self._characters = self._starts = 0
        self._known = ""

    def new_start(self) -> LineListener | None:
        """Return the listener for a start of the action, which never waits; None if no one listens.

        Those of earlier starts have no effect. Lines beyond the maximum are dropped: they come with the outcome.
        """
        if self._hear is None:
            return None
        with self._lock:
            self._starts += 1
            self._waiting.clear()
            self._heard.clear()
            self._characters, start = 0, self._starts

        def add(line: str, *, cut: bool = False) -> None:
            # The other side may be another program than ours.
            line, cut = line[:_LONGEST_LINE], cut or len(line) > _LONGEST_LINE
            with self._lock:
                if start == self._starts and self._characters <= MAX_CHARACTERS:
                    self._characters += len(line) + _LINE_COST
                    self._waiting.append((line, cut))

        return add

    def know(self, text: str) -> None:
        """Pass on what the engine knows of the action, if that has changed."""
        if text != self._known and isinstance(self._hear, StepListener):
            self._known = text
            self._hear.know(text)

    def pass_on(self) -> None:
        """Let the listener hear the lines that have arrived."""
        while self._hear is not None:
            with self._lock:
                if not self._waiting:
                    return
                line, cut = self._waiting.popleft()
            self._heard[_key(line)] += 1
            self._hear(line, cut=cut)

    def finish(self, output: Iterable[bytes]) -> None:
        """Let the listener hear the lines of the whole output that it has not heard yet."""
        hear = self._hear
        if hear is None:
            return
        self.pass_on()

        def hear_new(line: str, *, cut: bool = False) -> None:
            if self._heard[_key(line)] > 0:
                self._heard[_key(line)] -= 1
            else:
                hear(line, cut=cut)

        lines = LineSplitter(hear_new)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in output:
            lines.feed(decoder.decode(data))
        lines.feed(decoder.decode(b"", final=True))
        lines.flush()


def _key(line: str) -> str:
    # A worker cuts a line before it replaces the path of the sandbox directory, so the ends of cut lines differ.
    return line[:_KEY_CHARACTERS]
