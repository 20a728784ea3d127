"""Show what runs while nothing ends: at the bottom of a terminal, and as a line now and then elsewhere."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.event import Event, RunFinished, StageStarted
from orch23.model.sink import Sink
from orch23.report.formats import Format, View
from orch23.report.text import TextScreen

if TYPE_CHECKING:
    from orch23.report.running import RunningStages

# A build that ends sooner shows no frame and does not load what draws it.
_PATIENCE_S = 0.15
_FRAME_S = 0.1
_BEAT_S = 1.0


class LiveScreen(Struct, Sink, kw_only=True):
    """Passes events to a screen of text, and shows meanwhile what runs. Safe for calls from several threads.

    On a terminal (`View.area`) a thread paints a frame ten times a second, else it writes lines about stages that
    run for long. It starts with the first stage: a build with nothing to do has none.
    """

    view: View
    screen: TextScreen
    _running: "RunningStages | None" = None
    _early: "list[Callable[[RunningStages], None]]" = field(default_factory=list)
    _since: float = 0.0
    _is_watched: bool = False
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._since = self.view.clock()
        self.view.watch(self)
        if self.paints:  # what steps print from the beginning on is shown
            self._catch_up()

    @property
    def paints(self) -> bool:
        """Whether it paints frames on a terminal."""
        return self.view.area is not None

    def notice(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            now = self.view.clock()
            if self._running is None:
                self._early.append(lambda running: running.notice(event, now))
            else:
                self._running.notice(event, now)
            if isinstance(event.data, RunFinished):
                self.close()
            self.screen.notice(event)
            if isinstance(event.data, StageStarted) and not self._is_watched:
                self._is_watched = True
                self.view.at_end(self.close)
                watch = self._beat_on if self.view.area is None else self._paint_on
                threading.Thread(target=watch, name="orch23-screen", daemon=True).start()

    def step(self, stage: str, step: str) -> None:
        """Note that a stage runs a step."""
        with self._lock:
            if self._running is None:
                self._early.append(lambda running: running.step(stage, step))
            else:
                self._running.step(stage, step)

    def print(self, stage: str, lines: Iterable[str], line: str) -> None:
        """Note the complete lines that a step printed or a model wrote, and the beginning of the next one."""
        if not self.paints:
            return
        with self._lock:
            if self._running is not None:
                self._running.print(stage, lines, line)

    def close(self) -> None:
        """Show no more frames."""
        self._ended.set()
        with self._lock:
            if self.view.area is not None:
                self.view.area.clear()

    def _catch_up(self) -> "RunningStages":
        """Follow what runs from now on. A short build does not load what that needs."""
        from orch23.report.running import RunningStages  # noqa: PLC0415 - for builds that take longer

        with self._lock:
            running = RunningStages()
            for change in self._early:
                change(running)
            self._early.clear()
            self._running = running
            return running

    # ---- on a terminal ----------------------------------------------------------------------

    def _paint_on(self) -> None:
        area = self.view.area
        if area is None or self._ended.wait(_PATIENCE_S):
            return
        from orch23.report.frame import Frame  # noqa: PLC0415 - loads rich

        running = self._running or self._catch_up()
        usual_s: Mapping[str, float] | None = None
        while True:
            with self._lock:
                if self._ended.is_set():
                    return
                now, size = self.view.clock(), area.size()
                frame = Frame(
                    running=running,
                    now=now,
                    since=self._since,
                    columns=size.columns,
                    lines=size.lines,
                    style=self.view.style,
                    width=self.screen.width,
                    redact=self.view.redact,
                    left_s=running.left_s(usual_s, now) if usual_s else None,
                )
                area.show(frame.rows())
            # After the first frame, because it reads the journals of earlier runs.
            if usual_s is None:
                usual_s = self.view.usual_s()
            if self._ended.wait(_FRAME_S):
                return

    # ---- elsewhere --------------------------------------------------------------------------

    def _beat_on(self) -> None:
        if self._ended.wait(_BEAT_S):
            return
        from orch23.report.running import Heartbeat  # noqa: PLC0415 - for builds that take long

        running, heartbeat = self._catch_up(), Heartbeat()
        while not self._ended.wait(_BEAT_S):
            with self._lock:
                if self._ended.is_set():
                    return
                for line in heartbeat.lines(running, self.view.clock(), counts=self.screen.is_folding):
                    self.screen.aside(line)


AUTO = Format(
    make=lambda view: LiveScreen(view=view, screen=TextScreen(view=view, folds=view.area is not None)), in_a_line=True
)
PLAIN = Format(
    make=lambda view: LiveScreen(view=replace(view, area=None), screen=TextScreen(view=view)), in_a_line=True
)
