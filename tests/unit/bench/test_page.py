"""The page, the README and the newest results agree, and the table of goals says what the results say."""

import re
from pathlib import Path

import pytest

from bench import goals, page
from bench.course import PYTHON
from bench.growth_cases import AT_ONCE, EDITED_LINE, GENERATED, LITERAL, SETTLED, WITH_GLOB, name_of
from bench.growth_cases import FIRST_PLAN as GROWTH_FIRST_PLAN
from bench.many_inputs import EDITED, FAILING, TWICE
from bench.results import (
    CAPPED,
    MISSED,
    RIGHT,
    EditCost,
    Histories,
    Measurement,
    Results,
    StageCost,
    Waiting,
    newest,
    read,
    write,
)
from bench.scenarios import FIRST, FIRST_CAT, FIRST_PLAN, IDENTICAL, LEAF, NOTHING, TAMPERED, VERSION
from bench.table import lines

ROOT = Path(__file__).parents[3]


def measured(tool, scenario, size, wall_s, *, outcome=RIGHT, ran=None, note="") -> Measurement:
    walls = (wall_s,) if wall_s is not None else ()
    return Measurement(tool, size, scenario.name, outcome, walls, walls, (10 << 20,) * len(walls), ran, note)


def results(*measurements, histories=(), stage_costs=(), waiting=(), edit_costs=(), growth=()) -> Results:
    return Results(
        date="2026-01-02 03:04 UTC",
        form="long",
        command="make bench-long",
        machine={"processor": "one"},
        versions={"orch23": "0.1", "ninja": "1", "ninja restat": "1", "make -rR": "4"},
        missing={"n2": "not on PATH"},
        measurements=tuple(measurements),
        histories=tuple(histories),
        stage_costs=tuple(stage_costs),
        waiting=tuple(waiting),
        edit_costs=tuple(edit_costs),
        growth=tuple(growth),
        remarks={"orch23": "trusted"},
    )


def grown(shape, case, size, cpu_s) -> Measurement:
    return Measurement("orch23", size, name_of(shape, case), RIGHT, (9.0,), (cpu_s,), (1,))


def judged(found: Results, what: str) -> tuple[str, str]:
    (row,) = (row for row in goals.rows(found) if row[0] == what)
    return row[3], row[5]


# ---- what is committed --------------------------------------------------------------------------------


def test_the_page_and_the_readme_have_the_figures_of_the_newest_results() -> None:
    file = newest()
    found = read(file)
    for name, text in (("docs/performance.md", page.figures(found, file.name)), ("README.md", page.brief(found))):
        there = (ROOT / name).read_text(encoding="utf-8")
        assert page.with_figures(there, text) == there, f"{name}: python -m bench.page makes it anew"


def test_every_time_in_the_readme_outside_of_examples_comes_from_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    outside = prose.replace(page.BEGIN + "\n" + page.brief(read(newest())) + "\n" + page.END, "")
    assert outside != prose
    assert re.findall(r"\b\d[\d.,]*\s*(?:ms|µs|seconds?|MiB|MB)\b|\b\d[\d.]* times\b", outside) == []


def test_the_page_names_every_goal_and_where_its_results_are() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert all(f"| {goal.what} | {goal.allowed} |" in text for goal in goals.GOALS)
    assert f"results/{newest().name}" in text


# ---- how they are made --------------------------------------------------------------------------------


def test_figures_replace_those_that_are_there_and_leave_the_rest() -> None:
    before = f"above\n{page.BEGIN}\nold\n{page.END}\nbelow\n"
    after = page.with_figures(before, r"new \1")
    assert after == f"above\n{page.BEGIN}\nnew \\1\n{page.END}\nbelow\n"


def test_a_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no one place"):
        page.with_figures("nothing", "figures")


def test_publishing_writes_both_pages(tmp_path) -> None:
    file = tmp_path / "2026.json"
    write(results(measured("orch23", NOTHING, 1_000, 0.5), measured("ninja", NOTHING, 1_000, 0.25)), file)
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/performance.md"):
        (tmp_path / name).write_text(f"{page.BEGIN}\n{page.END}\n")
    page.publish(file, tmp_path)
    assert "| nothing to do, 1,000 stages | 500 ms | 250 ms | 2.00 |" in (tmp_path / "README.md").read_text()
    assert "bench/results/2026.json" in (tmp_path / "docs" / "performance.md").read_text()


def test_results_are_read_back_as_they_were_written(tmp_path) -> None:
    found = results(
        measured("orch23", IDENTICAL, 100, 0.5, ran=1),
        measured("DVC", FIRST, 100, None, outcome=CAPPED, note="stopped | after 150 s"),
        histories=[Histories("orch23", 20, {"same size": 3}, {"same size": 0})],
        stage_costs=[StageCost("no sandbox", "true", (0.01, 0.02))],
        waiting=[Waiting("command", (5.5, 6.0), (), (0.1,))],
        edit_costs=[EditCost("a word", 1, 16)],
        growth=[grown(LITERAL, SETTLED, 100, 0.5)],
    )
    write(found, tmp_path / "results" / "one.json")
    assert read(tmp_path / "results" / "one.json") == found


def test_models_are_waited_for_well_where_builds_stay_near_the_ideal() -> None:
    what = "40 llm stages, a server that takes 1 s, a pool of 8"
    later, calls = "the same 40, after 2 s of another stage", "the same 40, from the first question to the last answer"
    for goal in (what, later, calls):
        assert judged(results(), goal) == ("not measured", "-")
    near = Waiting("openai", (6.7, 9.0, 6.75), (5.2, 5.3, 5.25), (0.1,), (5.6,))
    found = results(waiting=[near])
    assert judged(found, what) == ("**1.35** openai", "met")
    assert judged(found, later) == ("**1.12** openai", "met")
    assert judged(found, calls) == ("**1.05** openai", "met")
    far = Waiting("command", (6.8,), (), (0.1,), (5.7,))
    for goal, verdict in ((what, "**not met**"), (later, "**not met**"), (calls, "met")):
        assert judged(results(waiting=[near, far]), goal)[1] == verdict
    page_ = page.figures(results(waiting=[near, far]), "f.json")
    assert "| openai | 6.75 | 5.60 | 5.25 | 0.10 |\n| command | 6.80 | 5.70 | - | 0.10 |" in page_


def test_an_edit_of_one_section_asks_who_reads_it() -> None:
    what = "model calls after an edit of one section"
    assert judged(results(), what) == ("not measured", "-")
    few = [EditCost("a word", 1, 16), EditCost("the system prompt", 16, 16)]
    assert judged(results(edit_costs=few), what) == ("**1** of 16; [2 edits](economy.md): 17 of 32", "met")
    assert judged(results(edit_costs=[EditCost("a word", 2, 16)]), what)[1] == "**not met**"


def test_the_newest_results_are_the_last_by_name(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="bench-long"):
        newest(tmp_path)
    for name in ("2026-02-01T1000-long.json", "2026-10-01T0900-long.json", "2026-01-31T2300-long.json"):
        (tmp_path / name).touch()
    assert newest(tmp_path).name == "2026-10-01T0900-long.json"


# ---- goals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "word"), [(0.075, "met"), (0.076, "**not met**")])
def test_a_ratio_up_to_the_goal_is_met_and_one_over_it_is_not(ours, word) -> None:
    found = results(measured("orch23", NOTHING, 10_000, ours), measured("ninja", NOTHING, 10_000, 0.1))
    reported, met = judged(found, "nothing to do, 10,000 stages")
    assert met == word
    assert reported.startswith(f"**{ours / 0.1:.2f}**")


def test_what_was_not_measured_is_neither_met_nor_not() -> None:
    assert {row[5] for row in goals.rows(results())} == {"-"}
    alone = results(measured("orch23", NOTHING, 10_000, 0.05))
    assert judged(alone, "nothing to do, 10,000 stages") == ("50 ms; nothing of ninja to compare with", "-")


def test_times_of_python_alone_are_what_starting_is_compared_with() -> None:
    found = results(measured("orch23", VERSION, 0, 0.03), measured(PYTHON, VERSION, 0, 0.01))
    assert judged(found, "`--version`")[1] == "**not met**"


def test_an_edit_of_a_leaf_is_compared_with_the_start_of_python_by_cpu_time() -> None:
    ours = Measurement("orch23", 100, LEAF.name, RIGHT, (5.0,), (0.08,), (1,))
    found = results(ours, Measurement(PYTHON, 0, VERSION.name, RIGHT, (0.02,), (0.01,), (1,)))
    assert judged(found, "one leaf edited, 100, CPU") == ("**8.00** (CPU 80 : 10 ms; wall 250)", "met")


@pytest.mark.parametrize(
    ("ours", "floor", "word"), [(1.51, 1.4, "**not met**"), (2.0, 1.6, "met"), (2.1, 1.6, "**not met**")]
)
def test_a_goal_below_the_floor_becomes_a_part_more_than_the_floor(ours, floor, word) -> None:
    made = [measured(tool, FIRST, 1_000, took) for tool, took in (("orch23", ours), ("floor", floor), ("ninja", 1.0))]
    (row,) = (row for row in goals.rows(results(*made)) if row[0] == "first build, 1,000 trusted stages, `sort`, CPU")
    assert (row[4], row[5]) == (f"{floor:.2f}", word)


def test_cases_of_growth_have_a_floor_where_it_does_the_like() -> None:
    made = [measured("floor", LEAF, 100, 0.03), measured(PYTHON, VERSION, 0, 0.01)]
    found = results(*made, growth=[grown(LITERAL, "build --force of one stage", 100, 0.07)])
    (row,) = (row for row in goals.rows(found) if row[0] == "`build --force of one stage`, 100, CPU")
    assert row[3:] == ("**7.00** (CPU 70 : 10 ms; wall 900)", "3.00", "met")


def test_many_inputs_are_judged_in_each_tier_and_by_the_second_attempt() -> None:
    def row(tool, case, cpu_s) -> Measurement:
        return Measurement(tool, 20_000, case, RIGHT, (9.0,), (cpu_s,), (1,))

    ours = [row("orch23, tier A", case, cpu_s) for case, cpu_s in ((EDITED, 0.5), (FAILING, 0.3), (TWICE, 0.9))]
    found = results(*ours, row("cp -r", EDITED, 0.4), row("floor, tier A", EDITED, 0.2))
    what = "a step with 20,000 unchanged input files, {}, CPU"
    assert judged(found, what.format("tier A")) == ("**0.50 s** (wall 9.00 s; `cp -r` CPU 0.40 s)", "met")
    assert judged(found, what.format("tier B")) == ("not measured", "-")
    assert judged(found, "its second attempt, CPU") == ("**0.60 s** at worst (tier A)", "**not met**")
    assert "| cp -r | 9,000 |" in page.figures(found, "f.json")


def test_first_builds_are_compared_with_sort_and_with_cat() -> None:
    ninja = [measured("ninja", scenario, 1_000, 1.0) for scenario in (FIRST, FIRST_CAT)]
    found = results(measured("orch23", FIRST, 1_000, 1.5), measured("orch23", FIRST_CAT, 1_000, 2.1), *ninja)
    assert judged(found, "first build, 1,000 trusted stages, `sort`, CPU")[1] == "met"
    assert judged(found, "first build, 1,000 trusted stages, `cat`, CPU")[1] == "**not met**"
    assert "### first build, -j1, cat\n" in page.figures(found, "f.json")


def test_a_first_plan_is_reported_per_stage_beside_make() -> None:
    what = "first `plan` from YAML, 10,000, CPU per stage"
    found = results(measured("orch23", FIRST_PLAN, 10_000, 2.0), measured("make -rR", FIRST_PLAN, 10_000, 0.1))
    assert judged(found, what) == ("**0.20 ms** (`make -rRn` 0.010)", "met")
    assert judged(results(measured("orch23", FIRST_PLAN, 10_000, 2.1)), what)[1] == "**not met**"


def test_goals_of_single_cases_of_growth() -> None:
    found = results(
        growth=[
            grown(LITERAL, f"{SETTLED}{WITH_GLOB}", 1_000, 0.020),
            grown(LITERAL, f"{AT_ONCE}{WITH_GLOB}", 1_000, 0.027),
            grown(GENERATED, AT_ONCE, 10_000, 0.19),
            grown(LITERAL, GROWTH_FIRST_PLAN, 10_000, 4.0),
            grown(LITERAL, f"build, {EDITED_LINE}", 10_000, 1.0),
        ]
    )
    assert judged(found, "a build right after a build, 1,000 with a glob, CPU")[1] == "**not met**"
    assert judged(found, "a build right after the first, 10,000 generated items, CPU")[1] == "met"
    assert judged(found, "a build after one YAML line was edited, 10,000, CPU")[1] == "met"
    assert judged(found, "one of 10,000 generated items edited, CPU")[1] == "-"


@pytest.mark.parametrize(("last", "reported", "word"), [(21.9, "1.49", "met"), (35.5, "2.73", "**not met**")])
def test_an_added_stage_may_cost_little_more_than_one_before_it(last, reported, word) -> None:
    what = "CPU per added stage, any command, 100 to 30,000"
    some = [grown(LITERAL, "validate", size, cpu_s) for size, cpu_s in ((100, 0.1), (1_000, 0.55), (10_000, 5.5))]
    quick = [grown(LITERAL, SETTLED, size, cpu_s) for size, cpu_s in ((100, 0.01), (1_000, 0.01), (10_000, 0.1))]
    found = results(growth=[*some, *quick, grown(LITERAL, "validate", 30_000, last)])
    assert judged(found, what)[0].startswith(f"**{reported}** at worst (literal stages: validate")
    assert judged(found, what)[1] == word


@pytest.mark.parametrize(("ran", "word"), [(1, "met"), (2, "**not met**"), (0, "**not met**")])
def test_an_edit_with_the_same_output_has_to_run_exactly_one_stage(ran, word) -> None:
    theirs = measured("ninja restat", IDENTICAL, 10_000, 0.1)
    found = results(measured("orch23", IDENTICAL, 10_000, 0.05, ran=ran), theirs)
    reported, met = judged(found, "an edit, the same output, 10,000")
    assert met == word
    assert reported.endswith(f"{ran} ran")


@pytest.mark.parametrize(
    ("made", "missed", "word"), [(200, 0, "met"), (200, 1, "**not met**"), (20, 0, "-"), (20, 1, "**not met**")]
)
def test_histories_have_to_be_long_and_nothing_may_be_missed(made, missed, word) -> None:
    found = results(histories=[Histories("orch23", 20, {"same size": made}, {"same size": missed})])
    assert judged(found, "missed edits in random histories")[1] == word


def test_growth_is_the_worst_of_all_scenarios() -> None:
    found = results(
        measured("orch23", NOTHING, 1_000, 1.0),
        measured("orch23", NOTHING, 10_000, 9.0),
        measured("orch23", FIRST, 1_000, 1.0),
        measured("orch23", FIRST, 10_000, 12.0),
    )
    reported, met = judged(found, "growth from 1,000 to 10,000, any scenario")
    assert reported == "**12** at worst (first build, -j1)"
    assert met == "**not met**"


def test_what_a_sandbox_costs_is_a_difference_of_medians() -> None:
    costs = [
        StageCost("no sandbox", "true", (0.010, 0.012, 0.011)),
        StageCost("tier B, Landlock", "true", (0.013, 0.013, 0.5)),
        StageCost("tier B, Landlock", "python -c pass", (9.0,)),
    ]
    assert judged(results(stage_costs=costs), "a stage in tier B") == ("**+2.0 ms** on 11 ms", "met")


# ---- tables -------------------------------------------------------------------------------------------


def test_a_tool_that_misses_is_reported_beside_its_time_and_one_without_times_by_its_reason() -> None:
    found = results(
        measured("ninja", TAMPERED, 100, 0.004, outcome=MISSED),
        measured("orch23", TAMPERED, 100, 0.008),
        measured("make -rR", FIRST, 1_000, None, outcome=CAPPED, note="stopped after 150 s"),
    )
    text = page.figures(found, "x.json")
    assert "| ninja | 4.0 *missed* |" in text
    assert "nothing is noticed: ninja." in text
    assert "- make -rR, 1,000 stages, first build, -j1: capped, stopped after 150 s" in text
    assert "| n2 | not here | not on PATH |" in text


def test_lines_for_the_terminal_have_the_ratios_of_the_same_run() -> None:
    found = results(measured("ninja", NOTHING, 100, 0.004), measured("orch23", NOTHING, 100, 0.010))
    (line,) = (line for line in lines(found) if " orch23 " in line)
    assert line.rstrip().endswith("2.50")
