"""Opening a pipeline: everything that is wrong with it at once, lists expanded, and what earlier builds left."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.decide.open_pipeline import check_plan, errors_of_sound_stages
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import CheckStep, SkippedStage, Verify
from orch23.model.plan import Fresh, Run, RunHistory
from orch23.model.record import LockFile, Record
from tests.unit.engine.rig import Project, asks, each, entry, model, stage


def refused(project: Project) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        project.opened()
    return [problem.code for problem in caught.value.diagnostics]


def checked(name: str) -> Verify:
    return Verify((CheckStep(name),))


# ---- what is wrong ----------------------------------------------------------------------------------


def test_all_errors_of_a_pipeline_are_reported_at_once() -> None:
    project = Project(
        stage("a", "nowhere"),
        stage("b", verify=checked("no_such_check")),
        asks("m", step=model(prompt="gone.j2")),
        executor="elsewhere",
    )
    found = refused(project)
    assert (len(found), "E846" in found, "E820" in found, "E822" in found) == (4, True, True, True)


def test_an_input_is_missing_only_if_it_is_neither_there_nor_made() -> None:
    refused(Project(stage("a", "src")))
    Project(stage("a", "src"), files={"src": "1"}).opened()
    Project(stage("src"), stage("a", "src")).opened()


def test_an_error_of_a_provider_is_reported_once_for_all_stages() -> None:
    project = Project(asks("one"), asks("two"))
    project.texts["p.j2"] = "write"
    project.provider_problems = (Diagnostic("E405", "there is no such provider"),)
    assert refused(project) == ["E405"]


def test_an_unknown_check_in_a_foreach_body_is_reported_before_there_are_items() -> None:
    body: dict[str, Any] = {"outputs": ["e/${{ item }}"], "shell": ["x"], "verify": [{"check": "no_such_check"}]}
    project = Project(stage("list", writes=("l.json",)), each("e", source="l.json", body=body))
    assert len(refused(project)) == 1
    body["verify"] = [{"check": "${{ item }}"}]
    Project(*project.pipeline.stages[:1], each("e", source="l.json", body=body)).opened()


@pytest.mark.slow
def test_of_a_pipeline_with_unsound_stages_the_sound_ones_are_judged() -> None:
    project = Project(stage("a", "made-by-the-other", "nowhere", needs=("no-such-stage",)))
    store, tools = project.as_store, project.tools()
    unread = ("makes made-by-the-other",)
    found = errors_of_sound_stages(project.pipeline, store, tools, names=("a", "b"), unread=unread)
    assert ["nowhere" in one.message for one in found] == [False, True]
    assert "no-such-stage" in found[0].message
    with pytest.raises(InvalidInputError):
        check_plan(project.pipeline, store, tools)


# ---- lists ------------------------------------------------------------------------------------------


def test_lists_that_no_stage_makes_are_expanded_at_once_and_others_later() -> None:
    project = Project(
        each("static", "a"),
        each("mine", source="mine.json"),
        stage("list", writes=("l.json",)),
        each("later", source="l.json"),
        files={"mine.json": '["x", "y"]'},
    )
    plan = project.opened().state.plan
    assert set(plan.nodes) == {"static@a", "mine@x", "mine@y", "list", "later"}


def test_errors_of_all_lists_are_reported_at_once() -> None:
    project = Project(
        each("one", source="one.json"),
        each("two", source="two.json"),
        each("three", source="gone.json"),
        files={"one.json": "{}", "two.json": "[true]"},
    )
    assert refused(project) == ["E824", "E825", "E822"]


def test_items_that_do_not_fit_into_the_plan_are_an_error() -> None:
    assert refused(Project(each("e", "a", "b", body={"outputs": ["same"], "shell": ["make", "e", "same"]}))) != []


def test_a_list_that_items_turn_out_not_to_make_is_read_in_a_second_round() -> None:
    maker = each("maker", "a", body={"outputs": ["lists/${{ item }}.json"], "shell": ["make", "maker", "x"]})
    project = Project(
        replace(maker, writes=("lists/*",)), each("e", source="lists/b.json"), files={"lists/b.json": '["x"]'}
    )
    assert set(project.opened().state.plan.nodes) == {"maker@a", "e@x"}


def test_a_missing_input_of_an_item_is_reported_before_anything_runs() -> None:
    body: dict[str, Any] = {"outputs": ["e/${{ item }}"], "shell": ["x"], "inputs": ["in/${{ item }}"]}
    project = Project(each("e", "a", "b", body=body), files={"in/a": "1"})
    with pytest.raises(InvalidInputError) as caught:
        project.opened()
    assert ["in/b" in one.message for one in caught.value.diagnostics] == [True]


def test_an_output_of_a_skipped_stage_does_not_count_as_an_input_that_exists() -> None:
    project = Project(stage("a"), stage("b", "a"))
    project.build()
    off = SkippedStage(name="a", kind="shell", condition="false", writes=("a",))
    project.pipeline = Project(stage("b", "a"), skipped=(off,)).pipeline
    with pytest.raises(InvalidInputError) as caught:
        project.opened()
    assert ["`a`, which makes it, is skipped" in (one.hint or "") for one in caught.value.diagnostics] == [True]


def test_steps_of_items_that_differ_are_checked_by_their_providers() -> None:
    body: dict[str, Any] = {
        "outputs": ["e/${{ item }}"],
        "llm": {"provider": "command", "command": ["ask"], "model": "${{ item }}", "prompt": "p.j2", "returns": "text"},
    }
    project = Project(each("e", "a", "b", body=body))
    project.texts["p.j2"] = "write"
    project.provider_problems = (Diagnostic("E406", "there is no such model"),)
    with pytest.raises(InvalidInputError) as caught:
        project.opened()
    assert [(one.code, one.subject) for one in caught.value.diagnostics] == [("E406", "e@a"), ("E406", "e@b")]


# ---- what earlier builds left -------------------------------------------------------------------------


def test_results_of_an_interrupted_run_count_although_the_lock_file_lacks_them() -> None:
    project = Project(stage("a"))
    project.build()
    record = project.lock.records["a"]
    project.lock = LockFile()
    assert project.opened().lock.records == {}
    project.history = RunHistory(unlocked={"a": record.key})
    assert project.opened().lock.records == {"a": record}
    newer = replace(record, key="another", manifest={"kind": "other"})
    project.lock = LockFile({"a": newer})
    assert project.opened().lock.records == {"a": record}, "the run was newer than the lock file"
    project.store.records.all.clear()
    assert project.opened().lock.records["a"].key != record.key, "of which there is no record, is not known"


def test_a_claim_of_the_lock_file_on_files_that_the_stage_may_not_write_is_dropped() -> None:
    claim = Record(stage="a", key="k", manifest={}, outputs={"elsewhere": entry("x")})
    for own, kept in ((claim, False), (replace(claim, outputs={"a": entry("x")}), True)):
        project = Project(stage("a"))
        project.lock = LockFile({"a": own}, {"a": own})
        lock = project.opened().lock
        assert ("a" in lock.records, "a" in lock.retained) == (kept, kept)
    project = Project(stage("a"))
    project.store.records.put(claim)
    project.lock = LockFile({"a": claim})
    assert "a" in project.opened().lock.records, "this machine made it"


def test_a_stage_that_failed_last_time_says_so_where_it_runs_again() -> None:
    project = Project(stage("a"))
    project.programs["a"] = project.failing()
    key = project.build().stages["a"].key
    project.history = RunHistory(failed={"a": key})
    decision = project.plan()["a"]
    assert isinstance(decision, Run)
    assert [reason.code for reason in decision.reasons] == ["previous_failed"]


def test_a_part_of_a_plan_is_not_expanded_and_its_inputs_are_checked() -> None:
    project = Project(stage("a", "src"), stage("b", "a"), files={"src": "1"})
    project.build()
    whole = project.opened().state.plan
    part = project.opened(part=whole)
    assert part.state.plan is whole
    assert isinstance(project.plan(part=whole)["b"], Fresh)
    del project.disk.files["src"]
    with pytest.raises(InvalidInputError):
        project.opened(part=whole)
