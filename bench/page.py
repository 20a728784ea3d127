"""Write the figures of docs/performance.md and README.md from the newest results: `python -m bench.page`."""

import re
from collections.abc import Iterator
from pathlib import Path

from bench import goals, growth
from bench.environments import TREE
from bench.figures import milliseconds, spread, times
from bench.many_inputs import CASES
from bench.missed_edits import KINDS
from bench.model_calls import BEFORE_S
from bench.results import MISSED, Results, newest, read
from bench.scenarios import (
    BUILT,
    EDITED_INPUTS,
    EDITED_STAGE,
    FIRST,
    FIRST_CAT,
    FIRST_PLAN,
    FIRST_TWO,
    HELP,
    LEAF,
    LEAF_CAT,
    NOTHING,
    NOTHING_CAT,
    PLAN,
    TAMPERED,
    VERSION,
)
from bench.table import cell, markdown

BEGIN = "<!-- figures: made by `python -m bench.page`, not by hand -->"
END = "<!-- end of figures -->"
_FIGURES = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)


def publish(file: Path, tree: Path) -> None:
    """Put the figures of these results into the page and the README."""
    results = read(file)
    for name, text in (
        (Path("docs", "performance.md"), figures(results, file.name)),
        (Path("README.md"), brief(results)),
    ):
        place = tree / name
        place.write_text(with_figures(place.read_text(encoding="utf-8"), text), encoding="utf-8")


def with_figures(page: str, text: str) -> str:
    """Return a page with these figures in the place of those it has."""
    if len(_FIGURES.findall(page)) != 1:
        message = f"the page has no one place for figures: {BEGIN}"
        raise ValueError(message)
    return _FIGURES.sub(lambda _: f"{BEGIN}\n{text}\n{END}", page)


def brief(results: Results) -> str:
    """Return what the README says: our time, and the ratio to ninja in the same run."""
    reported: list[tuple[str, str, str, str]] = []
    for what, scenario in (("nothing to do", NOTHING), ("`plan`", PLAN), ("one leaf edited", LEAF)):
        for size in (100, 1_000, 10_000):
            ours, theirs = (results.find(tool, scenario.name, size) for tool in (goals.OURS, "ninja"))
            if ours is not None and theirs is not None:
                ratio = times(ours.wall.middle / theirs.wall.middle)
                reported.append(
                    (f"{what}, {size:,} stages", _ms(ours.wall.middle), _ms(theirs.wall.middle), f"{ratio}")
                )
    head = ("", "orch23", "ninja", "ratio")
    return f"\n{markdown(head, reported)}\n\nMeasured {results.date}, both in turns in one run.\n"


def figures(results: Results, file: str) -> str:
    """Return all generated sections of the page."""
    return "\n".join(_sections(results, file))


def _sections(results: Results, file: str) -> Iterator[str]:
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    yield f"\nMeasured {results.date}, by `{results.command}`: [bench/results/{file}](../bench/results/{file})."
    yield f"{machine}.\n"
    yield "## The goals\n"
    yield markdown(("what", "goal", "against", "measured", "floor", ""), list(goals.rows(results)))
    yield "\n## All tools\n\nThe median wall time in milliseconds, by number of stages.\n"
    scenarios = (FIRST, FIRST_CAT, FIRST_TWO, FIRST_PLAN, *BUILT, NOTHING_CAT, LEAF_CAT, EDITED_INPUTS, EDITED_STAGE)
    for name in (*(scenario.name for scenario in scenarios), *CASES):
        yield from _scenario(results, name)
    yield from _starts(results)
    yield from _every_command(results)
    yield from _histories(results)
    yield from _costs(results)
    yield from _waiting(results)
    yield from _versions(results)


def _sizes(results: Results) -> list[int]:
    return sorted({one.size for one in results.measurements} - {0})


def _tools(results: Results, scenario: str) -> list[str]:
    return list(dict.fromkeys(one.tool for one in results.measurements if one.scenario == scenario))


def _scenario(results: Results, scenario: str) -> Iterator[str]:
    order = [*results.versions, *results.missing]
    tools = sorted(_tools(results, scenario), key=lambda tool: order.index(tool) if tool in order else len(order))
    if not tools:
        return
    sizes = [size for size in _sizes(results) if any(results.look_up(tool, scenario, size) for tool in tools)]
    rows = [[tool, *(cell(results.look_up(tool, scenario, size)) for size in sizes)] for tool in tools]
    yield f"### {scenario}\n"
    yield markdown((scenario, *(f"{size:,}" for size in sizes)), rows)
    if scenario == TAMPERED.name:
        missed = [one for one in results.measurements if (one.scenario, one.outcome) == (scenario, MISSED)]
        blind = sorted({one.tool for one in missed})
        yield f"\n*missed*: its size and time were put back, and nothing is noticed: {', '.join(blind) or 'none'}."
    yield ""


def _starts(results: Results) -> Iterator[str]:
    yield "### Starting\n\nMilliseconds of wall time; the first row is Python alone.\n"
    tools = _tools(results, VERSION.name)
    rows = [[tool, *(cell(results.look_up(tool, one.name, 0)) for one in (VERSION, HELP))] for tool in tools]
    yield markdown(("", "`--version`", "`--help`"), rows)
    yield ""


def _every_command(results: Results) -> Iterator[str]:
    if not results.growth:
        return
    yield "## Growth of every command\n"
    yield "CPU time of orch23 in milliseconds, in brackets per stage; then per added stage, from one size to the next; "
    yield "then how many times that is of the step before, which counts as at least "
    yield f"{growth.NOISE_S * 1e6:.0f} µs.\n"
    yield markdown(growth.head(results.growth), list(growth.rows(results.growth)))
    fell = [one for one in results.growth if not one.wall_s]
    yield from (f"\n{one.scenario}, {one.size:,}: {one.outcome}, {_line(one.note)}" for one in fell)
    yield ""


def _histories(results: Results) -> Iterator[str]:
    yield "## Missed edits\n\nThe same random edits for every tool, a build after each, no pause. Missed of made.\n"
    rows = []
    for one in results.histories:
        counts = [f"{one.missed.get(kind, 0)} of {one.made.get(kind, 0)}" for kind in KINDS]
        rows.append([one.tool, *counts, " ".join(one.note.split())[:80]])
    yield markdown(("", *KINDS, "remark"), rows)
    yield ""


def _costs(results: Results) -> Iterator[str]:
    yield "## What the sandbox costs a stage\n"
    yield "Sandbox directory and result included, in turns: the median, and 8 of 10.\n"
    plain = {one.work: spread(one.wall_s).middle for one in results.stage_costs if one.kind == "no sandbox"}
    rows = []
    for one in results.stage_costs:
        if not one.wall_s:
            yield f"{one.kind}: {one.note}\n"
            continue
        ordered = sorted(one.wall_s)
        low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
        middle = spread(one.wall_s).middle
        eight = f"{milliseconds(low)} to {milliseconds(high)}"
        rows.append([f"`{one.work}`, {one.kind}", milliseconds(middle), eight, f"{times(middle / plain[one.work])}"])
    yield markdown(("", "ms", "8 of 10", ""), rows)
    yield ""


def _waiting(results: Results) -> Iterator[str]:
    if not results.waiting:
        return
    yield "## Waiting for models\n\nForty stages that ask a model which answers after 1 s, a pool of 8; seconds.\n"
    rows = []
    for one in results.waiting:
        parts = (one.whole_s, one.later_s, one.calls_s, one.interrupt_s)
        rows.append([one.provider, *(f"{spread(part).middle:.2f}" if part else "-" for part in parts)])
    later = f"the same after {BEFORE_S:g} s of another stage, without these"
    head = ("", "from start to end", later, "from the first question to the last answer", "Ctrl-C while eight wait")
    yield markdown(head, rows)
    yield ""


def _versions(results: Results) -> Iterator[str]:
    yield "## The tools\n"
    rows = [[name, version, results.remarks.get(name, "")] for name, version in results.versions.items()]
    rows += [[name, "not here", reason] for name, reason in results.missing.items()]
    yield markdown(("", "version", "remark"), rows)
    fell = [one for one in results.measurements if not one.wall_s]
    if fell:
        yield "\nNot measured:\n"
        yield from (
            f"- {one.tool}, {one.size:,} stages, {one.scenario}: {one.outcome}, {_line(one.note)}" for one in fell
        )


def _line(text: str) -> str:
    """Return a tool's words on one line, and no longer than that."""
    return " ".join(text.replace("|", "/").split())[:160]


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds)} ms"


if __name__ == "__main__":
    publish(newest(), TREE)
