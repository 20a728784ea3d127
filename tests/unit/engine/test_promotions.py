"""What became of each stage is known in one place, and files are promoted before anything else is told."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.attempt.attempt import StageResult
from orch23.attempt.failures import failure_of
from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import StageCost, StageOutcome
from orch23.decide.plan_walk import PlanWalk
from orch23.engine.promotions import Promotions
from orch23.engine.result_writer import ResultWriter, WorkspaceChange
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.event import Event, FilesPromoted, StageFinished, StageWithheld, Warned
from orch23.model.event_data import TRANSITIONS, StageStatus, checked_transition
from orch23.model.pipeline import ChainLink, CommandsStep, PathInput, Pipeline, Stage, Verify, WriteScope
from orch23.model.record import Record
from orch23.plan.planner import build_plan
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep
from orch23.store.promotion import PromotionResult
from tests.doubles import FakeClock


def stage(name: str, *reads: str, group: str | None = None, **more: Any) -> Stage:
    inputs = tuple(PathInput(path) for path in reads)
    facts = {"step": ShellStep(("x",)), "inputs": inputs, "outputs": (name,), "fence": WriteScope((name,)), **more}
    return Stage(name=name, promote=group, **facts)


MODEL = LLMStep(prompt="p.j2", provider="command", model="m", command=("c",))


class Rig:
    """Promotions over a writer that notes what it does."""

    def __init__(self, *stages: Stage) -> None:
        plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
        assert plan is not None, problems
        self.heard: list[tuple[str, ...]] = []
        self.passed: list[str] = []
        self.lost: set[str] = set()
        self.foreign: set[str] = set()
        self.changed: tuple[str, ...] = ()
        self.clock = FakeClock()
        self.opened = SimpleNamespace(
            state=SimpleNamespace(
                plan=plan, ownership_errors=lambda *_, **__: (), is_shared=lambda _: False, shared=None
            ),
            store=SimpleNamespace(sync=self.sync),
            lock=SimpleNamespace(records={}),
            pipeline=plan.pipeline,
        )
        self.results = Promotions(
            writer=cast("ResultWriter", self),
            events=RunEvents(self, self.clock.monotonic),
            walk=cast("PlanWalk", SimpleNamespace(wanted=frozenset(plan.nodes), release=self.passed.append)),
            clock=self.clock.monotonic,
            cost_of=lambda _: StageCost(),
        )

    # as an observer
    def notice(self, event: Event) -> None:
        match event.data:
            case StageFinished(status=status):
                self.heard.append((event.role, status.value))
            case StageWithheld():
                self.heard.append((event.role, "held for others"))
            case Warned(paths=paths):
                self.heard.append((event.role, "warned", *paths))
            case FilesPromoted() if event.message.startswith("kept"):
                self.heard.append((event.role, "kept"))
            case _:
                pass

    # as a writer
    def keep(self, resolved: Any, _done: StageResult) -> Record:
        self.heard.append(("durable", resolved.stage.name))
        return self.record(resolved.stage.name)

    def keep_for_later(self, resolved: Any, _done: StageResult) -> Record:
        return self.record(resolved.stage.name)

    def store_trusted_record(self, _resolved: object, _record: Record) -> None:
        pass

    def use_recorded(self, _resolved: Any, _record: Record) -> None:
        pass

    def changed_inputs(self, _resolved: Any, _manifest: object) -> tuple[str, ...]:
        return self.changed

    def keep_failure(self, _resolved: Any, _done: StageResult) -> PromotionResult:
        return PromotionResult((), (), ())

    def sync(self) -> None:
        self.heard.append(("store", "synced"))

    def change(self, records: Mapping[str, Record]) -> WorkspaceChange:
        targets: dict[str, dict[str, FileEntry | None]] = {name: {name: None} for name in records}
        return WorkspaceChange(targets, {}, {}, tuple(name for name in records if name in self.foreign))

    def ensure_stored(self, _files: object) -> None:
        pass

    def withhold(self, name: str, _record: Record) -> None:
        if name in self.lost:
            raise MissingBytesError(digest_bytes(name.encode()).sha256)

    def promote(self, records: Mapping[str, Record], change: WorkspaceChange) -> PromotionResult:
        for name in records:
            if name in self.lost:
                raise MissingBytesError(digest_bytes(name.encode()).sha256)
        self.heard.append(("promoted", *records))
        return PromotionResult((), (), change.foreign)

    def is_in_place(self, _name: str, _record: Record) -> bool:
        return False

    # what a loop does
    def record(self, name: str) -> Record:
        return Record(stage=name, key="k", manifest={})

    def resolved(self, name: str) -> Any:
        return SimpleNamespace(stage=self.opened.state.plan.nodes[name], key="k")

    def finish(self, name: str, took_s: float = 0.0) -> None:
        """End a stage well; by default as one that is cheap to make again."""
        done = StageResult(outputs={}, deleted=(), exchanges=(), attempts=1, took_s=took_s)
        self.results.finish(self.resolved(name), done)

    def fail(self, name: str) -> None:
        failure = failure_of("verify_failed", [Diagnostic("E303", "no")])
        done = StageResult(
            outputs={name: ENTRY}, deleted=(), exchanges=(), attempts=2, failure=failure, note="so it is"
        )
        self.results.fail(self.resolved(name), done, failure)

    def run(self, *names: str) -> None:
        for name in names:
            self.results.set_status(name, StageStatus.READY)
            self.results.set_status(name, StageStatus.RUNNING)


FAILED = StageOutcome(status=StageStatus.FAILED, text="no")
LONG_S = 10.0
ENTRY = FileEntry(digest_bytes(b"x"))


def test_deferred_results_are_promoted_together_before_anything_else_is_reported() -> None:
    rig = Rig(stage("a"), stage("b"), stage("c"))
    rig.run("a", "b", "c")
    rig.finish("a")
    rig.finish("b")
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


def test_a_slow_result_is_promoted_at_once_after_the_waiting_ones() -> None:
    rig = Rig(stage("a"), stage("b"))
    rig.run("a", "b")
    rig.finish("a")
    rig.finish("b", LONG_S)
    assert rig.heard == [
        ("durable", "b"),
        ("store", "synced"),
        ("promoted", "a"),
        ("a", "built"),
        ("promoted", "b"),
        ("b", "built"),
    ]


def test_kept_files_of_a_failed_stage_are_promoted_after_waiting_results() -> None:
    rig = Rig(stage("a"), stage("b", "a", on_failure="keep"))
    rig.run("a", "b")
    rig.finish("a")
    rig.fail("b")
    assert rig.heard == [("store", "synced"), ("promoted", "a"), ("a", "built"), ("b", "kept"), ("b", "failed")]
    assert rig.results.outcomes["b"].text == "no; so it is"


def test_what_a_model_call_depends_on_is_on_disk_before_it() -> None:
    rig = Rig(stage("a"), stage("b", "a"), stage("c", "a", step=MODEL), stage("d", step=MODEL))
    rig.run("a")
    rig.finish("a")
    assert rig.results.before(stage("b", "a")) == ()
    assert rig.results.before(stage("d", step=MODEL)) == ()
    assert rig.heard == [], "a command does not wait, nor a model that does not depend on it"
    assert rig.results.before(stage("c", "a", step=MODEL)) == ()
    assert rig.heard[-1] == ("a", "built")


def test_results_of_models_are_promoted_together_however_long_the_calls_took() -> None:
    rig = Rig(stage("a", step=MODEL), stage("b", step=MODEL))
    rig.run("a", "b")
    rig.finish("a", LONG_S)
    assert rig.results.before(stage("b", step=MODEL)) == ()
    rig.finish("b", LONG_S)
    assert rig.heard == []
    rig.results.settle(idle=True)
    assert rig.heard[:2] == [("store", "synced"), ("promoted", "a", "b")]


@pytest.mark.parametrize(
    "more",
    [
        {"verify": Verify(steps=(CommandsStep(allow=("true",), commands=("true",)),))},
        {"chain": ChainLink(chain="all", index=0)},
    ],
    ids=["a process verifies it", "another stage starts from its version"],
)
def test_a_result_that_takes_long_to_verify_or_has_a_successor_is_durable_at_once(more: dict[str, Any]) -> None:
    link = ChainLink(chain="all", index=1) if "chain" in more else None
    rig = Rig(stage("a", step=MODEL, **more), stage("b", step=MODEL, chain=link))
    rig.run("a")
    rig.finish("a")
    assert rig.heard == [("durable", "a"), ("promoted", "a"), ("a", "built")]


def test_a_stage_is_not_started_if_its_upstream_cannot_be_promoted() -> None:
    rig = Rig(stage("a"), stage("b", "a", step=MODEL))
    rig.run("a")
    rig.foreign = {"a"}
    rig.finish("a")
    assert rig.results.before(stage("b", "a", step=MODEL)) == ("a",)


def test_changed_inputs_are_reported_before_the_end() -> None:
    rig = Rig(stage("a"))
    rig.run("a")
    rig.changed = ("in.txt",)
    rig.finish("a")
    rig.results.settle(idle=True)
    assert rig.heard[0] == ("a", "warned", "in.txt")


def test_a_group_does_not_wait_for_an_edit_in_place() -> None:
    rig = Rig(stage("a", group="g"), stage("b", group="g"))
    rig.run("a")
    rig.finish("a")
    rig.results.end("b", StageOutcome(status=StageStatus.EDITED, paths=("b",), in_place=True))
    assert rig.heard[-3:] == [("b", "edited"), ("promoted", "a"), ("a", "built")]


def test_deferred_results_wait_for_a_short_time_unless_the_loop_is_idle() -> None:
    rig = Rig(stage("a"), stage("b"))
    rig.run("a", "b")
    assert not rig.results.settle(idle=True)
    assert rig.results.may_wait_s == math.inf
    rig.finish("a")
    assert not rig.results.settle(idle=False)
    left = rig.results.may_wait_s
    assert 0 < left < math.inf
    rig.clock.tick(left)
    assert rig.results.settle(idle=False)
    rig.finish("b")
    assert rig.results.settle(idle=True)
    assert [name for name, status in rig.heard if status == "built"] == ["a", "b"]


def test_where_one_cannot_be_promoted_the_others_are() -> None:
    rig = Rig(stage("a"), stage("b"), stage("c", "b"))
    rig.run("a", "b", "c")
    rig.lost = {"b"}
    for name in ("a", "b", "c"):
        rig.finish(name)
    rig.results.settle(idle=True)
    assert {name: end.status for name, end in rig.results.outcomes.items()} == {
        "a": StageStatus.BUILT,
        "b": StageStatus.FAILED,
        "c": StageStatus.BLOCKED,
    }


def test_a_users_file_stays_and_its_stage_is_edited() -> None:
    rig = Rig(stage("a"))
    rig.run("a")
    rig.foreign = {"a"}
    rig.finish("a", LONG_S)
    assert rig.results.outcomes["a"].status is StageStatus.EDITED
    assert ("promoted", "a") not in rig.heard


def test_a_group_is_withheld_until_it_is_complete() -> None:
    rig = Rig(stage("a", group="g"), stage("b", group="g"), stage("c", "a"))
    rig.run("a", "b")
    rig.finish("a")
    assert rig.heard == [("durable", "a"), ("a", "held for others")], "a cheap one is no exception"
    assert rig.passed == ["a"]
    rig.finish("b")
    assert rig.heard[2:] == [("durable", "b"), ("promoted", "a", "b"), ("a", "built"), ("b", "built")]


def test_stages_that_wait_in_vain_end_withheld_and_stages_that_never_ran_as_the_rest() -> None:
    rig = Rig(stage("a", group="g"), stage("b", group="g"), stage("c", "b"))
    rig.run("a", "b")
    rig.finish("a")
    rig.results.end("b", FAILED)
    ends = rig.results.close(StageOutcome(status=StageStatus.BLOCKED, text="not run"))
    assert {name: (end.status.value, end.by) for name, end in ends.items()} == {
        "a": ("held", ("b",)),
        "b": ("failed", ()),
        "c": ("blocked", ()),
    }


def test_lost_bytes_fail_a_new_result_and_raise_in_a_restore() -> None:
    rig = Rig(stage("a"), stage("b"))
    rig.lost = {"a", "b"}
    rig.run("a")
    rig.finish("a", LONG_S)
    assert rig.results.outcomes["a"].status is StageStatus.FAILED
    with pytest.raises(MissingBytesError):
        rig.results.restore(rig.resolved("b"), rig.record("b"))
    assert "b" not in rig.results.outcomes
    rig.run("b")


def test_stages_that_were_not_selected_have_no_events() -> None:
    rig = Rig(stage("a"), stage("b", "a"))
    rig.results.skip("a", StageStatus.NOT_BUILT)
    assert (rig.heard, rig.passed) == ([], ["a"])
    assert rig.results.blocks("a", stage("b", "a"))


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
        assert any(one not in TRANSITIONS for one in reached), status
    assert checked_transition(StageStatus.WAITING, StageStatus.READY, "a") is StageStatus.READY
    with pytest.raises(ValueError, match="cannot go from waiting to running"):
        checked_transition(StageStatus.WAITING, StageStatus.RUNNING, "a")


@pytest.mark.parametrize("status", list(StageStatus))
def test_who_is_up_to_date_lets_pass_and_who_has_a_result_is_up_to_date(status: StageStatus) -> None:
    assert status.is_green or not status.has_result
    assert status.releases_downstream or not status.is_green
    assert status.is_green or not status.is_idle
