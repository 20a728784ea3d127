"""A walk goes through a plan in its order, and hands each decision to its visitor."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.engine import plan_walk
from orch23.engine.decisions import DecidedStage, StageDecider
from orch23.engine.plan_walk import PlanWalk
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


class Visitor:
    """Notes what it hears, and lets everything pass at once but what is in `slow`."""

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
        self.refused: set[str] = set()
        self.walk = PlanWalk(cast("StageDecider", self), selection, self)

    def go(self) -> list[tuple[Any, ...]]:
        self.heard.clear()
        while self.walk.step():
            pass
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

    # as a visitor
    def blocks(self, up: str, node: Stage | ForeachStage) -> bool:
        return up in self.bad and node.name != up

    def kept(self, name: str, record: Record) -> None:
        raise AssertionError(name, record)

    def should_decide(self, name: str) -> bool:
        if name in self.refused:
            self.note(name, "refused")
        return name not in self.refused

    def can_expand(self, node: ForeachStage) -> bool:
        if node.name in self.refused:
            self.note(node.name, "not yet")
        return node.name not in self.refused

    def items_added(self, node: ForeachStage, items: tuple[Stage, ...], unaffected: Collection[str]) -> None:
        self.heard.append((node.name, "added", *(item.name for item in items)))

    def not_expanded(self, node: ForeachStage, problems: tuple[Any, ...]) -> None:
        self.note(node.name, "not expanded", *(problem.code for problem in problems))

    def not_decided(self, name: str, error: ConfigurationError) -> None:
        self.bad.add(name)
        self.note(name, "not decided", *(problem.code for problem in error.diagnostics))

    def blocked(self, name: str, by: tuple[str, ...]) -> None:
        self.bad.add(name)
        self.note(name, "blocked", *by)

    def not_selected(self, name: str, result: Record | None) -> None:
        self.note(name, "passed over", *([result.key] if result else []))

    def decided(self, name: str, decided: DecidedStage) -> None:
        self.note(name, decided.decision.label, *(["has a result"] if name in self.state.settled else []))

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
    visitor = Visitor(stage("a"), stage("b", "a"), stage("c"))
    visitor.faults = {"a": ConfigurationError(Diagnostic("E482", "a tool is missing"))}
    assert visitor.go() == [("a", "not decided", "E482"), ("b", "blocked", "a"), ("c", "run")]
    visitor = Visitor(stage("a"))
    visitor.faults = {"a": ValueError("of orch23 itself")}
    with pytest.raises(ValueError, match="of orch23 itself"):
        visitor.go()


def test_a_foreach_that_cannot_be_expanded_keeps_back_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise ConfigurationError(Diagnostic("E847", "the code of a plugin failed"))

    monkeypatch.setattr(plan_walk, "expand_foreach", refuse)
    visitor = Visitor(each("e", "a"), stage("b", "e-a"), stage("c"))
    assert visitor.go() == [("c", "run"), ("e", "not decided", "E847"), ("b", "blocked", "e")]


def test_what_waits_is_decided_once_it_may_pass() -> None:
    visitor = Visitor(stage("a"), stage("b", "a"), stage("c", "b"))
    visitor.slow = {"b"}
    assert visitor.go() == [("a", "run"), ("b", "run")]
    visitor.walk.release("b")
    assert visitor.go() == [("c", "run")]


def test_what_is_kept_back_is_blocked_by_name_and_so_is_what_follows() -> None:
    visitor = Visitor(stage("a"), stage("b"), stage("c", "a", "b"), stage("d", "c"))
    visitor.bad = {"a", "b"}
    assert visitor.go()[2:] == [("c", "blocked", "a", "b"), ("d", "blocked", "c")]


def test_a_stage_that_was_not_selected_keeps_its_last_result_unless_it_is_blocked() -> None:
    selection = Selection(only=("new",))
    visitor = Visitor(stage("old"), stage("none"), stage("new", "old"), selection=selection)
    assert visitor.go() == [("none", "passed over"), ("old", "passed over", "key of old"), ("new", "run")]
    assert set(visitor.state.settled) == {"old"}
    visitor = Visitor(stage("bad"), stage("old", "bad"), stage("new", "old"), selection=selection)
    visitor.bad = {"bad"}
    assert visitor.go()[:2] == [("bad", "passed over"), ("old", "passed over")]
    assert visitor.state.settled == {}


def test_a_result_is_in_the_state_before_the_visitor_gets_it() -> None:
    decisions: dict[str, Decision] = {
        "a": Fresh(record("a")),
        "b": Edited(("b",), record("b")),
        "c": Edited(("c",)),
    }
    visitor = Visitor(stage("a"), stage("b"), stage("c"), stage("d"), decisions=decisions)
    assert visitor.go() == [
        ("a", "fresh", "has a result"),
        ("b", "edited", "has a result"),
        ("c", "edited"),
        ("d", "run"),
    ]
    assert visitor.state.edited == {"b"}


def test_a_visitor_can_decline_a_stage() -> None:
    visitor = Visitor(stage("a"), stage("b", "a"))
    visitor.refused = {"a"}
    assert visitor.go() == [("a", "refused"), ("b", "run")]


def test_the_walk_goes_on_with_the_items_of_a_list() -> None:
    visitor = Visitor(each("e", source="l.json"), stage("z", "e-x"), files={"l.json": b'["x", "y"]'})
    assert visitor.go() == [("e", "added", "e@x", "e@y"), ("e@x", "run"), ("e@y", "run"), ("z", "run")]
    assert set(visitor.walk.wanted) >= {"e@x", "e@y", "z"}


def test_a_list_is_expanded_when_what_makes_it_is_done_and_not_before() -> None:
    visitor = Visitor(stage("list"), each("e", source="list"), files={"list": b"[]"})
    visitor.slow, visitor.bad = {"list"}, set()
    assert visitor.go() == [("list", "run")]
    visitor.refused = {"e"}
    visitor.walk.release("list")
    assert visitor.go() == [("e", "not yet")]


def test_a_list_that_cannot_be_used_or_whose_maker_failed_has_no_items() -> None:
    assert Visitor(each("e", source="gone")).go() == [("e", "not expanded", "E822")]
    visitor = Visitor(stage("list"), each("e", source="list"))
    visitor.bad = {"list"}
    assert visitor.go() == [("list", "run"), ("e", "blocked", "list")]


def test_a_stage_can_be_decided_once_more() -> None:
    visitor = Visitor(stage("a"))
    assert visitor.go() == [("a", "run")]
    visitor.decisions = {"a": Fresh(record("a"))}
    visitor.walk.decide("a")
    assert visitor.heard[-1] == ("a", "fresh", "has a result")
