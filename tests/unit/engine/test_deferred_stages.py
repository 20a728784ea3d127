"""When a build looks at its batches, and which stages go on."""

from typing import Any, cast

from msgspec import Struct, field

from orch23.engine.deferred_stages import DeferredStages
from orch23.model.errors import ExitCode
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import Stage
from orch23.model.plan import Run
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.shell.spec import ShellStep


class _Later(Struct):
    is_empty: bool = False
    has_unsent: bool = False


class _Resolved(Struct):
    stage: Stage
    key: str = "k"


class _Rig(Struct):
    later: _Later = field(default_factory=_Later)
    now: float = 100.0

    def deferred(self, *, waits: bool = False) -> DeferredStages:
        return DeferredStages(later=cast("Any", self.later), waits=waits, clock=lambda: self.now)


def resolved(name: str) -> ResolvedStage:
    return cast("ResolvedStage", _Resolved(Stage(name=name, step=ShellStep("x"))))


def looked(stages: DeferredStages, *ready: str) -> list[str]:
    return [one.stage.name for one, _ in stages.looked(ready)]


def test_a_build_looks_once_and_again_after_progress() -> None:
    rig = _Rig()
    stages = rig.deferred()
    stages.add(resolved("a"), Run(()), "1")
    stages.add(resolved("b"), Run(()), "2")
    assert stages.delay_s() == 0.0
    assert looked(stages, "1") == ["a"]
    assert stages.delay_s() == 0.0, "the batch of another attempt may have ended"
    assert looked(stages) == []
    assert stages.delay_s() is None
    assert {name: (end.status, end.code) for name, end in stages.outcomes().items()} == {
        "b": (StageStatus.AWAITING, ExitCode.WAITING)
    }


def test_what_is_queued_after_the_look_is_submitted() -> None:
    rig = _Rig()
    stages = rig.deferred()
    stages.add(resolved("a"), Run(()), "1")
    assert looked(stages) == []
    rig.later.has_unsent = True
    assert stages.delay_s() == 0.0


def test_a_stage_that_waits_for_budget_goes_on_after_one_look() -> None:
    rig = _Rig()
    stages = rig.deferred()
    assert stages.may_free_budget("a")
    stages.add(resolved("a"), Run(()), "")
    assert stages.outcomes() == {}
    rig.later.is_empty = True
    assert stages.delay_s() == 0.0
    assert looked(stages) == ["a"]
    assert not stages.may_free_budget("a"), "the second time, it does not fit"
    assert stages.delay_s() is None


def test_a_stage_refused_while_another_takes_its_result_is_tried_once_more() -> None:
    rig = _Rig()
    stages = rig.deferred()
    stages.add(resolved("a"), Run(()), "1")
    stages.add(resolved("b"), Run(()), "")
    assert looked(stages, "1") == ["a", "b"]
    rig.later.is_empty = True  # a has taken its result
    assert stages.may_free_budget("b"), "it was refused before a settled its cost"
    stages.add(resolved("b"), Run(()), "")
    assert stages.delay_s() == 0.0
    assert looked(stages) == ["b"]
    assert not stages.may_free_budget("b"), "no result has come since then"
    assert stages.delay_s() is None


def test_a_batch_without_a_stage_is_not_looked_at_again_and_again() -> None:
    stages = _Rig().deferred(waits=True)
    assert stages.delay_s() == 0.0
    assert looked(stages, "9") == []
    assert stages.delay_s() is None


def test_the_delay_between_two_looks_grows_to_a_minute() -> None:
    rig = _Rig()
    stages = rig.deferred(waits=True)
    stages.add(resolved("a"), Run(()), "1")
    delays = []
    for _ in range(14):
        looked(stages)
        delays.append(stages.delay_s())
    assert delays[:2] == [1.5, 2.25]
    assert delays[-1] == 60.0
    rig.now += 1000
    assert stages.delay_s() == 0.0
