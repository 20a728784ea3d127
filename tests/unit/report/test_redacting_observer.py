"""A redacting observer passes no secret on, in whatever part of an event it is."""

from orch23.model.digest import Json
from orch23.model.event import AttemptFinished, Event, RunFinished, parse_event
from orch23.report.observers import RedactingObserver
from orch23.text.secrets import Secrets

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
