"""What observers are told, in the shapes of its events."""

import pytest

from orch23.attempt.run_events import RunEvents
from orch23.attempt.stage_outcomes import StageOutcome
from orch23.model.event import Event, FilesPromoted, StageRestored
from orch23.model.event_data import StageStatus
from orch23.model.plan import Edited, Maybe, Run
from orch23.model.record import Reason
from orch23.store.promotion import PromotionResult


class Screen:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def notice(self, event: Event) -> None:
        self.events.append(event)


def test_the_duration_of_a_withheld_stage_ends_when_it_is_withheld() -> None:
    screen, now = Screen(), [10.0]
    events = RunEvents(screen, lambda: now[0])
    events.started("a@1", "k")
    now[0] = 12.5
    events.withheld("a@1", "k", ["a@2", "a@3"])
    now[0] = 99.0
    events.ended("a@1", StageOutcome(status=StageStatus.WITHHELD, text="withheld: a@2 failed", by=("a@2",)), None)
    held, ended = screen.events[1:]
    assert (held.type, held.message, held.facts()["for"]) == ("stage_held", "waits for a@2, a@3", ("a@2", "a@3"))
    assert (ended.facts()["status"], ended.facts()["duration_s"], ended.facts()["by"]) == ("held", 2.5, ("a@2",))
    assert ended.level == "info"


def test_of_many_that_are_waited_for_the_first_are_named_and_all_are_counted() -> None:
    screen = Screen()
    RunEvents(screen, lambda: 0.0).withheld("a@0", "k", [f"a@{n}" for n in range(1, 1001)])
    (held,) = screen.events
    assert held.message == "waits for a@1, a@2, a@3, a@4, a@5, a@6, a@7, a@8 and 992 more"
    assert (held.facts()["waits_for"], len(held.facts()["for"])) == (1000, 8)


def test_what_was_never_started_took_no_time() -> None:
    screen = Screen()
    RunEvents(screen, lambda: 5.0).ended("a", StageOutcome(status=StageStatus.FRESH, text="fresh"), None)
    assert screen.events[0].facts()["duration_s"] == 0.0


def test_a_decision_is_one_of_those_that_a_build_takes() -> None:
    screen = Screen()
    events = RunEvents(screen, lambda: 0.0)
    events.decided("a", Run((Reason("first_run"),)), "k")
    events.decided("b", Edited(("b.txt",)), "l")
    assert [event.facts() for event in screen.events] == [
        {"decision": "run", "key": "k", "reasons": ({"code": "first_run", "subject": ""},)},
        {"decision": "edited", "key": "l", "reasons": ()},
    ]
    with pytest.raises(TypeError, match="Maybe in a build"):
        events.decided("c", Maybe(("a",)), "m")


def test_what_was_restored_is_an_event_of_its_own() -> None:
    screen = Screen()
    events = RunEvents(screen, lambda: 0.0)
    events.restored("a", PromotionResult(("a.txt",), ("b.txt",)))
    events.promoted("a", "restored", PromotionResult(("a.txt",)))
    assert [event.data for event in screen.events] == [
        StageRestored(files=("a.txt",), removed=("b.txt",)),
        FilesPromoted(files=("a.txt",)),
    ]
