"""Lines for a log about stages that run for long, so that it does not look as if nothing happened."""

from msgspec import Struct, field

from orch23.model.text import format_duration
from orch23.report.diagnostics import visible
from orch23.report.running import RunningStage, RunningStages
from orch23.report.values import pluralize
from orch23.resolve.commands import typed_command

# After so many seconds there is a line about a stage, then each time its duration has doubled, at the latest after:
_FIRST_S = 10.0
_MOST_S = 120.0
_PROGRESS_S = 30.0
_MAX_NAMES = 5


class Heartbeat(Struct):
    """Decides which lines are due, and when."""

    _due_s: dict[str, float] = field(default_factory=dict)
    _done: int = 0
    _since: float | None = None

    def lines(self, running: RunningStages, now: float, *, counts: bool) -> list[str]:
        """Return the lines that are due at a time of the clock; with `counts` also one with the progress of all."""
        return [*(self._progress(running, now) if counts else ()), *self._stages(running, now)]

    def _stages(self, running: RunningStages, now: float) -> list[str]:
        stages = running.stages
        self._due_s = {name: due for name, due in self._due_s.items() if name in stages}
        due = [one for one in stages.values() if now - one.since >= self._due_s.get(one.name, _FIRST_S)]
        for one in due:
            took = now - one.since
            self._due_s[one.name] = took + min(took, _MOST_S)
        names = [_described(one, now) for one in due[:_MAX_NAMES]]
        more = f" and {len(due) - _MAX_NAMES:,} more" if len(due) > _MAX_NAMES else ""
        return [f"still running: {', '.join(names)}{more}"] if due else []

    def _progress(self, running: RunningStages, now: float) -> list[str]:
        if self._since is None:
            self._since = now
        if now - self._since < _PROGRESS_S or len(running.done) == self._done:
            return []
        self._since, self._done = now, len(running.done)
        return [f"{self._done:,} of {pluralize(len(running.names), 'stage')} done"]


def _described(stage: RunningStage, now: float) -> str:
    attempt = ""
    if stage.attempt > 1:
        since = stage.since if stage.attempt_since is None else stage.attempt_since
        attempt = f", attempt {stage.attempt} for {format_duration(now - since)}"
    doing = visible(typed_command(stage.doing))
    if stage.doing.startswith("receiving from "):
        doing += f", {pluralize(stage.received + len(stage.line), 'character')}"
    return f"{visible(stage.name)} ({format_duration(now - stage.since)}{attempt}: {doing})"
