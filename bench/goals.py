"""The goals of speed: what each asks for, and what the results say of it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.course import PYTHON
from bench.figures import milliseconds, spread, times
from bench.growth import factors
from bench.growth_cases import (
    AT_ONCE,
    EDITED_ITEM,
    EDITED_LINE,
    EXPLAIN,
    FORCED,
    GENERATED,
    LITERAL,
    SETTLED,
    STATUS,
    WITH_GLOB,
    name_of,
)
from bench.growth_cases import FIRST_PLAN as GROWTH_FIRST_PLAN
from bench.many_inputs import COPY, FAILING, TIERS, TWICE
from bench.many_inputs import EDITED as EDITED_BESIDE
from bench.model_calls import BEFORE_S, IDEAL_S
from bench.results import Measurement, Results, Waiting
from bench.scenarios import (
    BUILT,
    EDITED_INPUTS,
    EDITED_STAGE,
    FIRST,
    FIRST_CAT,
    FIRST_NOTHING,
    FIRST_PLAN,
    HELP,
    IDENTICAL,
    LEAF,
    LEAF_CAT,
    NOTHING,
    NOTHING_CAT,
    PLAN,
    VERSION,
    Scenario,
)
from bench.tools.floor import FLOOR

OURS = "orch23"
HEAVY = ("DVC", "Snakemake", "go-task", "doit", "SCons", "turborepo", "wireit")
ENOUGH_EDITS = 100
MB = 1_000_000
MOST_ADDED = 1.5
OVER_FLOOR = 1.3
"""A goal below the floor becomes this many times the floor."""
# What the floor does that is like a case of the table of growth, at a size.
_LIKE = {
    (STATUS, 100): NOTHING,
    (EXPLAIN, 100): NOTHING,
    (FORCED, 100): LEAF,
    (f"{AT_ONCE}{WITH_GLOB}", 1_000): FIRST_NOTHING,
    (f"{SETTLED}{WITH_GLOB}", 1_000): NOTHING,
}
_BOLD = re.compile(r"\*\*(.*?)\*\*")


@dataclass(frozen=True, slots=True)
class Judged:
    """What was measured for a goal, as text, and whether that is enough; None if it could not be measured.

    `value` is set where a floor can be measured too: if that is above the goal, so much above it is enough.
    """

    measured: str
    met: bool | None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: what it is about, how much is allowed, of what."""

    what: str
    allowed: str
    against: str
    judge: Callable[[Results], Judged]


def _unknown(reason: str) -> Judged:
    return Judged(reason, None)


def _compared(
    ours: Measurement | None, theirs: Measurement | None, most: float, name: str, *, cpu: bool = False
) -> Judged:
    """Compare wall times, or with `cpu` CPU times; the ratio of the others is reported beside."""
    if ours is None:
        return _unknown("not measured")
    took, besides = (ours.cpu, ours.wall) if cpu else (ours.wall, ours.cpu)
    if theirs is None:
        return _unknown(f"{milliseconds(took.middle)} ms; nothing of {name} to compare with")
    took_there, besides_there = (theirs.cpu, theirs.wall) if cpu else (theirs.wall, theirs.cpu)
    found = took.middle / took_there.middle
    both = f"{milliseconds(took.middle)} : {milliseconds(took_there.middle)} ms"
    other = times(besides.middle / besides_there.middle) if besides_there.middle else "-"
    text = f"({'CPU ' * cpu}{both}; {'wall' if cpu else 'CPU'} {other})"
    return Judged(f"**{times(found)}** {text}", found <= most, found)


def _ratio(scenario: Scenario, size: int, most: float, tool: str, *, cpu: bool = False) -> Callable[[Results], Judged]:
    def judge(results: Results) -> Judged:
        ours = results.find(OURS, scenario.name, size)
        return _compared(ours, results.find(tool, scenario.name, size), most, tool, cpu=cpu)

    return judge


def _to_python(
    scenario: Scenario, size: int, most: float, python: str = PYTHON, *, cpu: bool = False
) -> Callable[[Results], Judged]:
    def judge(results: Results) -> Judged:
        ours = results.find(OURS, scenario.name, size)
        return _compared(ours, results.find(python, VERSION.name, 0), most, python, cpu=cpu)

    return judge


def _to_own(case: str, base: str, size: int, most: float, name: str) -> Callable[[Results], Judged]:
    """Compare the CPU times of two cases of the table of growth."""

    def judge(results: Results) -> Judged:
        return _compared(results.grown(case, size), results.grown(base, size), most, name, cpu=True)

    return judge


def _grown_to_python(case: str, size: int, most: float) -> Callable[[Results], Judged]:
    """Compare the CPU time of a case of the table of growth with the start of Python."""

    def judge(results: Results) -> Judged:
        start = results.find(PYTHON, VERSION.name, 0)
        return _compared(results.grown(name_of(LITERAL, case), size), start, most, PYTHON, cpu=True)

    return judge


def _many_inputs(tier: str, most_s: float, files: int = 20_000) -> Callable[[Results], Judged]:
    """Judge the CPU time of an edit beside many input files; the step itself takes some milliseconds."""

    def judge(results: Results) -> Judged:
        ours, copy = (results.find(tool, EDITED_BESIDE, files) for tool in (f"{OURS}, {tier}", COPY))
        if ours is None or copy is None:
            return _unknown("not measured")
        text = f"**{ours.cpu.middle:.2f} s** (wall {ours.wall.middle:.2f} s; `cp -r` CPU {copy.cpu.middle:.2f} s)"
        return Judged(text, ours.cpu.middle <= most_s, ours.cpu.middle)

    return judge


def _second_attempt(results: Results) -> Judged:
    found = []
    for tier in TIERS:
        once, twice = (results.find(f"{OURS}, {tier}", case, 20_000) for case in (FAILING, TWICE))
        if once is not None and twice is not None:
            found.append((twice.cpu.middle - once.cpu.middle, tier))
    if not found:
        return _unknown("not measured")
    worst, tier = max(found)
    return Judged(f"**{worst:.2f} s** at worst ({tier})", worst <= 0.5)  # noqa: PLR2004 - the goal's


def _within(case: str, size: int, most_s: float) -> Callable[[Results], Judged]:
    """Compare the CPU time of a case of the table of growth with seconds."""

    def judge(results: Results) -> Judged:
        found = results.grown(case, size)
        if found is None:
            return _unknown("not measured")
        took = f"**{found.cpu.middle:.2f} s** (wall {found.wall.middle:.2f} s)"
        return Judged(took, found.cpu.middle <= most_s)

    return judge


def _plan_per_stage(results: Results) -> Judged:
    size = 10_000
    ours = results.find(OURS, FIRST_PLAN.name, size)
    if ours is None:
        return _unknown("not measured")
    found = ours.cpu.middle / size
    beside = [
        f"`{command}` {one.cpu.middle * 1000 / size:.3f}"
        for tool, command in (("make", "make -n"), ("make -rR", "make -rRn"))
        if (one := results.find(tool, FIRST_PLAN.name, size)) is not None
    ]
    return Judged(f"**{found * 1000:.2f} ms** ({', '.join(beside) or 'nothing beside it'})", found <= 0.2e-3, found)  # noqa: PLR2004


def _per_added_stage(results: Results) -> Judged:
    found = sorted(((factor, what) for what, factor in factors(results.growth).items()), reverse=True)
    if not found:
        return _unknown("not measured at three sizes")
    worst, (scenario, size) = found[0]
    over = sum(factor > MOST_ADDED for factor, _ in found)
    text = f"**{times(worst)}** at worst ({scenario}, to {size:,}); {over} of {len(found)} steps above"
    return Judged(text, worst <= MOST_ADDED)


def _identical(results: Results) -> Judged:
    ours = results.find(OURS, IDENTICAL.name, 10_000)
    found = _compared(ours, results.find("ninja restat", IDENTICAL.name, 10_000), 3.0, "ninja restat")
    if ours is None or found.met is None:
        return found
    return Judged(
        f"{found.measured}; {ours.ran} ran", found.met and ours.ran == 1, found.value if ours.ran == 1 else None
    )


def _heavy(results: Results) -> Judged:
    found: list[tuple[float, str]] = []
    for size in sorted({one.size for one in results.measurements if one.size >= 1_000}):  # noqa: PLR2004 - the goal's
        for scenario in (NOTHING, PLAN):
            ours = results.find(OURS, scenario.name, size)
            for tool in HEAVY:
                theirs = results.find(tool, scenario.name, size)
                if ours is not None and theirs is not None:
                    what = f"{tool}, {scenario.name}, {size:,}"
                    found.append((ours.wall.middle / theirs.wall.middle, what))
    if not found:
        return _unknown("nothing to compare with")
    worst, of = max(found)
    least, where = min(found)
    return Judged(f"**{times(worst)}** at worst ({of}), {times(least)} at best ({where})", worst <= 0.1)  # noqa: PLR2004


def _own_first(results: Results) -> Judged:
    after, first = (results.find(OURS, one.name, 10_000) for one in (EDITED_STAGE, FIRST_PLAN))
    return _compared(after, first, 0.25, "its own first plan")


def _tier(most_ms: float, *kinds: str) -> Callable[[Results], Judged]:
    """Judge the first of these kinds that was measured: the one that orch23 chooses."""

    def judge(results: Results) -> Judged:
        times_of = {one.kind: one.wall_s for one in results.stage_costs if one.work == "true" and one.wall_s}
        kind = next((one for one in kinds if one in times_of), None)
        if kind is None or "no sandbox" not in times_of:
            return _unknown("not measured")
        plain = spread(times_of["no sandbox"]).middle
        more = (spread(times_of[kind]).middle - plain) * 1000
        return Judged(f"**{more:+.1f} ms** on {milliseconds(plain)} ms", more <= most_ms)

    return judge


def _missed(results: Results) -> Judged:
    ours = next((one for one in results.histories if one.tool == OURS), None)
    if ours is None or not sum(ours.made.values()):
        return _unknown("not measured")
    made, missed = sum(ours.made.values()), sum(ours.missed.values())
    enough = made >= ENOUGH_EDITS
    reported = f"**{missed}** of {made} edits" + ("" if enough else f"; fewer than {ENOUGH_EDITS} prove nothing")
    if missed or ours.note:
        return Judged(reported, met=False)
    return Judged(reported, met=True if enough else None)


def _growth(results: Results) -> Judged:
    found = [
        (large.wall.middle / small.wall.middle, scenario.name)
        for scenario in (FIRST, FIRST_PLAN, EDITED_STAGE, *BUILT)
        if (small := results.find(OURS, scenario.name, 1_000)) and (large := results.find(OURS, scenario.name, 10_000))
    ]
    if not found:
        return _unknown("not measured at both sizes")
    worst, where = max(found)
    return Judged(f"**{times(worst)}** at worst ({where})", worst <= 11)  # noqa: PLR2004 - the goal's


def _memory(scenario: Scenario, size: int, most_mb: float) -> Callable[[Results], Judged]:
    def judge(results: Results) -> Judged:
        ours = results.find(OURS, scenario.name, size)
        if ours is None:
            return _unknown("not measured")
        return Judged(f"**{ours.memory / MB:,.0f} MB**", ours.memory <= most_mb * MB, ours.memory)

    return judge


def _waiting(part: Callable[[Waiting], tuple[float, ...]], most: float) -> Callable[[Results], Judged]:
    """Compare a time of all calls, by provider, with the ideal."""

    def judge(results: Results) -> Judged:
        found = {one.provider: spread(part(one)).middle / IDEAL_S for one in results.waiting if part(one)}
        if not found:
            return _unknown("not measured")
        reported = ", ".join(f"**{times(ratio)}** {provider}" for provider, ratio in found.items())
        return Judged(reported, max(found.values()) <= most)

    return judge


def _economy(results: Results) -> Judged:
    if not results.edit_costs:
        return _unknown("not measured")
    one = results.edit_costs[0]
    calls, whole = (sum(getattr(each, name) for each in results.edit_costs) for name in ("calls", "whole"))
    reported = f"**{one.calls}** of {one.whole}; [{len(results.edit_costs)} edits](economy.md): {calls} of {whole}"
    return Judged(reported, one.calls == 1)


GOALS: tuple[Goal, ...] = (
    Goal("nothing to do, 10,000 stages", "≤ 0.75 of", "ninja", _ratio(NOTHING, 10_000, 0.75, "ninja")),
    Goal("nothing to do, 10,000, CPU", "≤ 1.0 of", "ninja", _ratio(NOTHING, 10_000, 1, "ninja", cpu=True)),
    Goal("nothing to do, 10,000, `cat`, CPU", "≤ 1.0 of", "ninja", _ratio(NOTHING_CAT, 10_000, 1, "ninja", cpu=True)),
    Goal("nothing to do, 1,000", "≤ 2.2 of", "ninja", _ratio(NOTHING, 1_000, 2.2, "ninja")),
    Goal("nothing to do, 100", "≤ 1.4 of", f"`{PYTHON}`", _to_python(NOTHING, 100, 1.4)),
    Goal("`plan`, nothing to do, 10,000", "≤ 0.8 of", "`ninja -n`", _ratio(PLAN, 10_000, 0.8, "ninja")),
    Goal("one leaf edited, 100, CPU", "≤ 8 of", f"`{PYTHON}`", _to_python(LEAF, 100, 8, cpu=True)),
    Goal("one leaf edited, 100, `cat`, CPU", "≤ 8 of", f"`{PYTHON}`", _to_python(LEAF_CAT, 100, 8, cpu=True)),
    Goal("one leaf edited, 10,000, CPU", "≤ 2.5 of", "ninja", _ratio(LEAF, 10_000, 2.5, "ninja", cpu=True)),
    Goal("one leaf edited, 10,000, `cat`, CPU", "≤ 2.5 of", "ninja", _ratio(LEAF_CAT, 10_000, 2.5, "ninja", cpu=True)),
    Goal(
        "one line of `inputs` edited, 10,000, CPU",
        "≤ 1.5 of",
        "ninja, its file edited too",
        _ratio(EDITED_INPUTS, 10_000, 1.5, "ninja", cpu=True),
    ),
    *(
        Goal(f"a step with 20,000 unchanged input files, {tier}, CPU", "≤ 0.5 s", "-", _many_inputs(tier, 0.5))
        for tier in TIERS
    ),
    Goal("its second attempt, CPU", "≤ 0.5 s", "-", _second_attempt),
    Goal("an edit, the same output, 10,000", "≤ 3 of, one stage runs", "ninja with restat", _identical),
    Goal(
        "a build right after a build, 1,000 with a glob, CPU",
        "≤ 1.3 of",
        "a build some seconds later",
        _to_own(name_of(LITERAL, f"{AT_ONCE}{WITH_GLOB}"), name_of(LITERAL, f"{SETTLED}{WITH_GLOB}"), 1_000, 1.3, "it"),
    ),
    Goal(
        "a build right after the first, 10,000 generated items, CPU",
        "≤ 0.2 s",
        "-",
        _within(name_of(GENERATED, AT_ONCE), 10_000, 0.2),
    ),
    Goal(
        "one of 10,000 generated items edited, CPU",
        "≤ 3 s",
        "-",
        _within(name_of(GENERATED, f"build, {EDITED_ITEM}"), 10_000, 3),
    ),
    Goal("nothing to do and `plan`, from 1,000", "≤ 0.1 of", ", ".join(HEAVY), _heavy),
    Goal(
        "first build, 1,000 trusted stages, `sort`, CPU",
        "≤ 1.5 of",
        "ninja",
        _ratio(FIRST, 1_000, 1.5, "ninja", cpu=True),
    ),
    Goal(
        "first build, 1,000 trusted stages, `cat`, CPU",
        "≤ 2 of",
        "ninja",
        _ratio(FIRST_CAT, 1_000, 2, "ninja", cpu=True),
    ),
    Goal("first build, 1,000 trusted stages", "≤ 1.0 of", "doit", _ratio(FIRST, 1_000, 1.0, "doit")),
    Goal("a stage in tier B", "≤ +3 ms", "no sandbox", _tier(3, "tier B, Landlock")),
    Goal("a stage in tier A", "≤ +3 ms", "no sandbox", _tier(3, "tier A, namespaces", "tier A, bubblewrap")),
    Goal("first `plan` from YAML, 10,000, CPU per stage", "≤ 0.2 ms", "-", _plan_per_stage),
    Goal("`plan` after one stage was edited, 10,000", "≤ 0.25 of", "its own first", _own_first),
    Goal(
        "a build after one YAML line was edited, 10,000, CPU",
        "≤ 0.25 of",
        "its first plan",
        _to_own(name_of(LITERAL, f"build, {EDITED_LINE}"), name_of(LITERAL, GROWTH_FIRST_PLAN), 10_000, 0.25, "it"),
    ),
    Goal("missed edits in random histories", "0", "-", _missed),
    Goal("growth from 1,000 to 10,000, any scenario", "≤ 11 of", "itself", _growth),
    Goal("CPU per added stage, any command, 100 to 30,000", "≤ 1.5 of", "the sizes before", _per_added_stage),
    Goal("memory, nothing to do, 10,000", "≤ 20 MB", "-", _memory(NOTHING, 10_000, 20)),
    Goal("memory, first build, 1,000", "≤ 50 MB", "-", _memory(FIRST, 1_000, 50)),
    Goal("memory, first build, 10,000", "≤ 120 MB", "-", _memory(FIRST, 10_000, 120)),
    Goal("memory, one leaf edited, 10,000", "≤ 50 MB", "-", _memory(LEAF, 10_000, 50)),
    Goal("`--version`", "≤ 1.5 of", f"`{PYTHON}`", _to_python(VERSION, 0, 1.5)),
    Goal("`--help`, CPU", "≤ 4.2 of", f"`{PYTHON}`", _to_python(HELP, 0, 4.2, cpu=True)),
    *(
        Goal(f"`{case}`, 100, CPU", f"≤ {most} of", f"`{PYTHON}`", _grown_to_python(case, 100, most))
        for case, most in ((STATUS, 4.2), (EXPLAIN, 8), (FORCED, 8))
    ),
    Goal(
        "40 llm stages, a server that takes 1 s, a pool of 8",
        "≤ 1.35 of",
        "5 s, the ideal",
        _waiting(lambda one: one.whole_s, 1.35),
    ),
    Goal(
        f"the same 40, after {BEFORE_S:g} s of another stage",
        "≤ 1.12 of",
        f"5 s, without these {BEFORE_S:g} s",
        _waiting(lambda one: one.later_s, 1.12),
    ),
    Goal(
        "the same 40, from the first question to the last answer",
        "≤ 1.05 of",
        "5 s, the ideal",
        _waiting(lambda one: one.calls_s, 1.05),
    ),
    Goal("model calls after an edit of one section", "only what reads it", "building all again", _economy),
)


def rows(results: Results) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Give the rows of the table of goals."""
    words = {True: "met", False: "**not met**", None: "-"}
    floor = _of_the_floor(results)
    for goal in GOALS:
        judged, least = goal.judge(results), goal.judge(floor)
        met, shown = judged.met, "-"
        if least.value is not None:
            found = _BOLD.search(least.measured)
            shown = found[1] if found else "-"
            if judged.value is not None and judged.met is False and least.met is False:
                met = judged.value <= OVER_FLOOR * least.value
        yield goal.what, goal.allowed, goal.against, judged.measured, shown, words[met]


def _of_the_floor(results: Results) -> Results:
    """Return the results with those of the floor in the place of ours."""
    measured = [
        replace(one, tool=one.tool.replace(FLOOR.name, OURS)) if one.tool.startswith(FLOOR.name) else one
        for one in results.measurements
        if not one.tool.startswith(OURS)
    ]
    found = {case: results.find(FLOOR.name, scenario.name, case[1]) for case, scenario in _LIKE.items()}
    growth = [replace(one, scenario=name_of(LITERAL, case)) for (case, _), one in found.items() if one is not None]
    return replace(results, measurements=tuple(measured), growth=tuple(growth), stage_costs=())
