"""Events of a run: one type each, as the journal and `--output jsonl` write them.

A field may be added to a type, with a default. Removing a field, or changing its meaning, needs another
`EVENT_VERSION`. Readers of a journal ignore fields that they do not know.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Protocol

from msgspec import UNSET, Struct, UnsetType, field

from orch23.model.event_data import (
    CostText,
    DecisionName,
    EventData,
    EventLevel,
    EventProblem,
    EventReason,
    FailureName,
    LikelyCause,
    RecordingMode,
    RequestTotals,
    RunLimits,
    RunStatus,
    SentFile,
    StageStatus,
    StopReason,
)
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, refuse, to_struct

EVENT_VERSION = 1
ORCH23_ROLE = "orch23"
"""The role of an event that does not belong to a stage."""


class RunStarted(EventData, frozen=True, kw_only=True):
    """A build starts.

    `stages` is the number of stages. If the build processes only the stages that an edit affects, `at_rest` counts the
    others by status. `jobs` is the maximum of stages that run at once; 0: as many as the slots of a cluster and of this
    machine allow. `lock` is the digest of the lock file, `spec_file` the first file that the stages read.
    `version` is the version of orch23, `python` the version of Python, `platform` the system. `resample` maps stages
    whose models are to be called again, by `--resample` of this run or of an interrupted one, to the fingerprints that
    were requested so far; null for an item that has ended.
    """

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
    python: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    at_rest: dict[str, int] | UnsetType = UNSET
    limits: RunLimits | UnsetType = UNSET
    resample: dict[str, tuple[str, ...] | None] | UnsetType = UNSET


class Planned(EventData, frozen=True, kw_only=True):
    """The stages of this build, in order, each with its kind. A foreach is one stage until its items are known.

    `needs` maps a stage to its direct dependencies: the stages whose files it reads, and those in its `needs`. They
    may be stages that are not part of this build. Stages without dependencies are left out. The items of a foreach
    (`stages_added`) have the same dependencies as the foreach.
    """

    kind: ClassVar[str] = "plan"
    stages: dict[str, str] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)


class StageDecided(EventData, frozen=True, kw_only=True):
    """The decision for a stage, with its reasons."""

    decision: DecisionName
    key: str = ""
    reasons: tuple[EventReason, ...] = ()


class StageRestored(EventData, frozen=True, kw_only=True):
    """Files of an earlier result were restored to the workspace."""

    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class StagesAdded(EventData, frozen=True, kw_only=True):
    """A foreach was expanded to these items. `at_rest` counts further ones, which no edit affects, by status."""

    items: tuple[str, ...] = ()
    at_rest: dict[str, int] | UnsetType = UNSET

    def put_into(self, names: Iterable[str], foreach: str) -> tuple[str, ...]:
        """Return these names with the items in the place of their foreach, or at the end."""
        known = (*names,)
        at = known.index(foreach) if foreach in known else len(known)
        return (*known[:at], *self.items, *known[at + 1 :])


class StageStarted(EventData, frozen=True, kw_only=True):
    """A stage starts to run."""

    key: str = ""


class AttemptStarted(EventData, frozen=True, kw_only=True):
    """An attempt of a stage starts; `attempt` counts from 1."""

    attempt: NaturalNumber = 1
    max_attempts: NaturalNumber = 1
    key: str = ""


class LlmRequest(EventData, frozen=True, kw_only=True):
    """A request to a model. `files` and the three numbers of bytes cover everything that is sent.

    With `recorded` a recorded response is used.
    """

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
    """The maximum calls, tokens and cost of a request are reserved before it is sent.

    With `collects`, an interrupted run submitted the request: this reservation replaces the one of that run.
    A fallback has another `provider`, `model` and fingerprint than the `llm_request` before.
    """

    fingerprint: str = ""
    provider: str = ""
    model: str = ""
    calls: int = 0
    tokens: int = 0
    cost: CostText = None
    collects: bool = False


class CallSubmitted(EventData, frozen=True, kw_only=True, omit_defaults=True):
    """A server accepted a request and works on it; this build or a later one collects the response."""

    fingerprint: str = ""
    response_id: str = ""
    provider: str = ""


BATCH_MARK = "batch "
"""The beginning of the id in `call_submitted` of a request in a batch."""


class BatchEvent(EventData, frozen=True, kw_only=True):
    """An event about a batch of requests to a model. `stages` names the first of them."""

    batch_id: str = ""
    provider: str = ""
    model: str = ""
    requests: NaturalNumber = 0
    stages: tuple[str, ...] = ()


class BatchSubmitted(BatchEvent, frozen=True, kw_only=True):
    """A vendor works on a batch of requests. `stages` names the first of them."""


class BatchWaiting(BatchEvent, frozen=True, kw_only=True):
    """The run ends and waits for this batch, which was submitted at `since`; a later build goes on.

    `batch_id` is empty if it is not known yet whether the vendor has the batch.
    """

    since: str = ""


class CallSettled(EventData, frozen=True, kw_only=True):
    """The totals of a request, which replace its reservation.

    With `forfeited` they are not known: the whole reservation may have been charged. With `released` nothing was
    charged. With `unusable` the request failed, and the server reported its usage. `uncounted` comes with `forfeited`:
    there is a response, but the provider reported no tokens. For a response that was cut off there are two events: the
    first, `uncounted`, has the maximum that may have been charged besides; the second has the reported tokens.
    """

    fingerprint: str = ""
    calls: int = 0
    tokens: int = 0
    cost: CostText = None
    forfeited: bool = False
    released: bool = False
    unusable: bool = False
    uncounted: bool = False


class HttpRetry(EventData, frozen=True, kw_only=True):
    """A request failed and is sent again after `delay_s` seconds, as number `try`."""

    status: int | None = None
    code: str = ""
    delay_s: float = 0.0
    number: NaturalNumber = field(default=2, name="try")


class RateLimitWait(EventData, frozen=True, kw_only=True):
    """A stage has begun to wait for more than three seconds, until a rate limit allows its request.

    It ends with `call_reserved` of the stage. `wait_s` is the expected time, `limit` the limit: from
    `rates`, from a reply of the server, or its last refusal.
    """

    provider: str = ""
    model: str = ""
    wait_s: float = 0.0
    limit: str = ""


class LlmText(EventData, frozen=True, kw_only=True):
    """A line of a model's response. Only with `--live`, and with the limits of `step_output`.

    After `http_retry` the response starts again from its beginning.
    """

    attempt: NaturalNumber = 1
    line: str = ""
    cut: bool = False


class LlmResponse(EventData, frozen=True, kw_only=True):
    """The response of a model, or a recorded one (`replayed`).

    `requests` counts the requests that were sent for it, `prices` names the price table, `provenance` the source of the
    response. `uncached_cost` is its cost without the prompt cache, null for a recorded response. `fallback`: an
    entry of `llm.fallback` responded.
    """

    fingerprint: str = ""
    attempt: NaturalNumber = 1
    mode: RecordingMode = "cached"
    replayed: bool | None = None
    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0
    cache_read_tokens: NaturalNumber = 0
    cache_write_tokens: NaturalNumber = 0
    cost: CostText = None
    uncached_cost: CostText = None
    prices: str = ""
    requests: int = 0
    model: str = ""
    stop: StopReason = "end"
    provenance: str = ""
    fallback: bool = False


class FilesProposed(EventData, frozen=True, kw_only=True):
    """A response contains these files; none of them is in the workspace yet."""

    files: tuple[str, ...] = ()


class StepOutput(EventData, frozen=True, kw_only=True):
    """A line that a step printed. Only with `--live`.

    With `cut`, `line` is the first 2,000 characters of a longer line. After 1,000 lines of a step, an empty line with
    `cut` means that there are more.
    """

    step: str = ""
    line: str = ""
    cut: bool = False


class CommandRan(EventData, frozen=True, kw_only=True):
    """A command of a stage has ended: of a step, of `verify`, or the program of the provider `command`.

    `exit_code` is null if it was killed, at a timeout or by an interruption. It belongs to the attempt of the
    last `attempt_started` of its stage; if there is none, it verified a recorded result.
    """

    command: str = ""
    exit_code: int | None = None
    duration_s: float = 0


class CheckResult(EventData, frozen=True, kw_only=True):
    """One step of `verify` has run. `printed` is the file with its output, below the directory of the attempt.

    If it ran on the base, too: `failed_before` are the failed tests that failed there, `broken` those that passed
    there, `forgiven` those that `may_fail` forgives.
    """

    step: str = "verify"
    passed: bool = False
    exit_code: int | None = None
    excerpt: str = ""
    attempt: NaturalNumber = 0
    printed: str = ""
    failed_before: tuple[str, ...] | UnsetType = UNSET
    broken: tuple[str, ...] | UnsetType = UNSET
    forgiven: tuple[str, ...] | UnsetType = UNSET


class AttemptFinished(EventData, frozen=True, kw_only=True):
    """An attempt has ended; after a failure with its kind, command, failed tests, and an excerpt of the output.

    Attempt 0 is the verification of a recorded result, which failed.
    """

    attempt: NaturalNumber = 1
    passed: bool = False
    failure_kind: FailureName = field(default="", name="kind")
    command: str = ""
    exit_code: int | None = None
    failing: tuple[str, ...] = ()
    excerpt: str = ""


class StageWithheld(EventData, frozen=True, kw_only=True):
    """A stage has a result, but waits for others of its promotion group.

    `for` names the first of them, `waits_for` counts them.
    """

    kind: ClassVar[str] = "stage_held"
    key: str = ""
    missing: tuple[str, ...] = field(default=(), name="for")
    waits_for: NaturalNumber = 0


class StageAwaiting(EventData, frozen=True, kw_only=True):
    """A stage waits until the result of its request is in a batch; it starts again then."""

    fingerprint: str = ""


class FilesPromoted(EventData, frozen=True, kw_only=True):
    """Files were written to the workspace, or removed from it."""

    kind: ClassVar[str] = "promoted"
    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class FilesReleased(EventData, frozen=True, kw_only=True):
    """Files of stages that the pipeline no longer declares become source files of the user."""

    kind: ClassVar[str] = "released"
    files: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()


class StageFinished(EventData, frozen=True, kw_only=True):
    """A stage has ended.

    `calls` counts responses that were paid for, `recorded` those that were replayed, `by_hand` those that a user wrote,
    `fallbacks` those of `llm.fallback`.
    With `unchanged` its outputs have the same bytes as before. `possible_cost` may have been charged besides `cost`.
    `failure` is the excerpt of a failure, `kind` its kind. `exit_code` and `command_s` are those of its `command`; the
    duration is in seconds. `cause` is missing if orch23 does not know one. `metrics` maps the metrics files of a stage
    that is up to date to the SHA-256 of their bytes; it is missing if the stage has none.
    """

    status: StageStatus
    key: str = ""
    duration_s: float | None = None
    attempts: int = 0
    calls: int = 0
    recorded: int = 0
    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0
    cost: CostText = "0"
    possible_cost: str = "0"
    saved: str = "0"
    by_hand: int = 0
    fallbacks: int = 0
    outputs: tuple[str, ...] = ()
    unchanged: bool = False
    failure: str = ""
    problems: tuple[EventProblem, ...] = ()
    # Named `kind` in its line; in the class `kind` is the type of the event.
    failure_kind: FailureName = field(default="", name="kind")
    command: str = ""
    by: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    exit_code: int | UnsetType = UNSET
    command_s: float | UnsetType = UNSET
    cause: LikelyCause | UnsetType = UNSET
    metrics: dict[str, str] | UnsetType = UNSET
    forgiven: tuple[str, ...] | UnsetType = UNSET


class SharedCacheUsed(EventData, frozen=True, kw_only=True):
    """What the build did with the shared cache, once it has ended; not emitted if it did nothing.

    These count results: `restored` were used, `confirmed` were on disk already, `missing` are not in the cache,
    `stored` were stored, `not_stored` could not be stored, `refused` have secrets. `responses` counts the recorded
    responses of models that were used. `waited_s` is the time that the build waited for the cache. `saved_s` and
    `saved` are the seconds and US dollars that the restored results took to make.
    """

    kind: ClassVar[str] = "shared_cache"
    restored: int = 0
    confirmed: int = 0
    missing: int = 0
    stored: int = 0
    not_stored: int = 0
    refused: int = 0
    responses: int = 0
    down_bytes: int = 0
    up_bytes: int = 0
    waited_s: float = 0.0
    saved_s: float = 0.0
    saved: str = "0"


class Notice(EventData, frozen=True, kw_only=True):
    """An event whose message says all of it. Each screen and page shows it, so that a new one changes none of them."""


class StoreRepaired(Notice, frozen=True, kw_only=True):
    """Damage to the store, or the rest of a killed build, was repaired."""

    kind: ClassVar[str] = "healed"


class BaseVerified(Notice, frozen=True, kw_only=True):
    """The verification of a stage ran on the files that it starts from. `failing` are the tests that failed."""

    failing: tuple[str, ...] = ()


class Warned(Notice, frozen=True, kw_only=True, omit_defaults=True):
    """A warning for the user. With `of_steps` it matters only if a step runs.

    `flaky` are the tests, or the step, of a stage that failed and passed in another run (`reruns`).
    """

    kind: ClassVar[str] = "warning"
    code: str = ""
    fingerprint: str = ""
    response_id: str = ""
    paths: tuple[str, ...] = ()
    exit_code: int | None = None
    of_steps: bool = False
    flaky: tuple[EventProblem, ...] = ()


class FailedOnBase(Notice, frozen=True, kw_only=True):
    """The tests of a result fail on the files as they were before the stage, as `fails_on_base` requires.

    `tests` are the names of those that failed there and pass in the result; without names, the commands.
    """

    tests: tuple[str, ...] = ()
    attempt: NaturalNumber = 0


class RunFinished(EventData, frozen=True, kw_only=True):
    """The build has ended; the last event.

    `stages` counts the stages by status, `before` has the totals of interrupted runs that this one continued,
    `unpriced` counts the calls of unknown price, `saved` is the recorded cost of the replayed responses. `cost` is
    known; `possible_cost` is the maximum that may have been charged besides, for calls without a known outcome.
    """

    status: RunStatus
    exit_code: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    saved: str = "0"
    calls: int = 0
    tokens: int = 0
    cost: CostText = "0"
    possible_tokens: int = 0
    possible_cost: str = "0"
    unpriced: int = 0
    before: RequestTotals = RequestTotals()
    limits: RunLimits = RunLimits()


EVENT_KINDS: Final[Mapping[str, type[EventData]]] = {
    one.kind: one for base in EventData.__subclasses__() for one in base.__subclasses__() or (base,)
}
"""The types of events by the `type` of their lines, in the order of this module, with those of `Notice`."""


class Event(Struct, frozen=True):
    """One event. `role` is the stage, or `orch23`; a journal adds time and number."""

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
    """Return the event with the name of its type and the JSON object of its data.

    Raises:
        ValueError: the type is unknown, or its data has another form.
    """
    form = EVENT_KINDS.get(kind)
    if form is None:
        refuse(f"is of the unknown type {kind}")
    return Event(to_struct(data or {}, form), message, role, level)


class FinishedStage(Struct, frozen=True):
    """How a stage ended: its name, message and data of its `stage_finished`, and a line for each earlier attempt.

    `reasons` has the reasons of all attempts, in one line, if the reason of the last one hides an earlier one.
    """

    name: str
    message: str
    data: StageFinished
    earlier: tuple[str, ...] = ()
    reasons: str = ""

    @property
    def status(self) -> StageStatus:
        """Return the status with which it ended."""
        return self.data.status


FROM_SHARED_CACHE = "restored from the shared cache"
"""The message of `stage_finished` of a stage whose result a shared cache had."""


def run_started(began: RunStarted) -> Event:
    """Return the first event of a build."""
    return Event(began, f"building {began.pipeline}")


def run_finished(ended: RunFinished) -> Event:
    """Return the last event of a build."""
    return Event(ended, ended.status)


def waiting_text(batch: BatchWaiting) -> str:
    """Return in one line what a run waits for."""
    noun = "request" if batch.requests == 1 else "requests"
    count = (
        f"{batch.requests} {noun} of {', '.join(batch.stages)}{', ...' if batch.requests > len(batch.stages) else ''}"
    )
    at = f"batch {batch.batch_id} of {batch.provider}" if batch.batch_id else f"a batch that {batch.provider} may have"
    return f"{count} in {at}, since {batch.since}"


class Observer(Protocol):
    """A receiver of events, such as the journal or the screen."""

    def notice(self, event: Event) -> None:
        """Receive one event. May be called from any thread."""
