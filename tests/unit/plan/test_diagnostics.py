"""Errors about names that are not stages."""

from orch23.model.diagnostic import Suggestions
from orch23.plan.diagnostics import unknown_need_error
from tests.unit.plan.test_planner import pipeline, stage


def error(need: str, *names: str) -> tuple[str | None, tuple[str, ...] | None]:
    found = unknown_need_error(
        pipeline(*(stage(name, writes=(f"{name}.txt",)) for name in names), stage("here")),
        stage("here"),
        0,
        need,
        Suggestions((*names, "here")),
    )
    return found.hint, found.fix


def test_the_stages_are_listed_without_the_one_that_needs_them() -> None:
    assert error("xyzzy", "one", "two") == ("the stages are `one`, `two`", None)
    assert error("xyzzy", "one") == ("there is the stage `one`", None)
    assert error("xyzzy") == ("the pipeline has no other stage", None)


def test_few_of_many_stages_are_listed() -> None:
    hint, _ = error("xyzzy", *(f"s{number}" for number in range(14)))
    assert hint is not None
    assert hint.endswith("`s11` and 2 more; `orch23 status --all` lists all")


def test_a_file_is_replaced_by_the_stage_that_makes_it() -> None:
    assert error("./one.txt", "one", "two") == ("`./one.txt` is made by `one`: write `one`", ("./one.txt", "one"))
