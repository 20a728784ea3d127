"""What runs while nothing ends: stages, steps and attempts, and the lines of a log about those that run for long."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import ClassVar

from msgspec import Struct, field

from orch23.model.event import (
    AttemptStarted,
    CallReserved,
    CallSettled,
    Event,
    HttpRetry,
    LlmRequest,
    LlmResponse,
    Planned,
    RateLimitWait,
    RunStarted,
    StageAwaiting,
    StageDecided,
    StageFinished,
    StagesAdded,
    StageStarted,
    StageWithheld,
)
from orch23.model.event_data import EventData, StageStatus
from orch23.model.text import format_duration, join_first, parse_amount, visible_line
from orch23.report.values import format_counts, pluralize, truncate
from orch23.resolve.commands import typed_command

_KEPT_LINES = 2
_WAITING = "waiting for "
_ZERO = Decimal(0)
_MAX_SIMULATED = 2_000
_UNDONE = (StageStatus.BLOCKED, StageStatus.CANCELLED, StageStatus.AWAITING)


class RunningStage(Struct, kw_only=True):
    """A stage that runs. `since` is a time of the clock, `doing` what it does or waits for.

    `lines` are the last ones that its step printed or its model wrote, as they came, and `line` the one that is not
    complete yet. `attempt_since` is when this attempt started, `received` the characters of the response so far, in
    complete lines.
    """

    name: str
    since: float
    attempt: int = 1
    attempt_since: float | None = None
    received: int = 0
    attempts: int = 1
    doing: str = "starting"
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    line: str = ""

    def begin(self, doing: str) -> None:
        """Note what it does from now on, which has printed nothing yet."""
        self.doing, self.line = doing, ""
        self.lines.clear()

    def last_lines(self, count: int) -> list[str]:
        """Return at most `count` of the last lines, the oldest first."""
        lines = [*self.lines, self.line] if self.line else [*self.lines]
        return lines[-count:] if count else []


class RunningStages(Struct, kw_only=True):
    """The running stages of a build by name, in the order in which they started. Not safe for several threads.

    `names` are the stages of the build that are known, in the order of the plan, `ended` how those that ended did.
    """

    stages: dict[str, RunningStage] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    ended: dict[str, StageStatus] = field(default_factory=dict)
    calls: int = 0
    cost: Decimal = _ZERO
    limit: Decimal | None = None
    jobs: int = 1
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    items: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _forfeited: Decimal = _ZERO
    _reserved: dict[tuple[str, str], Decimal] = field(default_factory=dict)

    @property
    def possible_cost(self) -> Decimal:
        """What calls in progress, and calls without a known outcome, may cost besides."""
        return sum(self._reserved.values(), self._forfeited)

    def progress(self) -> str:
        """Return how many stages are done: `16 of 41 stages done, 1 failed, 24 blocked`.

        One that did not run because others failed is not done. A skipped one does not count.
        """
        ends = Counter(self.ended.get(name) for name in self.names)
        total = len(self.names) - ends[StageStatus.SKIPPED]
        done = total - ends[None] - sum(ends[one] for one in _UNDONE)
        counts = format_counts({one.value: ends[one] for one in (StageStatus.FAILED, *_UNDONE)})
        return f"{done:,} of {pluralize(total, 'stage')} done{', ' if counts else ''}{counts}"

    def kind_of(self, name: str) -> str:
        """Return the kind of a stage, or of the `foreach` that it is an item of."""
        return self.kinds.get(name) or self.kinds.get(name.partition("@")[0], "")

    leaves_out: ClassVar[str] = (
        "notice run_finished shared_cache stage_restored promoted released files_proposed check_result "
        "attempt_finished command_ran step_output call_submitted batch_submitted batch_waiting llm_text"
    )

    def notice(self, event: Event, now: float) -> None:
        """Follow one event."""
        name, data = event.role, event.data
        match data:
            case RunStarted(limits=limits, jobs=jobs):
                self.limit = parse_amount(limits.max_cost_usd) if limits else None
                self.jobs = jobs
            case Planned(stages=stages, needs=needs):
                self.kinds |= stages
                self.names |= dict.fromkeys(stages)
                self.needs |= needs
            case StagesAdded(items=items):
                self.items[name] = items
                self.names = dict.fromkeys(data.put_into(self.names, name))
            case StageStarted():
                self.stages[name] = RunningStage(name=name, since=now)
            case StageFinished(status=status):
                self.stages.pop(name, None)
                self.ended[name] = status
            case StageDecided() | StageWithheld() | StageAwaiting():
                self.stages.pop(name, None)
            case CallReserved() | CallSettled():
                self._pay(name, data)
            case _:
                self._follow(self.stages.get(name), data, now)

    def _pay(self, name: str, data: CallReserved | CallSettled) -> None:
        reserved = self._reserved.pop((name, data.fingerprint), _ZERO)
        amount = parse_amount(data.cost) or _ZERO
        if isinstance(data, CallReserved):
            self._reserved[name, data.fingerprint] = amount
            if name in self.stages and self.stages[name].doing.startswith("waiting for a rate limit"):
                self.stages[name].begin("sending the request")
        elif data.forfeited:
            self._forfeited += amount or reserved
            self.calls += data.calls
        elif not data.released:
            self.cost += amount
            self.calls += data.calls

    def _follow(self, stage: RunningStage | None, data: EventData, now: float) -> None:
        if stage is None:
            return
        match data:
            case AttemptStarted(attempt=attempt, max_attempts=most):
                stage.attempt, stage.attempts, stage.attempt_since = attempt, most, now
                stage.begin("starting")
            case LlmRequest(recorded=True):
                stage.begin("reading the recorded response")
            case LlmRequest(provider=provider, model=model):
                stage.received = 0
                stage.begin(f"{_WAITING}{provider} {model}")
            case RateLimitWait(provider=provider, wait_s=wait_s):
                about = f", about {format_duration(wait_s)}" if wait_s else ""
                stage.begin(f"waiting for a rate limit of {provider}{about}")
            case HttpRetry(status=status, code=code, delay_s=delay_s):
                stage.begin(f"sending the request again in {format_duration(delay_s)} ({status or code})")
            case LlmResponse():
                stage.begin("checking the response")

    # ---- how long the rest takes --------------------------------------------------------------

    def left_s(self, usual_s: Mapping[str, float], now: float) -> float | None:
        """Return how long the rest of the build takes if every stage runs, and takes as long as before.

        `usual_s` has the usual duration of stages by name, and of all items of a `foreach` by its name. None if that of
        a stage is not known, or there are too many stages to look at.
        """
        left = [name for name in self.names if name not in self.ended]
        if len(left) > _MAX_SIMULATED:
            return None
        # On a cluster, as many as run now.
        workers, ends = [0.0] * (self.jobs or max(1, len(self.stages))), dict[str, float]()
        # Those that run come first: they have their workers already.
        for name in sorted(left, key=lambda one: one not in self.stages):
            family = name.partition("@")[0]
            usual = usual_s.get(name, usual_s.get(family))
            if usual is None:
                return None
            running = self.stages.get(name)
            free, needs = workers.index(min(workers)), self.needs.get(name) or self.needs.get(family, ())
            before = [one for up in needs for one in self.items.get(up, (up,))]
            begins = max(workers[free], *(ends.get(one, 0.0) for one in before), 0.0)
            took = 0.0 if running is None else now - running.since
            ends[name] = workers[free] = begins + max(0.0, usual - took)
        return max(ends.values(), default=0.0)

    # ---- what steps print and models write ----------------------------------------------------

    def step(self, name: str, step: str) -> None:
        """Note that a stage runs a step."""
        if (stage := self.stages.get(name)) is not None:
            stage.begin(step)

    def print(self, name: str, lines: Iterable[str], line: str) -> None:
        """Note the complete lines that a step of a stage printed or a model wrote, and the one that is not complete."""
        if (stage := self.stages.get(name)) is not None:
            complete = [*lines]
            stage.received += sum(len(one) + 1 for one in complete)
            stage.lines.extend(one for one in complete if one.strip())
            stage.line = line.rstrip()
            if stage.doing.startswith(_WAITING):
                stage.doing = f"receiving from {stage.doing.removeprefix(_WAITING)}"


# After so many seconds there is a line about a stage, then each time its duration has doubled, at the latest after:
_FIRST_S = 10.0
_MOST_S = 120.0
_PROGRESS_S = 30.0
_MAX_NAMES = 5
_MAX_DOING = 100


class Heartbeat(Struct):
    """Decides which lines are due, and when."""

    _due_s: dict[str, float] = field(default_factory=dict)
    _progressed: str = ""
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
        names = [_described(one, now) for one in due]
        return [f"still running: {join_first(names, _MAX_NAMES)}"] if due else []

    def _progress(self, running: RunningStages, now: float) -> list[str]:
        if self._since is None:
            self._since = now
        if now - self._since < _PROGRESS_S or (progress := running.progress()) == self._progressed:
            return []
        self._since, self._progressed = now, progress
        return [progress]


def _described(stage: RunningStage, now: float) -> str:
    attempt = ""
    if stage.attempt > 1:
        since = stage.since if stage.attempt_since is None else stage.attempt_since
        attempt = f", attempt {stage.attempt} for {format_duration(now - since)}"
    doing = truncate(visible_line(typed_command(stage.doing).strip()), _MAX_DOING)
    if stage.doing.startswith("receiving from "):
        doing += f", {pluralize(stage.received + len(stage.line), 'character')}"
    return f"{visible_line(stage.name)} ({format_duration(now - stage.since)}{attempt}: {doing})"
