"""What a build would do, predicted without running anything, and what it depends on where that is not known."""

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.decide.dry_run import DryRun, Preview, preview, replan
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import Condition, Foreach, ListInput, SkippedStage, Stage
from orch23.model.plan import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.resolve.resolution import resolve_stage
from tests.unit.engine.rig import Project, each, entry, stage

CHAIN = (stage("a", "src"), stage("b", "a"), stage("c", "b"))


def built(*nodes: Stage) -> Project:
    project = Project(*(nodes or CHAIN), files={"src": "1"})
    project.build()
    return project


def test_before_the_first_build_everything_runs_and_a_dry_run_changes_nothing() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    assert [type(one) for one in project.plan().values()] == [Run, Run, Run]
    assert (project.ran(), project.store.records.all, project.disk.files) == ([], [], {"src": b"1"})


def test_downstream_of_a_stage_to_run_is_maybe_and_names_that_stage() -> None:
    project = built()
    project.disk["src"] = "2"
    plan = project.plan()
    assert isinstance(plan["a"], Run)
    assert plan["b"] == Maybe(("a",), plan["b"].reasons)
    assert plan["c"] == Maybe(("b",), plan["c"].reasons)
    assert [reason.subject for reason in plan["b"].reasons] == ["a"]


def test_downstream_of_a_stage_to_run_is_run_if_its_own_command_changed() -> None:
    project = built()
    project.disk["src"] = "2"
    project.pipeline = Project(CHAIN[0], stage("b", "a", env={"X": "1"}), CHAIN[2]).pipeline
    assert isinstance(project.plan()["b"], Run)


def test_a_result_that_would_be_restored_counts_as_there() -> None:
    project = built()
    del project.disk.files["a"]
    plan = project.plan()
    assert (type(plan["a"]), type(plan["b"])) == (Restore, Fresh)


def test_a_claim_that_would_be_verified_counts_as_there() -> None:
    project = built()
    project.store.records.all.clear()
    plan = project.plan()
    assert [(type(one), one.claim) for one in plan.values()] == [(VerifyOnly, True)] * 3


def test_an_edit_blocks_its_readers() -> None:
    project = built()
    project.disk["b"] = "by hand"
    plan = project.plan()
    assert isinstance(plan["b"], Edited)
    assert plan["c"] == Blocked(("b",))


def test_an_edit_of_an_unread_output_blocks_no_stage() -> None:
    project = built(stage("a", "src", writes=("a", "log")), stage("b", "a"))
    project.disk["log"] = "by hand"
    plan = project.plan()
    assert (type(plan["a"]), type(plan["b"])) == (Edited, Fresh)


def test_a_list_that_may_change_is_predicted_by_its_last_items_and_one_that_stays_is_expanded() -> None:
    project = Project(stage("list", "src", writes=("l.json",)), each("e", source="l.json"), files={"src": "1"})
    project.programs["list"] = lambda _files: {"l.json": '["x", "y"]'}
    assert project.plan()["e"] == Expand(("list",), 0)
    project.build()
    assert {name: type(one) for name, one in project.plan().items()} == {"list": Fresh, "e@x": Fresh, "e@y": Fresh}
    project.disk["src"] = "2"
    assert project.plan()["e"] == Expand(("list",), 2)


def test_a_stage_that_needs_an_unknown_list_waits_for_it() -> None:
    nodes = (stage("list", "src", writes=("l.json",)), each("e", source="l.json"), stage("z", "e/x"))
    project = Project(*nodes, files={"src": "1"})
    project.programs["list"] = lambda _files: {"l.json": '["x"]'}
    project.build()
    project.disk["src"] = "2"
    decision = project.plan()["z"]
    assert isinstance(decision, Maybe)
    assert "e" in decision.waiting_on


def test_a_foreach_is_blocked_if_the_maker_of_its_list_is() -> None:
    project = Project(stage("x"), stage("list", "x", writes=("l.json",)), each("e", source="l.json"))
    project.programs["list"] = lambda _files: {"l.json": '["x"]'}
    project.build()
    project.disk["x"] = "by hand"
    plan = project.plan()
    assert (plan["list"], plan["e"]) == (Blocked(("x",)), Blocked(("list",)))


def test_a_list_of_the_author_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(InvalidInputError):
        Project(each("e", source="l.json"), files={"l.json": "{}"}).plan()


def test_a_list_that_a_stage_made_and_that_cannot_be_used_any_more_is_an_error() -> None:
    project = Project(stage("list", writes=("l.json",)), each("e", source="l.json"))
    project.programs["list"] = lambda _files: {"l.json": '["x"]'}
    project.build()
    keyed = replace(each("e", source="l.json"), foreach=Foreach(source="l.json", key="id"))
    project.pipeline = Project(project.pipeline.stages[0], keyed).pipeline
    with pytest.raises(InvalidInputError):
        project.plan()


def test_unselected_stages_are_left_out_but_their_last_results_count() -> None:
    project = built()
    project.disk["src"] = "2"
    dry_run = DryRun(project.opened().decider, Selection(only=("b",)))
    assert list(dry_run.run()) == ["b"]
    assert isinstance(dry_run.decisions["b"], Fresh)
    project = Project(*CHAIN, files={"src": "1"})
    dry_run = DryRun(project.opened().decider, Selection(only=("b",)))
    assert dry_run.run() == {"b": Blocked(("a",))}


def count(seen: Preview, *kinds: type[Decision]) -> int:
    return sum(isinstance(decision, kinds) for decision in seen.decisions.values())


def has_work(seen: Preview) -> bool:
    """Return whether a build would do anything."""
    return count(seen, Fresh) < len(seen.decisions) or bool(seen.obsolete or seen.released)


def test_a_file_that_a_renamed_stage_writes_is_not_removed() -> None:
    project = built(stage("old", "src", writes=("a", "b")))
    project.pipeline = Project(stage("new", "src", writes=("a",))).pipeline
    seen = preview(project.opened())
    assert (type(seen.decisions["new"]), seen.obsolete) == (Run, ("b",))


def test_a_preview_has_the_files_of_ended_stages_and_the_switched_off_stages() -> None:
    project = built(stage("old"), stage("kept"), stage("a", "src"))
    project.git.head["kept"] = project.disk["kept"]
    off = SkippedStage(name="off", kind="shell", condition="x")
    project.pipeline = Project(stage("a", "src"), skipped=(off,)).pipeline
    seen = preview(project.opened())
    assert (seen.obsolete, seen.released, seen.skipped) == (("old",), {"kept": "kept"}, ("off",))
    assert (has_work(seen), count(seen, Fresh), count(seen, Run, Maybe)) == (True, 1, 0)
    part = preview(project.opened(), Selection(targets=("a",)))
    assert (part.obsolete, part.released, has_work(part)) == ((), {}, False)


def test_replan_decides_on_the_state_after_the_build() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    build = project.builder()
    build.run()
    decisions, state, _ = replan(build.opened, build.writer.written_lock, ALL_STAGES)
    assert [type(one) for one in decisions.values()] == [Fresh, Fresh, Fresh]
    assert (set(state.results), state is build.opened.state) == ({"a", "b", "c"}, False)
    project.disk["src"] = "2"
    decisions = replan(build.opened, build.writer.written_lock, ALL_STAGES)[0]
    assert isinstance(decisions["a"], Run)


def test_replan_forces_no_stage_again() -> None:
    project = built()
    build = project.builder(forced=("a",))
    build.run()
    decisions = replan(build.opened, build.writer.written_lock, ALL_STAGES)[0]
    assert isinstance(decisions["a"], Fresh)


@pytest.mark.parametrize(
    ("second", "again"),
    [
        pytest.param(stage("b", "other"), [], id="sources alone"),
        pytest.param(stage("b", "other", writes=("other.new",)), [], id="sources, with a pattern for its output"),
        pytest.param(stage("b", "other", "a"), ["b"], id="an output of another stage"),
        pytest.param(replace(stage("b"), inputs=(ListInput("other"),)), ["b"], id="a listing"),
        pytest.param(stage("b", "other", requires=(Condition("file_exists", "src"),)), ["b"], id="a condition"),
    ],
)
def test_replan_repeats_how_a_stage_with_many_inputs_was_resolved(second: Stage, again: list[str]) -> None:
    with patch("orch23.decide.decisions.MANY_INPUTS", 0):
        project = Project(stage("a", "src"), second, files={"src": "1", "other": "1"})
        build = project.builder()
        build.run()
        expected = {name: list(paths) for name, paths in build.opened.state.reads.items()}
        with patch("orch23.decide.decisions.resolve_stage", wraps=resolve_stage) as resolved:
            decisions, state, _ = replan(build.opened, build.writer.written_lock, ALL_STAGES)
    assert [call.args[0].name for call in resolved.call_args_list] == again
    assert [type(one) for one in decisions.values()] == [Fresh, Fresh]
    assert {name: sorted(paths) for name, paths in state.reads.items()} == {n: sorted(p) for n, p in expected.items()}


def test_replan_resolves_a_stage_with_many_inputs_again_if_another_stage_owns_one_now() -> None:
    with patch("orch23.decide.decisions.MANY_INPUTS", 0):
        project = Project(stage("a", "src"), stage("b", "out/x"), files={"src": "1", "out/x": "1"})
        build = project.builder()
        build.run()
        record = build.writer.written_lock.records["a"]
        records = {
            **build.writer.written_lock.records,
            "a": replace(record, outputs={**record.outputs, "out/x": entry("1")}),
        }
        with patch("orch23.decide.decisions.resolve_stage", wraps=resolve_stage) as resolved:
            replan(build.opened, replace(build.writer.written_lock, records=records), ALL_STAGES)
    assert [call.args[0].name for call in resolved.call_args_list] == ["b"]
