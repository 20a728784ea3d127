"""The course measures what is right, and reports what is wrong, slow or blind."""

import pytest

from bench.course import Course, Limits
from bench.graph import BLOCK
from bench.results import CAPPED, FAILED, MISSED, NOT_TRIED, RIGHT
from bench.scenarios import (
    BUILT,
    DELETED,
    EDITED_INPUTS,
    FIRST,
    FIRST_PLAN,
    FIRST_TWO,
    IDENTICAL,
    LEAF,
    NOTHING,
    PLAN,
    TAMPERED,
)
from tests.unit.bench.doubles import Builders, Everything, by_contents, by_time_and_size, tool

pytestmark = pytest.mark.slow  # tools are run for seconds

LIMITS = Limits(rounds=2, first_rounds=1, cap_s=150)


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch) -> None:
    """Do not wait for file times to become old: the doubles compare them to the nanosecond."""
    monkeypatch.setattr("bench.course.SETTLED_S", 0.02)


def course(tmp_path, tools, builders, limits=LIMITS) -> Course:
    said: list[str] = []
    return Course(tools, tmp_path, builders, limits, said.append)


def outcomes(found, tool_name) -> dict[str, str]:
    return {one.scenario: one.outcome for one in found if one.tool == tool_name}


@pytest.mark.thorough
def test_a_tool_that_goes_by_contents_is_right_in_every_scenario(tmp_path) -> None:
    builders = Builders({"sound": by_contents})
    found = course(tmp_path, [tool("sound", plan=True)], builders).at(BLOCK)
    scenarios = (FIRST, FIRST_TWO, FIRST_PLAN, *BUILT, EDITED_INPUTS)
    assert outcomes(found, "sound") == {scenario.name: RIGHT for scenario in scenarios}
    assert {len(one.wall_s) for one in found if one.scenario in {NOTHING.name, LEAF.name, PLAN.name}} == {2}
    assert {one.ran for one in found if one.scenario in {LEAF.name, IDENTICAL.name}} == {1}
    assert not list(tmp_path.glob("work/*"))


def test_a_tool_that_goes_by_time_is_reported_to_have_missed_what_was_tampered_with_and_goes_on(tmp_path) -> None:
    builders = Builders({"blind": by_time_and_size})
    found = outcomes(course(tmp_path, [tool("blind")], builders).at(BLOCK), "blind")
    assert found[TAMPERED.name] == MISSED
    assert {found[one.name] for one in (NOTHING, LEAF, IDENTICAL, DELETED)} == {RIGHT}


def test_a_tool_that_does_not_notice_an_edited_line_is_reported_and_goes_on(tmp_path) -> None:
    builders = Builders({"keeping": by_contents}, keeps=True)
    found = outcomes(course(tmp_path, [tool("keeping")], builders).at(BLOCK), "keeping")
    assert found[EDITED_INPUTS.name] == MISSED
    assert FIRST_TWO.name in found


def test_a_tool_whose_outputs_are_wrong_is_reported_and_has_no_times(tmp_path) -> None:
    builders = Builders({"lazy": lambda file: (file.exists(),)})
    found = {one.scenario: one for one in course(tmp_path, [tool("lazy")], builders).at(BLOCK)}
    assert found[LEAF.name].outcome == FAILED
    assert found[LEAF.name].wall_s == ()
    assert "not what they should be" in found[LEAF.name].note


@pytest.mark.thorough
def test_a_tool_that_is_too_slow_is_capped_and_not_tried_with_more_stages(tmp_path) -> None:
    builders = Builders({"slow": by_contents, "sound": by_contents}, late=["slow"])
    made = course(tmp_path, [tool("slow"), tool("sound")], builders)
    found = made.at(BLOCK)
    assert outcomes(found, "slow") == {FIRST.name: CAPPED}
    assert outcomes(found, "sound")[LEAF.name] == RIGHT
    more = made.at(2 * BLOCK)
    assert outcomes(more, "slow") == {FIRST.name: NOT_TRIED}
    assert "150 s" in next(one.note for one in more if one.tool == "slow")


def test_a_tool_that_cannot_build_is_not_tried_with_more_stages(tmp_path) -> None:
    builders = Builders({"broken": by_contents})
    builders.known = Everything()
    made = course(tmp_path, [tool("broken")], builders)
    assert outcomes(made.at(BLOCK), "broken") == {FIRST.name: FAILED}
    calls = len(builders.calls)
    (more,) = made.at(2 * BLOCK)
    assert more.outcome == NOT_TRIED
    assert "not what they should be" in more.note
    assert len(builders.calls) == calls


def test_what_the_time_does_not_suffice_for_is_reported(tmp_path) -> None:
    builders = Builders({"sound": by_contents})
    found = course(tmp_path, [tool("sound")], builders, Limits(2, 1, 150, budget_s=0)).at(BLOCK)
    assert set(outcomes(found, "sound").values()) == {NOT_TRIED}
    assert builders.calls == []


def test_first_builds_of_two_jobs_ask_for_two(tmp_path) -> None:
    builders = Builders({"sound": by_contents})
    course(tmp_path, [tool("sound")], builders).at(BLOCK)
    assert ("sound", "-j2") in builders.calls
    assert ("sound", "-j1") in builders.calls


@pytest.mark.thorough
def test_a_plan_that_fails_is_reported_and_the_tool_goes_on_building(tmp_path) -> None:
    builders = Builders({"sound": by_contents}, plan_code=3)
    found = outcomes(course(tmp_path, [tool("sound", plan=True)], builders).at(BLOCK), "sound")
    assert found[FIRST_PLAN.name] == found[PLAN.name] == FAILED
    assert {found[one.name] for one in (FIRST, NOTHING, LEAF, TAMPERED)} == {RIGHT}
