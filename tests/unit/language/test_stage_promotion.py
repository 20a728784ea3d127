"""`promote`: which group a stage or a foreach belongs to, and what contradicts it."""

import pytest

from orch23.language.stage_fields import group_conflict, group_label, on_failure_conflict, read_group, read_item_group
from orch23.load.pipeline import parse_pipeline
from orch23.model.fields import Problems
from orch23.model.pipeline import Foreach


def read(how, value):
    at = Problems("stages/s")
    return how(value, at), [(problem.path, problem.code) for problem in at.found]


WRONG = [("stages/s/promote", "E812")]


@pytest.mark.parametrize(
    ("value", "group", "problems"),
    [
        ("each", None, []),
        ("g", "g", []),
        ("A_1.b-c", "A_1.b-c", []),
        ("x" * 64, "x" * 64, []),
        ("together", None, WRONG),
    ],
)
def test_a_stage_names_a_group_or_is_by_itself(value, group, problems) -> None:
    assert read(read_group, value) == (group, problems)


@pytest.mark.parametrize(
    ("value", "found"),
    [("each", (False, None)), ("together", (True, None)), ("g", (True, "g"))],
)
def test_the_items_of_a_foreach_are_together_or_in_a_group_or_each_by_itself(value, found) -> None:
    assert read_item_group(value) == found


@pytest.mark.parametrize("name", ["x" * 65, ".g", "a b", ""])
def test_a_name_of_a_group_is_checked(name: str) -> None:
    for body in (f"promote: '{name}'", f"foreach: {{in: [a], promote: '{name}'}}"):
        (error,) = parse_pipeline(f"version: 1\nstages:\n  s:\n    shell: x\n    {body}\n", "p.yaml").diagnostics
        assert (error.code, error.location is not None) == ("E812", True)
        assert "1 to 64 of A-Z" in str(error.hint)


@pytest.mark.parametrize(
    ("group", "of_items", "clash"),
    [
        (None, "g", False),
        (None, "each", False),
        ("g", None, False),
        ("g", "together", False),
        ("g", "g", False),
        ("g", "h", True),
        ("g", "each", True),
    ],
)
def test_a_foreach_may_not_say_something_else_than_its_stage(group, of_items, clash: object) -> None:
    problem = group_conflict(group, of_items, "stages/s")
    assert (problem is not None) is clash
    if problem is not None:
        assert (problem.path, problem.code) == ("stages/s/foreach/promote", "E856")
        assert f"`foreach.promote: {of_items}`" in problem.message


@pytest.mark.parametrize("on_failure", [None, "rollback", "keep"])
@pytest.mark.parametrize("group", [None, "g", "together"])
def test_a_failed_member_is_not_kept_without_the_others(group, on_failure) -> None:
    problem = on_failure_conflict(group, on_failure, "stages/s")
    assert (problem is not None) is (group is not None and on_failure == "keep")
    if problem is not None:
        key, way = {
            "g": ("`promote: g`", "remove the stage from the group"),
            "together": ("`foreach.promote: together`", "promote each item by itself"),
        }[group]
        assert (problem.path, problem.code) == ("stages/s/on_failure", "E856")
        assert key in problem.message
        assert problem.hint is not None
        assert problem.hint.endswith(way)


@pytest.mark.parametrize(
    ("together", "group", "found"),
    [(False, None, None), (True, None, "together"), (True, "g", "g"), (False, "g", "g")],
)
def test_items_are_promoted_as_their_group(together: bool, group, found) -> None:
    assert group_label(Foreach(source="l.json", together=together), group) == found
