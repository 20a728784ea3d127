"""What happened in a run: one line of the journal each. Run state is a fold of these."""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, get_args

from msgspec import Struct, field

from orch23.model.digest import Json

EVENT_VERSION = 1

EventType: TypeAlias = Literal[
    "run_started",
    "plan",
    "stage_decided",
    "stage_restored",
    "stages_added",
    "stage_started",
    "attempt_started",
    "llm_request",
    "call_reserved",
    "call_submitted",
    "call_settled",
    "http_retry",
    "llm_response",
    "files_proposed",
    "check_result",
    "attempt_finished",
    "stage_held",
    "promoted",
    "released",
    "stage_finished",
    "healed",
    "warning",
    "run_finished",
]
EVENT_TYPES: tuple[str, ...] = get_args(EventType)

Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class Event(Struct, frozen=True):
    """One thing that happened. `role` is the stage (or `orch23`), `data` its facts; a journal adds time and number."""

    type: EventType
    message: str
    role: str = "orch23"
    level: Level = "info"
    data: Mapping[str, Json] = field(default_factory=dict)


class Observer(Protocol):
    """Whoever wants to know what happens: the journal, the screen."""

    def notice(self, event: Event) -> None:
        """Take one event. May be called from any thread."""
