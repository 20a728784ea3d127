"""Show a build on a screen, one line a stage: an observer that writes text."""

from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import cast, get_args

from msgspec import Struct, field

from orch23.model.digest import Json
from orch23.model.event import Event
from orch23.model.manifest import Reason, ReasonCode
from orch23.model.pipeline import Pipeline
from orch23.report.diagnostics import visible
from orch23.report.failures import failure_text
from orch23.report.figures import count, counts, duration
from orch23.report.marks import MOST_DULL_LINES, Style
from orch23.report.money import money
from orch23.report.reasons import words
from orch23.report.stage_line import is_unpriced, money_of, number_of, stage_line, text_of, texts_of

_ORDER = ("built", "restored", "verified", "fresh", "skipped", "held", "failed", "edited", "blocked", "cancelled")
REASON_CODES: tuple[str, ...] = get_args(ReasonCode)
_DULL = frozenset({"fresh", "skipped"})
_TOLD = frozenset({"failed", "edited", "held"})
"""How a stage ends that is told of once more when all is over; the ends of the others are not kept."""


class _Sums(Struct):
    """What the stages that ended come to."""

    statuses: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    recorded: int = 0
    unpriced: int = 0
    cost: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)

    def add(self, data: Mapping[str, Json]) -> None:
        """Add how one ended."""
        self.statuses[text_of(data, "status")] += 1
        self.calls += int(number_of(data, "calls"))
        self.input_tokens += int(number_of(data, "input_tokens"))
        self.output_tokens += int(number_of(data, "output_tokens"))
        self.recorded += int(number_of(data, "recorded"))
        self.unpriced += is_unpriced(data)
        self.cost += money_of(data, "cost") or Decimal(0)
        self.saved += money_of(data, "saved") or Decimal(0)


class TextScreen(Struct, kw_only=True):
    """Writes a build as text. Nothing is written before something happens: a build with nothing to do is one line.

    `quiet` leaves only warnings and failures; `verbose` adds why each stage runs, and its attempts.
    """

    pipeline: Pipeline
    write: Callable[[str], None]
    clock: Callable[[], float]
    style: Style
    quiet: bool = False
    verbose: bool = False
    _began: float = 0.0
    _head: str = ""
    _log: str = ""
    _held: list[Event] = field(default_factory=list)
    _sums: _Sums = field(default_factory=_Sums)
    _last: dict[str, Event] = field(default_factory=dict)
    _again: dict[str, list[str]] = field(default_factory=dict)
    _restored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _width: int = 0
    _open: bool = False
    _total: int = 0
    _at_rest: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Take kinds and names of the declared stages."""
        self._kinds = {stage.name: stage.kind for stage in self.pipeline.stages}
        self._width = max((len(name) for name in self._kinds), default=0)
        self._began = self.clock()

    def notice(self, event: Event) -> None:  # noqa: C901 - one a kind of event
        """Take one event."""
        match event.type:
            case "run_started":
                self._start(event)
            case "stages_added":
                self._width = max([self._width, *(len(name) for name in texts_of(event.data, "items"))])
            case "stage_decided":
                self._decided(event)
            case "attempt_started" | "attempt_finished" | "check_result" | "stage_held":
                self._attempt(event)
            case "http_retry":
                self._retry(event)
            case "promoted":
                self._promoted(event)
            case "released":
                self._released(event)
            case "stage_restored":
                self._restored[event.role] = texts_of(event.data, "files")
            case "stage_finished":
                self._finished(event)
            case "warning" | "healed":
                self._warn(event)
            case "run_finished":
                self._finish(event)
            case _:
                pass

    def _start(self, event: Event) -> None:
        data = event.data
        stages = self._total = int(number_of(data, "stages")) or len(self.pipeline.stages)
        at_rest = _below(event, "at_rest")
        self._at_rest = Counter({status: int(number_of(at_rest, status)) for status in at_rest})
        models = ", ".join(texts_of(data, "model"))
        providers = ", ".join(texts_of(data, "provider"))
        facts = [f"{visible(self.pipeline.name)}: {count(stages, 'stage')}"]
        facts += [f"provider {visible(providers)} model {visible(models)}"] if providers else []
        facts += [f"sandbox: {text_of(data, 'sandbox') or 'none'}"]
        self._head = "   ".join(facts)
        self._log = f"logs/{text_of(data, 'run_id')}.jsonl"

    def _decided(self, event: Event) -> None:
        if self.verbose and text_of(event.data, "decision") not in _DULL:
            self._show()
            reasons = event.data.get("reasons")
            told = [_reason(one) for one in reasons] if isinstance(reasons, list | tuple) else []
            decision = text_of(event.data, "decision")
            self._line(f"   {visible(event.role):<{self._width}}  {decision}: {', '.join(told)}".rstrip(": "))

    def _attempt(self, event: Event) -> None:
        if self.verbose:
            self._show()
            self._line(f"   {visible(event.role):<{self._width}}  {visible(event.message)}")

    def _retry(self, event: Event) -> None:
        status = event.data.get("status")
        cause = str(status) if isinstance(status, int) else text_of(event.data, "code")
        self._again.setdefault(event.role, []).append(cause)
        self._attempt(event)

    def _promoted(self, event: Event) -> None:
        removed = texts_of(event.data, "removed")
        if removed and event.role == "orch23" and not self.quiet:
            self._show()
            names = visible(" ".join(removed))
            self._line(f" {self.style.marks.idle} removed, since no stage makes it any more: {names}")

    def _released(self, event: Event) -> None:
        files = texts_of(event.data, "files")
        if files and not self.quiet:
            self._show()
            self._line(f" {self.style.marks.idle} released, now a source: {visible(' '.join(files))}")

    def _finished(self, event: Event) -> None:
        self._sums.add(event.data)
        if text_of(event.data, "status") in _TOLD:
            self._last[event.role] = event
        else:  # a stage that was decided twice counts as it ended last
            self._last.pop(event.role, None)
        self._width = max(self._width, len(event.role))
        if text_of(event.data, "status") in _DULL and not self.verbose:
            if self._total > MOST_DULL_LINES:
                return
            if not self._open:
                self._held.append(event)
                return
        self._show()
        self._stage(event)

    def _stage(self, event: Event) -> None:
        kind = self._kinds.get(event.role.partition("@")[0], "")
        again, restored = self._again.pop(event.role, ()), self._restored.get(event.role, ())
        self._line(stage_line(event, kind, self._width, self.style, again=again, restored=restored))

    def _warn(self, event: Event) -> None:
        if event.data.get("of_steps") and not self._open:  # of no interest to a build that runs none
            self._held.append(event)
            return
        self._show()
        sign_ = self.style.paint("warning", "notice")
        role = "" if event.role == "orch23" else f"{visible(event.role)}: "
        self.write(f"{sign_}: {role}{visible(event.message)}\n")

    def _show(self) -> None:
        """Write the first line, and what was held back since nothing else had happened."""
        if self._open:
            return
        self._open = True
        if self._head:
            self._line(self._head)
        for event in self._held:
            if event.type == "warning":
                self._warn(event)
            else:
                self._stage(event)
        self._held.clear()

    def _line(self, text: str) -> None:
        if not self.quiet:
            self.write(f"{text}\n")

    # ---- the end --------------------------------------------------------------------------

    def _finish(self, event: Event) -> None:
        statuses = self._at_rest + self._sums.statuses
        if not self._open and event.data.get("exit_code") == 0:
            skipped = f", {statuses['skipped']} skipped" if statuses["skipped"] else ""
            stages = count(statuses.total() - statuses["skipped"], "stage")
            self._line(f"{visible(self.pipeline.name)}: up to date ({stages}{skipped})")
            return
        self._show()
        self._line(self._summary(statuses, event))
        told = failure_text(self.pipeline, [*self._last.values()], self._kinds, self.style)
        self.write(told)
        if told or event.data.get("exit_code") != 0:
            word = self.style.paint(text_of(event.data, "status") or "failed", "bad")
            self.write(f"\n{word}: the log is {self._log}; `orch23 log` shows it\n")

    def _summary(self, statuses: Counter[str], event: Event) -> str:
        sums = self._sums
        calls, recorded, saved = sums.calls, sums.recorded, sums.saved
        facts = [f" {count(statuses.total(), 'stage')}: {counts({name: statuses[name] for name in _ORDER})}"]
        facts += [duration(self.clock() - self._began)]
        spent = [count(calls, "call")] if calls else []
        tokens = f"{sums.input_tokens:,}+{sums.output_tokens:,} tokens"
        spent += [tokens] if calls and (sums.input_tokens or sums.output_tokens) else []
        spent += self._money(event)
        facts += [", ".join(spent)] if spent else []
        facts += [f"saved {count(recorded, 'call')}{f', {money(saved)}' if saved else ''}"] if recorded else []
        return "   ".join(facts)

    def _money(self, event: Event) -> list[str]:
        """Return what was paid, of how much; nothing where nothing was, and no sum that leaves something out."""
        limits, before = _below(event, "limits"), money_of(_below(event, "before"), "cost")
        most = money_of(limits, "max_cost_usd")
        unpriced, cost = self._sums.unpriced, self._sums.cost
        limit = f" of {money(most)}" if most is not None else ""
        paid = [f"{money(cost)}{limit}"] if cost else []
        paid += [f"{money(before)} before it was interrupted"] if before else []
        if not unpriced:
            return paid
        return [*paid, f"and {count(unpriced, 'stage')} of unknown price"] if paid else ["price unknown"]


def _below(event: Event, name: str) -> Mapping[str, Json]:
    found = event.data.get(name)
    return found if isinstance(found, Mapping) else {}


def _reason(value: object) -> str:
    if not isinstance(value, dict) or value.get("code") not in REASON_CODES:
        return ""
    return words(Reason(cast("ReasonCode", value["code"]), str(value.get("subject", ""))))
