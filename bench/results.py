"""What a run of the bench found, as values and as JSON."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Spread, spread
from bench.measure import Run

RESULTS = Path(__file__).resolve().parent / "results"
RIGHT = "right"
MISSED = "missed"
FAILED = "failed"
CAPPED = "capped"
NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One tool in one scenario at one size: what each round took, and whether the outputs were right afterwards."""

    tool: str
    size: int
    scenario: str
    outcome: str
    wall_s: tuple[float, ...] = ()
    cpu_s: tuple[float, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    ran: int | None = None
    note: str = ""

    @property
    def wall(self) -> Spread:
        """Return the wall times' median and quartiles."""
        return spread(self.wall_s)

    @property
    def cpu(self) -> Spread:
        """Return the processor times' median and quartiles."""
        return spread(self.cpu_s)

    @property
    def memory(self) -> int:
        """Return the greatest peak."""
        return max(self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Histories:
    """One tool in random histories: of each kind of edit, how many were made and how many were missed."""

    tool: str
    seed: int
    made: Mapping[str, int]
    missed: Mapping[str, int]
    note: str = ""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one kind of sandbox costs a process: times of the same work in turns with the others."""

    kind: str
    work: str
    wall_s: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Forty calls through a pool of eight: from start to end, from the first question to the last answer, Ctrl-C.

    `later_s` is from start to end if another stage takes two seconds before all calls, without these two.
    """

    provider: str
    whole_s: tuple[float, ...]
    calls_s: tuple[float, ...]
    interrupt_s: tuple[float, ...]
    later_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EditCost:
    """What an edit of the pipeline of twenty stages costs in calls, of those that making everything again takes."""

    edit: str
    calls: int
    whole: int


@dataclass(frozen=True, slots=True)
class Results:
    """All of one run of the bench."""

    date: str
    form: str
    command: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    missing: Mapping[str, str]
    measurements: tuple[Measurement, ...]
    histories: tuple[Histories, ...] = ()
    stage_costs: tuple[StageCost, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    edit_costs: tuple[EditCost, ...] = ()
    growth: tuple[Measurement, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)

    def find(self, tool: str, scenario: str, size: int) -> Measurement | None:
        """Return a measurement that has times, or None."""
        found = self.look_up(tool, scenario, size)
        return found if found is not None and found.wall_s else None

    def grown(self, case: str, size: int) -> Measurement | None:
        """Return a measurement of the table of growth that has times, or None."""
        found = (one for one in self.growth if (one.scenario, one.size) == (case, size) and one.wall_s)
        return next(found, None)

    def look_up(self, tool: str, scenario: str, size: int) -> Measurement | None:
        """Return what is known of a tool in a scenario at a size, with times or without, or None."""
        for one in self.measurements:
            if (one.tool, one.scenario, one.size) == (tool, scenario, size):
                return one
        return None


_LISTS: Mapping[str, Callable[..., Any]] = {
    "measurements": Measurement,
    "histories": Histories,
    "stage_costs": StageCost,
    "waiting": Waiting,
    "edit_costs": EditCost,
    "growth": Measurement,
}


def measurement(
    *, tool: str, size: int, scenario: str, runs: Iterable[Run], outcome: str, ran: int | None = None, note: str = ""
) -> Measurement:
    """Return runs as a measurement, with as many digits as they deserve."""
    kept = list(runs)
    return Measurement(
        tool,
        size,
        scenario,
        outcome,
        tuple(round(run.wall_s, 5) for run in kept),
        tuple(round(run.cpu_s, 5) for run in kept),
        tuple(run.memory_bytes for run in kept),
        ran,
        note,
    )


def write(results: Results, path: Path) -> None:
    """Write results as JSON, one measurement a line."""
    body = asdict(results)
    lists = {name: body.pop(name) for name in _LISTS}
    text = json.dumps(body, indent=1, ensure_ascii=False)[:-2]
    for name, rows in lists.items():
        text += f',\n "{name}": [\n' + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows) + "\n ]"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n}\n", encoding="utf-8")


def read(path: Path) -> Results:
    """Read results back."""
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name, kind in _LISTS.items():
        body[name] = tuple(kind(**_tuples(row)) for row in body.get(name, ()))
    return Results(**body)


def newest(folder: Path = RESULTS) -> Path:
    """Return the file of the newest results, which the page is made from."""
    files = sorted(folder.glob("*.json"))
    if not files:
        message = f"{folder} holds no results: make bench-long writes some"
        raise FileNotFoundError(message)
    return files[-1]


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
