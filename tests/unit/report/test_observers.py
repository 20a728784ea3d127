"""One event for several observers: in their order, and none after the end of the run. Then facts for the sinks."""

from orch23.model.event import Event, parse_event
from orch23.model.ports import EndedRun, Sink
from orch23.report.observers import Fanout, sink_observer


class Listener:
    def __init__(self, name: str, heard: list[tuple[str, str]]) -> None:
        self.name, self.heard = name, heard

    def notice(self, event: Event) -> None:
        self.heard.append((self.name, event.type))


def test_all_observers_get_an_event_in_order_and_none_after_the_run() -> None:
    heard: list[tuple[str, str]] = []
    fanout = Fanout(Listener("journal", heard), Listener("screen", heard))
    for event in (
        parse_event("warning", "w"),
        parse_event("run_finished", "f", data={"status": "ok"}),
        parse_event("call_settled", "too late"),
    ):
        fanout.notice(event)
    assert heard == [
        ("journal", "warning"),
        ("screen", "warning"),
        ("journal", "run_finished"),
        ("screen", "run_finished"),
    ]


class Facts(Sink):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def notice(self, event: Event) -> None:
        self.heard.append(event.type)

    def finish(self, run: EndedRun) -> None:
        self.heard.append(run)


RUN = (
    parse_event("run_started", "", data={"run_id": "r1"}),
    parse_event("stage_finished", "no", "a", data={"status": "failed"}),
    parse_event("stage_finished", "no", "b", data={"status": "failed"}),
    parse_event("stage_finished", "", "a", data={"status": "built"}),
    parse_event("run_finished", "f", data={"status": "failed", "exit_code": 1}),
)


def test_a_sink_gets_the_facts_of_a_run_after_its_last_event() -> None:
    facts, times = Facts(), iter((100.0, *(100.0 + at / 2 for at in range(1, 6))))
    observer = sink_observer(facts, lambda: next(times))
    for event in RUN:
        observer.notice(event)
    *types, run = facts.heard
    assert types == [one.type for one in RUN]
    assert isinstance(run, EndedRun)
    assert (run.run_id, run.duration_s, run.ended) == ("r1", 2.5, RUN[-1].data)
    assert [(one.name, one.status, one.message) for one in run.stages] == [("a", "built", ""), ("b", "failed", "no")]
    assert [one.name for one in run.failures] == ["b"]


def test_a_sink_without_facts_is_an_observer_itself() -> None:
    heard: list[tuple[str, str]] = []
    for sink in (Listener("plain", heard), Sink()):
        assert sink_observer(sink, float) is sink  # type: ignore[arg-type] # as a plugin may have it
