"""What a decision rests on: records of today's key, bytes that can be had, edits, and who owns a file."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from orch23.decide.decisions import DecidedStage
from orch23.decide.ownership import OtherPipelines
from orch23.decide.plan_walk import PlanWalk
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode
from orch23.model.pipeline import ChainLink, Condition, WriteScope
from orch23.model.plan import Edited, Fresh, Restore, Run, VerifyOnly
from orch23.model.record import LockFile, Reason, retained_key
from orch23.plan.planner import ALL_STAGES
from orch23.steps.render.spec import RenderStep
from tests.doubles import FakeProvider
from tests.unit.engine.rig import Project, answer, asks, entry, stage


def built(*nodes: Any, **files: str) -> Project:
    project = Project(*nodes, files=files)
    assert project.build().exit_code is ExitCode.OK
    return project


def codes(decision: Any) -> list[str]:
    return [reason.code for reason in decision.reasons]


def rendered(name: str, *reads: str) -> Any:
    return stage(name, *reads, step=RenderStep(template="t.j2"))


# ---- records ----------------------------------------------------------------------------------------


def test_a_renamed_stage_finds_its_result_by_its_key() -> None:
    project = built(stage("a", writes=("out",)))
    renamed = replace(stage("a", writes=("out",)), name="b")
    project.pipeline = Project(renamed).pipeline
    assert isinstance(project.plan()["b"], Fresh)
    project.build()
    assert (project.ran(), set(project.lock.records)) == ([], {"b"})


def test_of_several_results_of_one_key_that_of_the_lock_file_is_restored() -> None:
    project = built(stage("a"))
    other = replace(project.lock.records["a"], outputs={"a": entry("another run")})
    project.store.contents.put(b"another run")
    project.store.records.put(other)
    del project.disk.files["a"]
    decision = project.plan()["a"]
    assert isinstance(decision, Restore)
    assert decision.record.outputs == {"a": entry("a()")}
    project.disk["a"] = "another run"
    assert isinstance(project.plan()["a"], Fresh), "what is on the disk comes before that"


def test_a_result_with_lost_bytes_is_rebuilt_and_a_kept_failure_does_not_count() -> None:
    project = built(stage("a"))
    del project.disk.files["a"]
    project.store.forget_bytes("a()")
    decision = project.plan()["a"]
    assert isinstance(decision, Run)
    assert codes(decision) == ["output_missing"]
    project = built(stage("a"))
    project.store.records.all = [replace(project.lock.records["a"], failed=True)]
    project.lock = LockFile()
    decision = project.plan()["a"]
    assert isinstance(decision, Run), "its bytes are known and make nothing fresh"
    assert codes(decision) == ["first_run"]


def test_a_forced_or_uncached_stage_runs_always() -> None:
    project = built(stage("a"), stage("b", cache=False))
    assert isinstance(project.plan()["a"], Fresh)
    assert project.plan()["b"] == Run((Reason("cache_disabled"),))
    assert project.plan(forced=("a",))["a"] == Run((Reason("forced"),))


def test_where_the_verification_alone_changed_the_result_is_verified_if_its_bytes_are_there() -> None:
    project = built(stage("a"))
    project.pipeline = Project(stage("a", ensures=(Condition("file_exists", "a"),))).pipeline
    assert isinstance(project.plan()["a"], VerifyOnly)
    del project.disk.files["a"]
    project.store.forget_bytes("a()")
    assert isinstance(project.plan()["a"], Run)


def test_a_recorded_response_restores_a_file_with_lost_bytes() -> None:
    project = Project(asks("m"))
    project.texts["p.j2"] = "write"
    project.provider = FakeProvider([answer(m="by a model")])
    project.build()
    del project.disk.files["m"]
    project.store.forget_bytes("by a model")
    assert isinstance(project.plan()["m"], Restore)
    project.build()
    assert (project.disk["m"], len(project.provider.requests)) == ("by a model", 1)


# ---- edits ------------------------------------------------------------------------------------------


def test_a_file_that_existed_before_the_first_build_is_not_overwritten() -> None:
    project = Project(stage("a"), files={"a": "mine"})
    decision = project.plan()["a"]
    assert decision == Run((Reason("first_run"),), edits=Edited(("a",), None, ("a",)))
    assert project.plan(overwrite_edited=True)["a"] == Run((Reason("first_run"),))


def test_an_edit_of_one_output_leaves_the_stage_in_place_if_the_others_are_as_recorded() -> None:
    project = built(stage("a", writes=("a", "log")))
    project.disk["log"] = "edited"
    decision = project.plan()["a"]
    assert isinstance(decision, Edited)
    assert (decision.paths, decision.record) == (("log",), project.lock.records["a"])
    del project.disk.files["a"]
    assert getattr(project.plan()["a"], "record", "?") is None


def test_a_committed_edit_of_a_program_output_is_left_to_the_user() -> None:
    project = built(stage("a"))
    project.disk["a"] = project.git.head["a"] = "by hand"
    assert isinstance(project.plan()["a"], Edited)


def test_accepted_bytes_that_a_run_would_overwrite_are_for_the_user_to_decide() -> None:
    project = built(stage("a", "src"), src="1")
    accepted = replace(project.lock.records["a"], outputs={"a": entry("by hand")}, accepted=("a",))
    project.store.records.put(accepted)
    project.lock = LockFile({"a": accepted})
    project.disk["a"] = "by hand"
    assert isinstance(project.plan()["a"], Fresh)
    project.disk["src"] = "2"
    decision = project.plan()["a"]
    assert isinstance(decision, Run)
    assert decision.edits == Edited(("a",), accepted=("a",))
    assert getattr(project.plan(overwrite_edited=True)["a"], "edits", "?") is None


def test_an_edit_that_the_user_committed_is_verified_and_one_that_is_not_is_left() -> None:
    project = Project(asks("m"))
    project.texts["p.j2"] = "write"
    project.provider = FakeProvider([answer(m="by a model")])
    project.build()
    project.disk["m"] = "by hand"
    assert isinstance(project.plan()["m"], Edited)
    project.git.head["m"] = "by hand"
    decision = project.plan()["m"]
    assert isinstance(decision, VerifyOnly)
    assert (decision.adopted, decision.record.outputs) == (("m",), {"m": entry("by hand")})
    assert codes(decision) == ["output_edited"]


# ---- bytes that are lost --------------------------------------------------------------------------------


def test_lost_bytes_break_only_the_stage_that_wants_to_read_them() -> None:
    project = Project(stage("a", writes=("a",)), rendered("r", "a"), stage("other", "a"))
    project.texts["t.j2"] = "{{ inputs[0].text }}"
    project.build()
    opened = project.opened()
    opened.state.settle("a", replace(project.lock.records["a"], outputs={"a": entry("nowhere")}))
    project.store.records.all.clear()
    broken = opened.decider.resolve("r").broken
    assert [one.code for one in broken] == ["E710"]
    assert opened.decider.resolve("other").broken == ()


def test_a_prompt_with_lost_inputs_matches_its_record_if_all_else_is_equal() -> None:
    project = Project(stage("a"), asks("m", "a"))
    project.texts["p.j2"] = "write of {{ inputs[0].text }}"
    project.provider = FakeProvider([answer(m="by a model")])
    project.build()
    del project.disk.files["a"]
    project.store.forget_bytes("a()")
    opened = project.opened()
    opened.state.settle("a", project.lock.records["a"])
    found = opened.decider.resolve("m")
    assert (found.broken, found.key) == ((), project.lock.records["m"].key)
    project.texts["p.j2"] = "another prompt of {{ inputs[0].text }}"
    assert [one.code for one in project_resolves(project, "m").broken] == ["E710"]


def project_resolves(project: Project, name: str) -> Any:
    opened = project.opened()
    opened.state.settle("a", project.lock.records["a"])
    return opened.decider.resolve(name)


# ---- other pipelines, and what was reset ---------------------------------------------------------------


def test_a_stage_that_would_write_a_file_of_another_pipeline_is_broken_and_does_nothing() -> None:
    project = built(stage("a"), stage("b"))
    refusal = Diagnostic("E692", "another pipeline owns it", subject="a")
    claims = SimpleNamespace(
        owner=lambda _path: None, ownership_errors=lambda _name, paths: (refusal,) if "a" in paths else ()
    )
    project.lock = LockFile()
    opened = project.opened(claims=cast("OtherPipelines", claims))
    del project.disk.files["a"]
    decided = opened.decider.decide("a")
    assert isinstance(decided.decision, Run)
    assert decided.resolved.broken == (refusal,)
    assert opened.decider.decide("b").resolved.broken == ()


@pytest.mark.parametrize(
    ("same", "accepted", "kind"), [(True, ("m",), VerifyOnly), (False, ("m",), Run), (True, (), Run)]
)
def test_an_accepted_result_that_reset_dropped_is_recorded_again_if_the_request_is_the_same(
    *, same: bool, accepted: tuple[str, ...], kind: type
) -> None:
    project = Project(asks("m", "src"), files={"src": "1"})
    project.texts["p.j2"] = "write of {% for one in inputs %}{{ one.text }}{% endfor %}"
    project.provider = FakeProvider([answer(m="by hand")])
    project.build()
    record = project.lock.records["m"]
    project.store.records.all.clear()
    retained = replace(record, key=retained_key(record.key), failed=True, accepted=accepted)
    project.lock = LockFile({}, {"m": retained})
    project.store.records.put(retained)
    if not same:
        project.disk["src"] = "2"
    assert isinstance(project.plan()["m"], kind)


# ---- chains -------------------------------------------------------------------------------------------


def item(name: str, index: int, *reads: str) -> Any:
    chain = ChainLink(chain="c", index=index)
    return stage(name, *reads, writes=("doc",), chain=chain, fence=WriteScope(("doc",)))


def test_an_earlier_version_is_only_needed_where_a_later_item_has_to_run() -> None:
    project = built(item("c@x", 0, "one"), item("c@y", 1, "two"), doc="0", one="1", two="1")
    first = next(iter(project.lock.records["c@x"].outputs.values()))
    text = project.store.contents.get(first.digest).decode()
    project.store.forget_bytes(text)
    assert {name: type(one) for name, one in project.plan().items()} == {"c@x": Fresh, "c@y": Fresh}
    project.disk["two"] = "2"
    assert isinstance(project.plan()["c@x"], Run), "its version is what the next one starts from"


def test_checking_later_items_leaves_the_state_unchanged() -> None:
    project = built(item("c@x", 0, "one"), item("c@y", 1, "two"), doc="0", one="1", two="1")
    seen: dict[str, set[str]] = {}

    decider = project.opened().decider
    walk = PlanWalk(decider, ALL_STAGES, blocks=lambda _up, _node: False)
    for step in walk:
        assert isinstance(step, DecidedStage)
        seen[step.resolved.stage.name] = set(decider.state.results)
        walk.release(step.resolved.stage.name)
    assert seen == {"c@x": {"c@x"}, "c@y": {"c@x", "c@y"}}


def test_a_stage_waits_for_its_inputs_and_for_earlier_items_of_its_chain() -> None:
    project = Project(stage("a"), stage("b"), item("c@x", 0, "a"), item("c@y", 1, "b"), item("c@z", 2))
    decider = project.opened().decider
    decider.state.unsettled |= {"a", "b", "c@x"}
    assert decider.waiting_on("c@x") == ("a",)
    assert set(decider.waiting_on("c@y")) == {"b", "c@x"}
    decider.state.unsettled = {"c@x"}
    assert decider.waiting_on("c@z") == ("c@x",), "also where another item is between them"
    decider.state.unsettled = set()
    assert decider.waiting_on("c@y") == ()


def test_reads_of_a_decision_are_noted_under_the_stage() -> None:
    project = built(stage("a", "src"), src="1")
    opened = project.opened()
    opened.decider.decide("a")
    assert "a" in opened.state.reads
