"""What a stage of a chain starts from: the original, the version of the item before, or a user's bytes (ADR 19)."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.decide.base_selection import BaseSelection
from orch23.decide.project_state import ProjectState
from orch23.engine.result_writer import ResultWriter
from orch23.model.errors import ExitCode
from orch23.model.llm import Exchange
from orch23.model.pipeline import ChainLink, WriteScope
from orch23.model.record import Base, LockFile, Record, identity_of
from tests.unit.engine.rig import Program, Project, entry, stage


def item(name: str, index: int, *reads: str, writes: str = "doc", **more: Any) -> Any:
    return stage(
        name, *reads, writes=(writes,), chain=ChainLink(chain="c", index=index), fence=WriteScope((writes,)), **more
    )


def append(project: Project, *names: str) -> None:
    """Let stages append their name to the document."""

    def appending(name: str) -> Program:
        return lambda files: {"doc": files.get("doc", "") + name}

    project.programs |= {name: appending(name) for name in names}


def two(**more: Any) -> Project:
    project = Project(item("c@x", 0, "src"), item("c@y", 1), files={"doc": "0", "src": "1"}, **more)
    append(project, "c@x", "c@y")
    return project


def bases(project: Project) -> tuple[ProjectState, BaseSelection]:
    state = project.opened().state
    return state, BaseSelection(state)


def test_the_first_item_starts_from_the_original_and_each_other_from_the_version_before_it() -> None:
    project = two()
    assert project.build().exit_code is ExitCode.OK
    assert project.disk["doc"] == "0c@xc@y"
    project.disk["src"] = "2"
    project.build()
    assert (project.ran(), project.disk["doc"]) == (["c@x"], "0c@xc@y"), "not from what is on the disk"


def test_an_edit_that_the_user_committed_is_where_the_next_run_starts() -> None:
    project = two()
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "mine."
    project.disk["src"] = "2"
    assert project.build().exit_code is ExitCode.OK
    assert project.disk["doc"] == "mine.c@xc@y"
    assert project.lock.records["c@x"].bases == {"doc": Base(entry("mine."), entry("0"))}
    assert b"mine." in project.store.exchanges.originals.values(), "its bytes outlive the store"
    project.build()
    assert set(project.statuses().values()) == {"fresh"}, "and so it stays"


def test_an_edit_that_is_not_committed_is_neither_overwritten_nor_started_from() -> None:
    project = two()
    project.build()
    project.disk["doc"] = "draft"
    project.disk["src"] = "2"
    assert project.build().exit_code is ExitCode.DECISION
    assert (project.disk["doc"], project.ran()) == ("draft", [])


def test_the_result_of_a_run_that_is_on_the_disk_is_no_base_of_the_next() -> None:
    project = two()
    project.build()
    state, chosen = bases(project)
    assert (chosen.in_force("c@x"), chosen.for_next_run("c@x", {})) == ({}, {})
    assert state.incoming_version("c@x", "doc") == entry("0")


def test_a_moved_base_holds_only_while_the_base_it_replaces_is_unchanged() -> None:
    project = two()
    moved = Record(
        stage="c@x",
        key="k",
        manifest={},
        outputs={"doc": entry("made")},
        originals={"doc": entry("0")},
        bases={"doc": Base(entry("mine"), entry("0"))},
    )
    project.lock = LockFile({"c@x": moved})
    assert bases(project)[1].in_force("c@x") == {"doc": entry("mine")}
    other = replace(moved, bases={"doc": Base(entry("mine"), entry("another original"))})
    project.lock = LockFile({"c@x": other})
    assert bases(project)[1].in_force("c@x") == {}


def test_a_stage_outside_of_chains_has_no_base() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    record = Record(stage="a", key="k", manifest={}, bases={"a": Base(entry("mine"))})
    project.lock = LockFile({"a": record})
    chosen = bases(project)[1]
    assert (chosen.in_force("a"), list(chosen.alternatives("a", "i", {})), chosen.for_next_run("a", {})) == ({}, [], {})


def test_the_bases_of_other_records_are_tried_each_once_and_the_original_with_them() -> None:
    project = two()
    state, chosen = bases(project)
    manifest = {"kind": "shell", "outputs": ["doc"]}
    for number, text in enumerate(("one", "two", "one")):
        based = {"doc": Base(entry(text), entry("0"))}
        project.store.records.put(Record(stage="c@x", key=f"k{number}", manifest=manifest, bases=based))
    found = list(chosen.alternatives("c@x", identity_of(manifest), {"doc": entry("two")}))
    assert found == [{}, {"doc": entry("one")}]
    assert state.moved_bases == {}, "choosing changes nothing"


def test_a_stage_goes_on_from_the_failure_that_it_kept() -> None:
    project = Project(item("c@x", 0, "src", on_failure="keep"), files={"doc": "0", "src": "1"})
    project.git.head["doc"] = "0"
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "mine."
    project.programs["c@x"] = project.failing(written={"doc": "mine. and half"})
    project.disk["src"] = "2"
    project.build()
    assert project.disk["doc"] == "mine. and half"
    assert bases(project)[1].in_force("c@x") == {"doc": entry("mine.")}
    project.disk["doc"] = "edited since"
    assert bases(project)[1].in_force("c@x") == {}, "it is not on the disk any more"


def test_a_chain_without_a_result_starts_from_the_file_on_disk() -> None:
    project = two()
    project.disk["doc"] = project.git.head["doc"] = "long ago"
    project.build()
    assert project.disk["doc"] == "long agoc@xc@y"
    assert project.lock.records["c@x"].originals == {"doc": entry("long ago")}


def test_a_moved_base_on_the_disk_is_no_users_edit_for_the_result_that_came_of_it() -> None:
    project = Project(item("c@x", 0, "src"), files={"doc": "0", "src": "1"})
    append(project, "c@x")
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "mine."
    project.disk["src"] = "2"
    opened = project.opened()
    resolved = opened.decider.decide("c@x").resolved
    assert opened.state.moved_bases["c@x"] == {"doc": entry("mine.")}
    record = Record(stage="c@x", key=resolved.key, manifest=resolved.manifest, outputs={"doc": entry("new")})
    assert ResultWriter(opened).change({"c@x": record}).foreign == ()


def test_the_bytes_of_a_moved_base_are_kept_before_anything_is_replaced() -> None:
    project = Project(item("c@x", 0, "src"), files={"doc": "0", "src": "1"})
    append(project, "c@x")
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "mine."
    project.disk["src"] = "2"
    opened = project.opened()
    resolved = opened.decider.decide("c@x").resolved
    ResultWriter(opened).keep(resolved, StageResult(outputs={}, deleted=(), exchanges=(), attempts=1))
    assert b"mine." in project.store.exchanges.originals.values()


# ---- when the disk is followed ------------------------------------------------------------------------


def test_an_older_version_that_git_put_back_is_no_edit() -> None:
    project = Project(item("c@x", 0), item("c@y", 1, "src"), files={"doc": "0", "src": "1"})
    append(project, "c@x", "c@y")
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "0"
    project.disk["src"] = "2"
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.disk["doc"]) == (["c@y"], "0c@xc@y")


def test_behind_an_item_with_another_result_the_disk_is_not_followed() -> None:
    project = two()
    project.build()
    project.disk["doc"] = project.git.head["doc"] = "mine."
    former = project.lock.records["c@x"]
    for ran, result, moved in (
        (set(), former, {"doc": entry("mine.")}),
        ({"c@x"}, former, {"doc": entry("mine.")}),
        ({"c@x"}, replace(former, outputs={"doc": entry("another")}), {}),
    ):
        state, chosen = bases(project)
        state.settle("c@x", result)
        state.ran |= ran
        assert chosen.for_next_run("c@y", {}) == moved
    state, chosen = bases(project)
    assert chosen.for_next_run("c@y", {}) == {}, "nor where it has none yet"
    state.settle("c@x", former)
    state.unsettled.add("c@x")
    assert chosen.for_next_run("c@y", {}) == {}, "nor where that is predicted"


def test_accepted_bytes_are_where_the_next_run_starts() -> None:
    project = Project(item("c@x", 0), files={"doc": "0"})
    append(project, "c@x")
    project.build()
    project.disk["doc"] = "mine."
    assert bases(project)[1].for_next_run("c@x", {}) == {}, "an edit is no base by itself"
    accepted = Record(stage="c@x", key="k", manifest={}, outputs={"doc": entry("mine.")}, accepted=("doc",))
    project.store.records.put(accepted)
    assert bases(project)[1].for_next_run("c@x", {}) == {"doc": entry("mine.")}
    project.store.records.all.remove(accepted)
    project.store.records.put(replace(accepted, accepted=(), exchanges=("by hand",)))
    assert bases(project)[1].for_next_run("c@x", {}) == {}
    by_hand = Exchange(fingerprint="by hand", stage="c@x", request={}, response="", outcome="accepted_by_hand")
    project.store.exchanges.put(by_hand, None)
    assert bases(project)[1].for_next_run("c@x", {}) == {"doc": entry("mine.")}, (
        "an older record says it by its exchange"
    )


@pytest.mark.parametrize(("committed", "made"), [(True, "a()c@x"), (False, "c@x")])
def test_a_new_chain_goes_on_from_the_file_of_an_ended_stage_if_that_stays(*, committed: bool, made: str) -> None:
    project = Project(stage("a", writes=("doc",)))
    project.build()
    if committed:
        project.git.head["doc"] = project.disk["doc"]
    project.pipeline = Project(item("c@x", 0)).pipeline
    append(project, "c@x")
    assert project.build().exit_code is ExitCode.OK
    assert project.disk["doc"] == made


def test_a_run_starts_from_results_of_user_edits_that_would_be_lost_otherwise() -> None:
    project = two()
    project.build()
    based = {"doc": Base(entry("mine."), entry("0"))}
    for bases_then, moved in ((based, {"doc": entry("mine. and more")}), ({}, {})):
        project.store.records.all.clear()
        made = {"doc": entry("mine. and more")}
        project.store.records.put(Record(stage="c@x", key="elsewhere", manifest={}, outputs=made, bases=bases_then))
        project.disk["doc"] = "mine. and more"
        assert bases(project)[1].for_next_run("c@x", {}) == moved


def test_an_unmoved_base_is_left_out() -> None:
    project = two()
    assert bases(project)[1].for_next_run("c@x", {"doc": entry("0")}) == {}


def test_only_a_failure_that_its_stage_keeps_and_a_run_made_is_gone_on_from() -> None:
    based = {"doc": Base(entry("mine."), entry("0"))}
    kept = Record(
        stage="c@x", key="k", manifest={"action_format": 1}, outputs={"doc": entry("half")}, bases=based, failed=True
    )
    for how, record, found in (
        ("keep", kept, {"doc": entry("mine.")}),
        ("rollback", kept, {}),
        ("keep", replace(kept, manifest={}), {}),
        ("keep", replace(kept, failed=False), {}),
    ):
        project = Project(item("c@x", 0, on_failure=how), files={"doc": "half"})
        project.store.records.put(replace(record, originals={"doc": entry("0")}))
        assert bases(project)[1].in_force("c@x") == found
