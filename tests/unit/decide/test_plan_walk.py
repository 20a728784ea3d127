"""A walk goes through a plan in its order, and yields what is to be done about each node."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.decide import plan_walk
from orch23.decide.decisions import DecidedStage, StageDecider
from orch23.decide.plan_walk import HeldBack, ItemsAdded, Kept, NextStep, NotExpanded, PassedOver, PlanWalk, Undecided
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import ConfigurationError
from orch23.model.pipeline import Foreach, ForeachStage, PathInput, Pipeline, Stage, WriteScope
from orch23.model.plan import Decision, Edited, Fresh, Plan, Run
from orch23.model.record import Record
from orch23.plan.planner import ALL_STAGES, Selection, build_plan
from orch23.steps.shell.spec import ShellStep


def stage(name: str, *reads: str) -> Stage:
    inputs = tuple(PathInput(path) for path in reads)
    return Stage(name=name, step=ShellStep(("x",)), inputs=inputs, outputs=(name,), fence=WriteScope((name,)))


def record(name: str) -> Record:
    return Record(stage=name, key=f"key of {name}", manifest={})


class State:
    """What a walk asks of a state."""

    def __init__(self, plan: Plan, files: Mapping[str, bytes]) -> None:
        self.plan, self.files = plan, files
        self.locked = SimpleNamespace(having=lambda *_: (), owning=lambda _: ())
        self.lock = SimpleNamespace(records={"old": record("old")})
        self.settled: dict[str, Record] = {}
        self.edited: set[str] = set()
        self.unsettled: set[str] = set()
        workspace = SimpleNamespace(is_folder=lambda _: False, entry=self._entry)
        self.store = SimpleNamespace(workspace=workspace, records=self.locked)
        self.owners: dict[str, list[str]] = {}
        self.shared = None

    def tracked(self, _name: str) -> "State":
        return self

    def extend(self, plan: Plan) -> None:
        self.plan = plan

    def stage(self, name: str) -> Stage:
        return cast("Stage", self.plan.nodes[name])

    def settle(self, name: str, result: Record) -> None:
        self.settled[name] = result

    def _entry(self, path: str) -> FileEntry | None:
        return FileEntry(digest_bytes(self.files[path])) if path in self.files else None

    def link(self, _name: str) -> None:
        return None

    def read(self, path: str, _entry: FileEntry) -> bytes:
        return self.files[path]


class Carried:
    """Notes each step, and lets everything pass at once but what is in `slow`."""

    def __init__(
        self,
        *nodes: Stage | ForeachStage,
        selection: Selection = ALL_STAGES,
        decisions: Mapping[str, Decision] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        plan, problems = build_plan(Pipeline(name="p", file="p.yaml", stages=nodes))
        assert plan is not None, problems
        self.state = State(plan, files or {})
        self.decisions = decisions or {}
        self.heard: list[tuple[Any, ...]] = []
        self.faults: dict[str, Exception] = {}
        self.slow: set[str] = set()
        self.bad: set[str] = set()
        self.is_over = False
        self.walk = PlanWalk(
            cast("StageDecider", self),
            selection,
            blocks=lambda up, node: up in self.bad and node.name != up,
            is_over=lambda: self.is_over,
        )

    def go(self) -> list[tuple[Any, ...]]:
        self.heard.clear()
        while (step := self.walk.step()) is not None:
            self.carry_out(step)
        return [*self.heard]

    # as an decider
    read_yaml: Any = staticmethod(lambda text: text)
    earlier = None
    former_items: Any = staticmethod(lambda _node: {})

    def decide(self, name: str, *, need_intermediate: bool = False) -> DecidedStage:
        assert not need_intermediate
        if name in self.faults:
            raise self.faults[name]
        decision = self.decisions.get(name, Run(()))
        return DecidedStage(cast("Any", SimpleNamespace(stage=self.state.stage(name))), decision)

    def is_edited_chain(self, _stage: Stage) -> bool:
        return False

    def carry_out(self, step: NextStep) -> None:
        match step:
            case ItemsAdded(node=node, items=items):
                self.heard.append((node.name, "added", *(item.name for item in items)))
            case NotExpanded(node=node, problems=problems):
                self.note(node.name, "not expanded", *(problem.code for problem in problems))
            case Undecided(name=name, error=error):
                self.bad.add(name)
                self.note(name, "not decided", *(problem.code for problem in error.diagnostics))
            case HeldBack(name=name, by=by):
                self.bad.update([name] if by else [])
                self.note(name, "blocked", *by)
            case PassedOver(name=name, record=result):
                self.note(name, "passed over", *([result.key] if result else []))
            case DecidedStage(resolved=resolved, decision=decision):
                name = resolved.stage.name
                self.note(name, decision.label, *(["has a result"] if name in self.state.settled else []))
            case Kept():
                raise AssertionError(step)

    def note(self, name: str, *what: str) -> None:
        self.heard.append((name, *what))
        if name not in self.slow:
            self.walk.release(name)


def each(name: str, *values: str, source: str | None = None) -> ForeachStage:
    foreach = Foreach(values=values, source=source)
    body = {"outputs": [f"{name}-${{{{ item }}}}"], "shell": ["x"]}
    reads = () if source is None else (source,)
    return ForeachStage(name=name, foreach=foreach, body=body, kind="shell", reads=reads, writes=(f"{name}-*",))


def test_what_cannot_be_decided_keeps_back_what_waits_for_it_and_no_other() -> None:
    carried = Carried(stage("a"), stage("b", "a"), stage("c"))
    carried.faults = {"a": ConfigurationError(Diagnostic("E482", "a tool is missing"))}
    assert carried.go() == [("a", "not decided", "E482"), ("b", "blocked", "a"), ("c", "run")]
    carried = Carried(stage("a"))
    carried.faults = {"a": ValueError("of orch23 itself")}
    with pytest.raises(ValueError, match="of orch23 itself"):
        carried.go()


def test_a_foreach_that_cannot_be_expanded_keeps_back_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise ConfigurationError(Diagnostic("E847", "the code of a plugin failed"))

    monkeypatch.setattr(plan_walk, "expand_foreach", refuse)
    carried = Carried(each("e", "a"), stage("b", "e-a"), stage("c"))
    assert carried.go() == [("e", "not decided", "E847"), ("b", "blocked", "e"), ("c", "run")]


def test_what_waits_is_decided_once_it_may_pass() -> None:
    carried = Carried(stage("a"), stage("b", "a"), stage("c", "b"))
    carried.slow = {"b"}
    assert carried.go() == [("a", "run"), ("b", "run")]
    carried.walk.release("b")
    assert carried.go() == [("c", "run")]


def test_what_is_kept_back_is_blocked_by_name_and_so_is_what_follows() -> None:
    carried = Carried(stage("a"), stage("b"), stage("c", "a", "b"), stage("d", "c"))
    carried.bad = {"a", "b"}
    assert carried.go()[2:] == [("c", "blocked", "a", "b"), ("d", "blocked", "c")]


def test_a_stage_that_was_not_selected_keeps_its_last_result_unless_it_is_blocked() -> None:
    selection = Selection(only=("new",))
    carried = Carried(stage("old"), stage("none"), stage("new", "old"), selection=selection)
    assert carried.go() == [("old", "passed over", "key of old"), ("none", "passed over"), ("new", "run")]
    assert set(carried.state.settled) == {"old"}
    carried = Carried(stage("bad"), stage("old", "bad"), stage("new", "old"), selection=selection)
    carried.bad = {"bad"}
    assert carried.go()[:2] == [("bad", "passed over"), ("old", "passed over")]
    assert carried.state.settled == {}


def test_a_result_is_in_the_state_before_its_step_is_returned() -> None:
    decisions: dict[str, Decision] = {
        "a": Fresh(record("a")),
        "b": Edited(("b",), record("b")),
        "c": Edited(("c",)),
    }
    carried = Carried(stage("a"), stage("b"), stage("c"), stage("d"), decisions=decisions)
    assert carried.go() == [
        ("a", "fresh", "has a result"),
        ("b", "edited", "has a result"),
        ("c", "edited"),
        ("d", "run"),
    ]
    assert carried.state.edited == {"b"}


def test_no_stage_is_decided_once_the_build_is_over() -> None:
    carried = Carried(stage("a"), stage("b", "a"))
    carried.is_over = True
    assert carried.go() == [("a", "blocked"), ("b", "blocked")]


def test_the_walk_goes_on_with_the_items_of_a_list() -> None:
    carried = Carried(each("e", source="l.json"), stage("z", "e-x"), files={"l.json": b'["x", "y"]'})
    assert carried.go() == [("e", "added", "e@x", "e@y"), ("e@x", "run"), ("e@y", "run"), ("z", "run")]
    assert set(carried.walk.wanted) >= {"e@x", "e@y", "z"}


def test_a_list_is_expanded_when_what_makes_it_is_done_and_not_before() -> None:
    carried = Carried(stage("list"), each("e", source="list"), files={"list": b"[]"})
    carried.slow, carried.bad = {"list"}, set()
    assert carried.go() == [("list", "run")]
    carried.state.unsettled = {"list"}
    carried.walk.release("list")
    assert carried.go() == [("e", "not expanded")], "a plan does not know the list"


def test_a_list_that_cannot_be_used_or_whose_maker_failed_has_no_items() -> None:
    assert Carried(each("e", source="gone")).go() == [("e", "not expanded", "E822")]
    carried = Carried(stage("list"), each("e", source="list"))
    carried.bad = {"list"}
    assert carried.go() == [("list", "run"), ("e", "blocked", "list")]


def test_a_stage_can_be_decided_once_more() -> None:
    carried = Carried(stage("a"))
    assert carried.go() == [("a", "run")]
    carried.decisions = {"a": Fresh(record("a"))}
    again = carried.walk.decide("a")
    assert again is not None
    carried.carry_out(again)
    assert carried.heard[-1] == ("a", "fresh", "has a result")
