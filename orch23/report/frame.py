"""Compose the rows at the bottom of a terminal that show what a build is doing."""

from collections.abc import Callable

from msgspec import Struct
from rich.cells import cell_len
from rich.text import Text

from orch23.model.text import format_duration, format_money, visible_line
from orch23.report.running import RunningStage, RunningStages
from orch23.report.terminal import TerminalLine, fit_lines
from orch23.report.values import ASCII, Style, Tone, pluralize
from orch23.resolve.commands import typed_command

# A taller frame would leave too little of the lines above it.
_MAX_ROWS = 24
_MIN_ROWS = 3
_MAX_COLUMNS = 100
# A terminal that becomes so narrow breaks the rows. Those that then leave the screen at its top cannot be removed.
_NARROW = 40
_SHOWN_LINES = 2
_KIND_WIDTH = 8
_LOW = 10
_TAB = 4


class Frame(Struct, frozen=True, kw_only=True):
    """What the rows show at the time `now` of a build that began at `since`, on a terminal of `columns` by `lines`.

    `width` is the width of the names in the lines above. `redact` removes secrets from what steps print. `left_s`
    is the expected rest of the build, None if it is not known.
    """

    running: RunningStages
    now: float
    since: float
    columns: int
    lines: int
    style: Style
    width: int = 0
    redact: Callable[[str], str] = str
    left_s: float | None = None

    def rows(self) -> list[TerminalLine]:
        """Return the rows, each of them shorter than the terminal is wide, and of at most 100 columns."""
        stages = [*self.running.stages.values()]
        totals = self._totals()
        at_most = self.lines // max(2, -(-self._width // _NARROW))
        height = max(_MIN_ROWS, min(_MAX_ROWS, at_most)) - len(totals)
        shown = stages if len(stages) <= height else stages[: height - 1]
        spare = (height - len(shown) - (shown != stages)) // max(1, len(shown))
        names = [visible_line(stage.name) for stage in shown]
        width = min(max((self.width, *map(cell_len, names))), max(1, self.columns // 3))
        rows = []
        for stage, name in zip(shown, names, strict=True):
            rows.append(self._stage(stage, self._cut(name, width)))
            rows += [self._output(line) for line in stage.last_lines(min(_SHOWN_LINES, spare))]
        if len(shown) < len(stages):
            rows.append(self._row(f"   and {len(stages) - len(shown):,} more", "quiet"))
        return [*rows, *totals]

    @property
    def _width(self) -> int:
        # Some terminals go to the next line with the last column.
        return max(1, min(self.columns - 1, _MAX_COLUMNS))

    def _stage(self, stage: RunningStage, name: str) -> TerminalLine:
        mark = f" {self.style.marks.run} "
        attempt = f"attempt {stage.attempt} of {stage.attempts}, " if stage.attempt > 1 else ""
        kind, time = self.running.kind_of(stage.name), format_duration(max(0.0, self.now - stage.since))
        doing = f"{attempt}{visible_line(self.redact(typed_command(stage.doing)).strip())}"
        rest = self._row(f"{name}  {kind:<{_KIND_WIDTH}} {time:>7}   {doing}", "plain", before=len(mark))
        return TerminalLine(f"{self.style.paint(mark, 'notice')}{rest.text}", len(mark) + rest.columns)

    def _output(self, line: str) -> TerminalLine:
        # Programs print colors and cursor movements: only the characters are shown.
        plain = Text.from_ansi(self.redact(line).expandtabs(_TAB)).plain
        return self._row(f"   | {visible_line(plain)}", "quiet")

    def _totals(self) -> list[TerminalLine]:
        running = f"{len(self.running.stages):,} running"
        facts = [f" {self.running.progress()}, {running}", format_duration(max(0.0, self.now - self.since))]
        facts += self._spent()
        facts += [f"up to {format_duration(self.left_s)} left"] if self.left_s is not None else []
        lines = fit_lines("   ".join(facts), self._width).split("\n")
        # On a low terminal one row is all that is left.
        return [self._row(line, "strong") for line in lines[: 1 if self.lines < _LOW else None]]

    def _spent(self) -> list[str]:
        run = self.running
        known, possible = run.cost, run.possible_cost
        facts = [pluralize(run.calls, "call")] if run.calls else []
        if known or possible:
            limit = f" of {format_money(run.limit)}" if run.limit is not None else ""
            facts += [f"{format_money(known)}{limit}"]
            facts += [f"at most {format_money(possible)} more"] if possible else []
        return [", ".join(facts)] if facts else []

    def _row(self, text: str, tone: Tone, *, before: int = 0) -> TerminalLine:
        cut = self._cut(text, max(1, self._width - before), pad=False)
        return TerminalLine(self.style.paint(cut, tone), cell_len(cut))

    def _cut(self, text: str, width: int, *, pad: bool = True) -> str:
        if self.style.marks is ASCII:
            # The terminal may not have the other characters, and an escape is wider than its character.
            text = text.encode("ascii", "backslashreplace").decode()
        row = Text(text.replace("\ufe0f", ""))  # some terminals show the character before it wider
        row.truncate(width, overflow="crop" if self.style.marks is ASCII else "ellipsis", pad=pad)
        return row.plain
