"""Results as rows of text: for the terminal, and for the tables of the page."""

from collections.abc import Iterator, Sequence

from bench.figures import mebibytes, milliseconds, times
from bench.results import FAILED, MISSED, RIGHT, Measurement, Results

BASES = ("ninja", "make -rR")


def lines(results: Results) -> Iterator[str]:
    """Give one line for each measurement, with the ratios to ninja and make in the same run."""
    yield (
        f"\n{'stages':>7}  {'scenario':<32} {'tool':<16} {'wall ms':>10} {'quarters':>19} {'CPU ms':>9} {'MiB':>6}  "
        + ("  ".join(f"x {base}" for base in BASES))
    )
    for one in sorted(results.measurements, key=lambda row: (row.size, row.scenario)):
        start = f"{one.size:>7,}  {one.scenario:<32} {one.tool:<16}"
        if not one.wall_s:
            yield f"{start} {one.outcome}: {one.note}"
            continue
        quarters = f"{milliseconds(one.wall.low)} to {milliseconds(one.wall.high)}"
        ratios = "  ".join(f"{_against(results, one, base):>{len(base) + 2}}" for base in BASES)
        reported = "" if one.outcome == RIGHT else f"  {one.outcome}"
        ran = "" if one.ran is None else f"  {one.ran} ran"
        yield (
            f"{start} {milliseconds(one.wall.middle):>10} {quarters:>19} {milliseconds(one.cpu.middle):>9} "
            f"{mebibytes(one.memory):>6}  {ratios}{reported}{ran}"
        )


def _against(results: Results, one: Measurement, base: str) -> str:
    other = results.find(base, one.scenario, one.size)
    return times(one.wall.middle / other.wall.middle) if other is not None else ""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of a page; all columns but the first are numbers as a rule."""
    ruler = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ruler, *rows))


def cell(one: Measurement | None) -> str:
    """Return a measurement as a cell: the median in milliseconds, or why there is none."""
    if one is None:
        return "-"
    if not one.wall_s:
        return one.outcome
    mark = {RIGHT: "", MISSED: " *missed*", FAILED: " *failed*"}.get(one.outcome, f" *{one.outcome}*")
    return milliseconds(one.wall.middle) + mark
