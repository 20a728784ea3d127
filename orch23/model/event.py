"""Events of a run: one type each, as the journal and `--output jsonl` write them.

A field may be added to a type, with a default; one that is removed, or means another thing, makes another
`EVENT_VERSION`. Who reads a journal passes over fields that it does not know.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from orch23.model.llm import RecordingMode, StopReason
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, to_struct
from orch23.model.pipeline import FailureKind
from orch23.model.stage_status import StageStatus

EVENT_VERSION = 1
ORCH23_ROLE = "orch23"
"""The role of an event that is about no stage."""

EventLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
RunStatus: TypeAlias = Literal["ok", "failed", "interrupted", "limit", "decision"]
DecisionName: TypeAlias = Literal["fresh", "run", "restore", "verify", "edited"]
FailureName: TypeAlias = Literal[FailureKind, ""]
"""The kind of a failure; empty where nothing failed."""
CostText: TypeAlias = str | None
"""US dollars, as a decimal; None where a price is not known."""


class EventData(Struct, frozen=True, kw_only=True):
    """The facts of an event. `kind` is the `type` of its line."""

    kind: ClassVar[str]


# ---- parts --------------------------------------------------------------------------------------


class EventReason(Struct, frozen=True):
    """A reason for a decision: a code, and the input, key or stage that it is about."""

    code: str
    subject: str = ""


class EventProblem(Struct, frozen=True):
    """A diagnostic: its code, what is wrong, where, and what to do."""

    code: str
    message: str = ""
    subject: str | None = None
    hint: str | None = None


class SentFile(Struct, frozen=True):
    """A file of which a request holds all or a part."""

    path: str
    slice: str
    sha256: str
    bytes: NaturalNumber


class RequestTotals(Struct, frozen=True):
    """What requests took: their number, tokens of input and output together, cost."""

    calls: int = 0
    tokens: int = 0
    cost: CostText = "0"


class RunLimits(Struct, frozen=True):
    """The `stop_conditions` of the pipeline that are about money and time; null is no limit."""

    max_llm_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: str | None = None
    max_wall_s: float | None = None


# ---- the run ------------------------------------------------------------------------------------


class RunStarted(EventData, frozen=True, kw_only=True):
    """A build begins.

    `stages` is the number of stages, `at_rest` of those among them that an edit does not reach, by how they end. `lock`
    is the digest of the lock file, `spec_file` the first file that the stages read.
    """

    kind: ClassVar[str] = "run_started"
    pipeline: str = ""
    name: str = ""
    run_id: str = ""
    key: str = ""
    lock: str = ""
    spec_file: str = ""
    spec_hash: str = ""
    stages: NaturalNumber = 0
    max_retries: NaturalNumber = 0
    jobs: NaturalNumber = 1
    provider: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    sandbox: str = ""
    version: str = ""
    at_rest: dict[str, int] | UnsetType = UNSET


class Planned(EventData, frozen=True, kw_only=True):
    """The stages that the build will decide, in order, each with its kind; a foreach is one until it has items.

    `needs` gives the stages that each comes directly after: those of which it reads a file, or that its `needs` names.
    They may be stages that this build does not decide. What comes after none is not in it. The items of a foreach
    (`stages_added`) come after the same stages as the foreach.
    """

    kind: ClassVar[str] = "plan"
    stages: dict[str, str] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)


class RunFinished(EventData, frozen=True, kw_only=True):
    """The build has ended; the last event.

    `stages` counts the stages by how they ended, `before` is what interrupted runs took that this one went on from,
    `unpriced` counts the calls of unknown price, `saved` is what recorded answers had cost.
    """

    kind: ClassVar[str] = "run_finished"
    status: RunStatus
    exit_code: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    saved: str = "0"
    calls: int = 0
    tokens: int = 0
    cost: CostText = "0"
    unpriced: int = 0
    before: RequestTotals = RequestTotals()
    limits: RunLimits = RunLimits()


class Warned(EventData, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a person should see. With `of_steps` it matters only if a step runs."""

    kind: ClassVar[str] = "warning"
    code: str = ""
    fingerprint: str = ""
    response_id: str = ""
    paths: tuple[str, ...] = ()
    exit_code: int | None = None
    of_steps: bool = False


class StoreRepaired(EventData, frozen=True, kw_only=True):
    """Damage to the store, or what a killed build left, was repaired."""

    kind: ClassVar[str] = "healed"


# ---- stages -------------------------------------------------------------------------------------


class StagesAdded(EventData, frozen=True, kw_only=True):
    """A foreach has these items now."""

    kind: ClassVar[str] = "stages_added"
    items: tuple[str, ...] = ()


class StageDecided(EventData, frozen=True, kw_only=True):
    """It is decided what to do with a stage, and why."""

    kind: ClassVar[str] = "stage_decided"
    decision: DecisionName
    key: str = ""
    reasons: tuple[EventReason, ...] = ()


class StageStarted(EventData, frozen=True, kw_only=True):
    """A stage runs now."""

    kind: ClassVar[str] = "stage_started"
    key: str = ""


class StageWithheld(EventData, frozen=True, kw_only=True):
    """A stage has a result, and its files wait for others of its promotion group: `for` names the first of them."""

    kind: ClassVar[str] = "stage_held"
    key: str = ""
    missing: tuple[str, ...] = field(default=(), name="for")
    waits_for: NaturalNumber = 0


class StageRestored(EventData, frozen=True, kw_only=True):
    """Files of an earlier result were put back into the workspace."""

    kind: ClassVar[str] = "stage_restored"
    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class FilesPromoted(EventData, frozen=True, kw_only=True):
    """Files were written to the workspace, or removed from it."""

    kind: ClassVar[str] = "promoted"
    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class FilesReleased(EventData, frozen=True, kw_only=True):
    """Files of stages that have ended stay, and belong to the user from now on."""

    kind: ClassVar[str] = "released"
    files: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()


class StageFinished(EventData, frozen=True, kw_only=True):
    """A stage has ended.

    `calls` were paid for, `recorded` answers were replayed, `by_hand` ones written by a person. `unchanged`: its
    outputs have the same bytes as before. Of a failure `failure` is the excerpt, `kind` its class in `failure_kind`.
    """

    kind: ClassVar[str] = "stage_finished"
    status: StageStatus
    key: str = ""
    duration_s: float | None = None
    attempts: int = 0
    calls: int = 0
    recorded: int = 0
    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0
    cost: CostText = "0"
    saved: str = "0"
    by_hand: int = 0
    outputs: tuple[str, ...] = ()
    unchanged: bool = False
    failure: str = ""
    problems: tuple[EventProblem, ...] = ()
    failure_kind: FailureName = field(default="", name="kind")
    command: str = ""
    by: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


# ---- attempts -----------------------------------------------------------------------------------


class AttemptStarted(EventData, frozen=True, kw_only=True):
    """An attempt of a stage begins; `attempt` counts from 1."""

    kind: ClassVar[str] = "attempt_started"
    attempt: NaturalNumber = 1
    max_attempts: NaturalNumber = 1
    key: str = ""


class FilesProposed(EventData, frozen=True, kw_only=True):
    """An answer holds these files; none of them is in the workspace yet."""

    kind: ClassVar[str] = "files_proposed"
    files: tuple[str, ...] = ()


class CheckResult(EventData, frozen=True, kw_only=True):
    """One step of `verify` has run. `printed` names what it printed, below the directory of the attempt."""

    kind: ClassVar[str] = "check_result"
    step: str = "verify"
    passed: bool = False
    exit_code: int | None = None
    excerpt: str = ""
    attempt: NaturalNumber = 0
    printed: str = ""


class AttemptFinished(EventData, frozen=True, kw_only=True):
    """An attempt has ended. Of a failure: its class, the command, what tests failed, and an excerpt."""

    kind: ClassVar[str] = "attempt_finished"
    attempt: NaturalNumber = 1
    passed: bool = False
    failure_kind: FailureName = field(default="", name="kind")
    command: str = ""
    exit_code: int | None = None
    failing: tuple[str, ...] = ()
    excerpt: str = ""


class StepOutput(EventData, frozen=True, kw_only=True):
    """A step prints a line. Only with `--live`.

    With `cut`, `line` is the first 2,000 characters of a longer one. After 1,000 lines of a step, one that is empty and
    has `cut` says that there are more.
    """

    kind: ClassVar[str] = "step_output"
    step: str = ""
    line: str = ""
    cut: bool = False


# ---- models -------------------------------------------------------------------------------------


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A model is asked. `files` and the three numbers of bytes are all that is sent.

    `recorded`: there is a recorded answer.
    """

    kind: ClassVar[str] = "llm_request"
    fingerprint: str = ""
    model: str = ""
    provider: str = ""
    endpoint: str = ""
    attempt: NaturalNumber = 1
    recorded: bool = False
    mode: RecordingMode = "cached"
    files: tuple[SentFile, ...] = ()
    bytes: NaturalNumber = 0
    previous_bytes: NaturalNumber = 0
    brief_bytes: NaturalNumber = 0


class CallReserved(EventData, frozen=True, kw_only=True):
    """The most that a request can take is set aside, before it is sent."""

    kind: ClassVar[str] = "call_reserved"
    fingerprint: str = ""
    calls: int = 0
    tokens: int = 0
    cost: CostText = None


class CallSubmitted(EventData, frozen=True, kw_only=True, omit_defaults=True):
    """A server works on a request, and its answer will be collected, by a later build if need be."""

    kind: ClassVar[str] = "call_submitted"
    fingerprint: str = ""
    response_id: str = ""
    provider: str = ""


class CallSettled(EventData, frozen=True, kw_only=True):
    """What a request took, in the place of what was set aside.

    `forfeited`: nobody knows, so all of it counts. `released`: nothing was charged.
    """

    kind: ClassVar[str] = "call_settled"
    fingerprint: str = ""
    calls: int = 0
    tokens: int = 0
    cost: CostText = None
    forfeited: bool = False
    released: bool = False


class HttpRetry(EventData, frozen=True, kw_only=True):
    """A request failed and is sent again after `delay_s` seconds, as number `try`."""

    kind: ClassVar[str] = "http_retry"
    status: int | None = None
    code: str = ""
    delay_s: float = 0.0
    number: NaturalNumber = field(default=2, name="try")


class LlmResponse(EventData, frozen=True, kw_only=True):
    """A model has answered, or its recorded answer was taken (`replayed`).

    `requests` counts what was sent for it, `prices` says whose prices they are, `provenance` who answered.
    """

    kind: ClassVar[str] = "llm_response"
    fingerprint: str = ""
    attempt: NaturalNumber = 1
    mode: RecordingMode = "cached"
    replayed: bool | None = None
    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0
    cache_read_tokens: NaturalNumber = 0
    cost: CostText = None
    prices: str = ""
    requests: int = 0
    model: str = ""
    stop: StopReason = "end"
    provenance: str = ""


class LlmText(EventData, frozen=True, kw_only=True):
    """A model writes a line. Only with `--live`, and with the bounds of `step_output`.

    After `http_retry` an answer begins anew.
    """

    kind: ClassVar[str] = "llm_text"
    attempt: NaturalNumber = 1
    line: str = ""
    cut: bool = False


EVENT_KINDS: Final[Mapping[str, type[EventData]]] = {
    one.kind: one
    for one in (
        RunStarted,
        Planned,
        StageDecided,
        StageRestored,
        StagesAdded,
        StageStarted,
        AttemptStarted,
        LlmRequest,
        CallReserved,
        CallSubmitted,
        CallSettled,
        HttpRetry,
        LlmText,
        LlmResponse,
        FilesProposed,
        StepOutput,
        CheckResult,
        AttemptFinished,
        StageWithheld,
        FilesPromoted,
        FilesReleased,
        StageFinished,
        StoreRepaired,
        Warned,
        RunFinished,
    )
}
"""The types of events by the `type` of their lines."""


class Event(Struct, frozen=True):
    """One thing that happened. `role` is the stage (or `orch23`), `data` its facts; a journal adds time and number."""

    data: EventData
    message: str
    role: str = ORCH23_ROLE
    level: EventLevel = "info"

    @property
    def type(self) -> str:
        """Return the name of its type."""
        return self.data.kind

    def facts(self) -> JsonObject:
        """Return its data as a JSON object."""
        return from_struct(self.data)


def parse_event(
    kind: str, message: str, role: str = ORCH23_ROLE, level: EventLevel = "info", data: JsonObject | None = None
) -> Event:
    """Return an event of the name of its type and the JSON object of its data.

    Raises:
        ValueError: there is no such type, or a fact is of another form.

    """
    form = EVENT_KINDS.get(kind)
    if form is None:
        problem = f"is of the unknown type {kind}"
        raise ValueError(problem)
    return Event(to_struct(data or {}, form), message, role, level)


def run_started(began: RunStarted) -> Event:
    """Return the event that begins a build."""
    return Event(began, f"building {began.pipeline}")


def run_finished(ended: RunFinished) -> Event:
    """Return the event that ends a build."""
    return Event(ended, ended.status)


class Observer(Protocol):
    """Whoever wants to know what happens: the journal, the screen."""

    def notice(self, event: Event) -> None:
        """Take one event. May be called from any thread."""
