"""One event for several observers: in their order, and none after the end of the run."""

from orch23.model.event import Event, parse_event
from orch23.report.observers import Fanout


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
