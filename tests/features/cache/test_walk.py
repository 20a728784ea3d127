"""A walk with a shared cache decides stages as their lookups finish, and looks further stages up ahead."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.decide.decisions import DecidedStage, StageDecider
from orch23.decide.dry_run import walk_through
from orch23.decide.shared_results import ResultOrigin
from orch23.features.cache import walk
from orch23.features.cache.claims import Claim, FoundResult, Lookup, PendingLookupError
from orch23.features.cache.walk import SharedWalk
from orch23.model.pipeline import PathInput, Pipeline, Stage, WriteScope
from orch23.model.plan import Plan, Run
from orch23.model.record import Record
from orch23.plan.planner import ALL_STAGES, build_plan
from orch23.steps.shell.spec import ShellStep


def stage(name: str, *reads: str) -> Stage:
    inputs = tuple(PathInput(path) for path in reads)
    return Stage(name=name, step=ShellStep(("x",)), inputs=inputs, outputs=(name,), fence=WriteScope((name,)))


def found(name: str) -> FoundResult:
    return FoundResult(Record(stage=name, key=f"key of {name}", manifest={}), ResultOrigin())


def lookup_of(name: str) -> Lookup:
    """Return the lookup of a stage whose claim counts."""
    lookup = Lookup(lambda _: found(name))
    lookup.claim(Claim(b"", {}))
    return lookup


class Decisions:
    """A decider that notes what is looked up and decided. Each decided stage is released at once."""

    earlier = None

    def __init__(self, *stages: Stage, local: Mapping[str, Record | None] | None = None) -> None:
        plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
        assert plan is not None, problems
        self.local = local or {}
        self.lookups: dict[str, Lookup] = {}
        self.expected: dict[str, list[str]] = {}
        self.decided_names: list[str] = []
        self.pending: dict[str, Lookup] = {}
        self.woken = 0
        self.waits: list[bool] = []
        self.state = self._state(plan)
        decider = cast("StageDecider", self)
        walk = walk_through(decider, ALL_STAGES, blocks=lambda _up, _node: False, wake=self._wake)
        assert isinstance(walk, SharedWalk)
        self.walk = walk

    def _state(self, plan: Plan) -> Any:
        shared = SimpleNamespace(
            await_lookups=lambda: self.waits.append(True),
            go_on=lambda: self.waits.append(False),
            look_ahead=lambda _decider, name, expected: self.look_up(name, expected),
        )
        return SimpleNamespace(plan=plan, shared=shared, stage=plan.nodes.__getitem__)

    def _wake(self) -> None:
        self.woken += 1

    def go(self) -> list[str]:
        """Return the stages that can be decided now."""
        self.decided_names.clear()
        while (step := self.walk.step()) is not None:
            assert isinstance(step, DecidedStage)
            self.decided_names.append(step.resolved.stage.name)
            self.walk.release(self.decided_names[-1])
        return [*self.decided_names]

    def look_up(self, name: str, expected: Mapping[str, Record]) -> tuple[Lookup | None, Record | None]:
        self.expected[name] = sorted(expected)
        if name in self.local:
            return None, self.local[name]
        self.lookups[name] = lookup_of(name)
        return self.lookups[name], None

    def decide(self, name: str, *, need_intermediate: bool = False) -> DecidedStage:
        assert not need_intermediate
        if name in self.pending and not self.pending[name].is_finished:
            raise PendingLookupError(self.pending[name])
        return DecidedStage(cast("Any", SimpleNamespace(stage=self.state.stage(name))), Run(()))

    def is_edited_chain(self, _stage: Stage) -> bool:
        return False


def test_stages_are_decided_as_their_lookups_finish_and_the_others_wait() -> None:
    one = Decisions(stage("a"), stage("b"), stage("c"), stage("d"), local={"c": None})
    assert one.go() == ["c"]
    assert (one.walk.is_waiting, one.waits[-1]) == (True, True)
    one.lookups["d"].finish(is_complete=True)
    one.lookups["b"].finish()
    assert one.woken == 1
    assert one.go() == ["b", "d"], "in plan order"
    one.lookups["a"].finish()
    assert one.walk.wait()
    assert one.go() == ["a"]
    assert (one.walk.is_waiting, one.walk.wait(), one.waits[-1]) == (False, False, False)


def test_a_stage_is_looked_up_with_the_results_that_entries_promise() -> None:
    one = Decisions(stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "a", "x"), stage("x"))
    assert one.go() == []
    assert sorted(one.lookups) == ["a", "x"]
    one.lookups["a"].expect()
    assert one.go() == []
    assert one.expected["b"] == ["a"]
    one.lookups["b"].expect()
    one.go()
    assert sorted(one.lookups) == ["a", "b", "c", "x"], "d also needs x"
    for name in "abcx":
        one.lookups[name].finish(is_complete=True)
    assert one.go() == ["a", "b", "c", "x"]
    assert len(one.expected) == 5
    one.lookups["d"].finish()
    assert one.go() == ["d"]


def test_a_record_of_the_key_promises_a_result_too() -> None:
    one = Decisions(stage("a"), stage("b", "a"), stage("c", "b"), local={"b": found("b").record})
    one.go()
    one.lookups["a"].expect()
    one.go()
    assert one.expected["c"] == ["a", "b"]


def test_a_decision_that_needs_another_lookup_waits_for_that_one() -> None:
    one = Decisions(stage("a"), stage("b"))
    one.pending["a"] = lookup_of("a")
    one.go()
    one.lookups["a"].finish()
    one.lookups["b"].finish()
    assert one.go() == ["b"]
    assert one.walk.is_waiting
    one.pending["a"].finish()
    assert one.go() == ["a"]


def test_only_so_many_stages_are_looked_up_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_READY", 2)
    monkeypatch.setattr(walk, "_AHEAD", 1)
    one = Decisions(stage("a"), stage("b"), stage("c"), stage("d", "a"), stage("e", "a"))
    one.go()
    assert sorted(one.lookups) == ["a", "b"]
    one.lookups["a"].expect()
    one.go()
    assert sorted(one.lookups) == ["a", "b", "d"]
    one.lookups["b"].finish()
    assert one.go() == ["b"]
    assert sorted(one.lookups) == ["a", "b", "c", "d"]
    for name in "ac":
        one.lookups[name].finish(is_complete=True)
    one.go()
    for name in "de":
        one.lookups[name].finish()
    one.go()
    assert not one.walk.is_waiting
    assert sorted(one.lookups) == ["a", "b", "c", "d", "e"]


def test_a_lookup_reports_each_change_once_and_late_watchers_at_once() -> None:
    lookup, seen = lookup_of("a"), list[str]()
    lookup.watch(lambda: seen.append("early"))
    assert seen == []
    lookup.expect()
    lookup.watch(lambda: seen.append("late"))
    lookup.finish()
    lookup.finish(is_complete=True)
    assert seen == ["early", "late", "early", "late"]
    assert (lookup.result, lookup.is_finished) == (None, True)
    lookup.watch(lambda: seen.append("last"))
    assert seen[4:] == ["last"]
