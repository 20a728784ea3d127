"""Observers: faults, order, and the redaction of all texts."""

from orch23.model.digest import Json
from orch23.model.event import AttemptFinished, Event, RunFinished, parse_event
from orch23.model.run_facts import EndedRun
from orch23.model.sink import Sink
from orch23.report.formats import Fanout, RedactingObserver, sink_observer
from orch23.text.secrets import Secrets


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


KEY = "abcd-1234-efgh"


class Hears:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def notice(self, event: Event) -> None:
        self.events.append(event)


def test_message_role_and_data_are_redacted_at_every_depth_and_nothing_else_is() -> None:
    hears = Hears()
    deep: Json = [KEY, 1, None, {"deep": KEY, KEY: True}]
    data: dict[str, Json] = {"text": f"x {KEY}", "list": deep, "number": 1.5, KEY: "name"}
    secrets = Secrets({"MY_KEY": KEY})
    RedactingObserver(hears, secrets.redact, secrets.may_contain).notice(
        parse_event("warning", f"about {KEY}", role=f"code@{KEY}", level="warning", data=data)
    )
    mark = "[redacted MY_KEY]"
    assert hears.events == [
        parse_event(
            "warning",
            f"about {mark}",
            role=f"code@{mark}",
            level="warning",
            data={
                "text": f"x {mark}",
                "list": [mark, 1, None, {"deep": mark, mark: True}],
                "number": 1.5,
                mark: "name",
            },
        )
    ]


def test_a_value_of_an_enum_is_not_redacted() -> None:
    hears, word = Hears(), "interrupted"
    secrets = Secrets({"MY_KEY": word, "OTHER_KEY": "verify_failed"})
    redacted = RedactingObserver(hears, secrets.redact, secrets.may_contain)
    redacted.notice(Event(RunFinished(status="interrupted"), word))
    redacted.notice(Event(AttemptFinished(failure_kind="verify_failed", command="verify_failed"), ""))
    ended, failed = hears.events
    assert (ended.facts()["status"], ended.message) == (word, "[redacted MY_KEY]")
    assert (failed.facts()["kind"], failed.facts()["command"]) == ("verify_failed", "[redacted OTHER_KEY]")
