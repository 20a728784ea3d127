"""What became of each stage is known in one place, and files are promoted before anything else is told."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.engine.commit import Change, Committer
from orch23.engine.ends import Paid, StageEnd
from orch23.engine.narrator import Narrator
from orch23.engine.results import Results
from orch23.engine.together import Success
from orch23.engine.walk import Walk
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.event import Event, StageFinished, StageHeld
from orch23.model.pipeline import Fence, PathInput, Pipeline, Stage
from orch23.model.record import Record
from orch23.model.stage_status import TRANSITIONS, StageStatus, moved
from orch23.plan.graph import build_plan
from orch23.steps.shell.spec import ShellStep
from orch23.store.promote import Promoted
from tests.doubles import FakeClock


def stage(name: str, *reads: str, group: str | None = None) -> Stage:
    inputs = tuple(PathInput(path) for path in reads)
    return Stage(name=name, step=ShellStep(("x",)), inputs=inputs, outputs=(name,), fence=Fence((name,)), promote=group)


class Rig:
    """Results over a committer that notes what it does."""

    def __init__(self, *stages: Stage) -> None:
        plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
        assert plan is not None, problems
        self.heard: list[tuple[str, ...]] = []
        self.passed: list[str] = []
        self.lost: set[str] = set()
        self.foreign: set[str] = set()
        self.clock = FakeClock()
        self.session = SimpleNamespace(
            world=SimpleNamespace(plan=plan), lock=SimpleNamespace(records={}), pipeline=plan.pipeline
        )
        self.results = Results(
            committer=cast("Committer", self),
            narrator=Narrator(self, self.clock.monotonic),
            walk=cast("Walk", SimpleNamespace(wanted=frozenset(plan.nodes), let_pass=self.passed.append)),
            clock=self.clock.monotonic,
            paid=lambda _: Paid(),
        )

    # as an observer
    def notice(self, event: Event) -> None:
        match event.data:
            case StageFinished(status=status):
                self.heard.append((event.role, status.value))
            case StageHeld():
                self.heard.append((event.role, "held for others"))
            case _:
                pass

    # as a committer
    def make_last(self) -> None:
        self.heard.append(("store", "synced"))

    def change(self, records: Mapping[str, Record]) -> Change:
        targets: dict[str, dict[str, FileEntry | None]] = {name: {name: None} for name in records}
        return Change(targets, {}, {}, tuple(name for name in records if name in self.foreign))

    def check(self, _change: Change) -> None:
        pass

    def hold(self, name: str, _record: Record) -> None:
        if name in self.lost:
            raise MissingBytesError(digest_bytes(name.encode()).sha256)

    def promote(self, records: Mapping[str, Record], change: Change) -> Promoted:
        for name in records:
            if name in self.lost:
                raise MissingBytesError(digest_bytes(name.encode()).sha256)
        self.heard.append(("promoted", *records))
        return Promoted((), (), change.foreign)

    def stands(self, _name: str, _record: Record) -> bool:
        return False

    def success(self, name: str, status: StageStatus = StageStatus.BUILT, how: Any = "promoted") -> Success:
        resolved = SimpleNamespace(stage=self.session.world.plan.nodes[name], key="k")
        record = Record(stage=name, key="k", manifest={})
        end = StageEnd(status=status, text=status.value, key="k")
        return Success(resolved=cast("Any", resolved), record=record, end=end, how=how)

    def run(self, *names: str) -> None:
        for name in names:
            self.results.move(name, StageStatus.READY)
            self.results.move(name, StageStatus.RUNNING)


FAILED = StageEnd(status=StageStatus.FAILED, text="no")


def test_what_is_gathered_is_promoted_together_before_anything_else_is_told() -> None:
    rig = Rig(stage("a"), stage("b"), stage("c"))
    rig.run("a", "b", "c")
    rig.results.gather(rig.success("a"))
    rig.results.gather(rig.success("b"))
    assert (rig.heard, rig.passed) == ([], ["a", "b"]), "others see it already"
    rig.results.end("c", FAILED)
    assert rig.heard == [
        ("store", "synced"),
        ("promoted", "a", "b"),
        ("a", "built"),
        ("b", "built"),
        ("c", "failed"),
    ]
    assert rig.results.failed == 1


def test_what_is_gathered_waits_for_a_moment_unless_nothing_else_is_to_be_done() -> None:
    rig = Rig(stage("a"), stage("b"))
    rig.run("a", "b")
    assert not rig.results.settle(idle=True)
    assert rig.results.left_s is None
    rig.results.gather(rig.success("a"))
    assert not rig.results.settle(idle=False)
    left = rig.results.left_s
    assert left
    rig.clock.tick(left)
    assert rig.results.settle(idle=False)
    rig.results.gather(rig.success("b"))
    assert rig.results.settle(idle=True)
    assert [name for name, status in rig.heard if status == "built"] == ["a", "b"]


def test_where_one_cannot_be_promoted_the_others_are() -> None:
    rig = Rig(stage("a"), stage("b"), stage("c", "b"))
    rig.run("a", "b", "c")
    rig.lost = {"b"}
    for name in ("a", "b", "c"):
        rig.results.gather(rig.success(name))
    rig.results.promote()
    assert {name: end.status for name, end in rig.results.ends.items()} == {
        "a": StageStatus.BUILT,
        "b": StageStatus.FAILED,
        "c": StageStatus.BLOCKED,
    }


def test_a_persons_file_stays_and_its_stage_is_edited() -> None:
    rig = Rig(stage("a"))
    rig.run("a")
    rig.foreign = {"a"}
    rig.results.take(rig.success("a"))
    assert rig.results.ends["a"].status is StageStatus.EDITED


def test_a_group_is_held_until_it_is_complete() -> None:
    rig = Rig(stage("a", group="g"), stage("b", group="g"), stage("c", "a"))
    rig.run("a", "b")
    rig.results.take(rig.success("a"))
    assert rig.heard == [("a", "held for others")]
    assert rig.passed == ["a"]
    rig.results.take(rig.success("b"))
    assert rig.heard[1:] == [("promoted", "a", "b"), ("a", "built"), ("b", "built")]


def test_what_is_held_in_vain_ends_held_and_what_never_ran_as_the_rest() -> None:
    rig = Rig(stage("a", group="g"), stage("b", group="g"), stage("c", "b"))
    rig.run("a", "b")
    rig.results.take(rig.success("a"))
    rig.results.end("b", FAILED)
    ends = rig.results.close(StageEnd(status=StageStatus.BLOCKED, text="not run"))
    assert {name: (end.status.value, end.by) for name, end in ends.items()} == {
        "a": ("held", ("b",)),
        "b": ("failed", ()),
        "c": ("blocked", ()),
    }


def test_bytes_that_are_lost_fail_a_new_result_and_are_told_to_who_restores() -> None:
    rig = Rig(stage("a"), stage("b"))
    rig.lost = {"a", "b"}
    rig.run("a")
    rig.results.take(rig.success("a"))
    assert rig.results.ends["a"].status is StageStatus.FAILED
    with pytest.raises(MissingBytesError):
        rig.results.take(rig.success("b", StageStatus.RESTORED, "restored"))
    assert "b" not in rig.results.ends
    rig.run("b")


def test_nobody_hears_of_what_nobody_asked_for() -> None:
    rig = Rig(stage("a"), stage("b", "a"))
    rig.results.leave_out("a", StageStatus.NOT_BUILT)
    assert (rig.heard, rig.passed) == ([], ["a"])
    assert rig.results.stuck("b") == ("a",)


def test_a_stage_ends_once() -> None:
    rig = Rig(stage("a"))
    rig.results.end("a", FAILED)
    with pytest.raises(ValueError, match="BUG: stage a cannot go from failed to failed"):
        rig.results.end("a", FAILED)


def test_each_status_that_is_not_final_leads_to_an_end() -> None:
    for status in StageStatus:
        reached = {status}
        while more := {after for one in reached for after in TRANSITIONS.get(one, ())} - reached:
            reached |= more
        assert any(one.is_told for one in reached) or status in (StageStatus.PASSED_OVER, StageStatus.NOT_BUILT)
    assert moved(StageStatus.WAITING, StageStatus.READY, "a") is StageStatus.READY
    with pytest.raises(ValueError, match="cannot go from waiting to running"):
        moved(StageStatus.WAITING, StageStatus.RUNNING, "a")


@pytest.mark.parametrize("status", list(StageStatus))
def test_who_is_up_to_date_lets_pass_and_who_has_a_result_is_up_to_date(status: StageStatus) -> None:
    assert status.is_green or not status.has_result
    assert status.lets_pass or not status.is_green
    assert status.is_green or not status.is_idle
