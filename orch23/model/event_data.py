"""What the data of events is made of: base class, objects, fixed words, and the status of a stage in a run."""

import operator
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from orch23.model.diagnostic import Location
from orch23.model.parsing import NaturalNumber, refuse
from orch23.model.pipeline import FailureKind

EventLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
RunStatus: TypeAlias = Literal["ok", "failed", "interrupted", "limit", "decision", "waiting", "approval"]
DecisionName: TypeAlias = Literal["fresh", "done", "run", "restore", "verify", "edited"]
RecordingMode: TypeAlias = Literal["cached", "record", "replay"]
"""Which recorded responses are used: all, only those of this run, or (`replay`) nothing else."""
StopReason: TypeAlias = Literal["end", "max_tokens", "stop_sequence", "refusal", "unknown"]
FailureName: TypeAlias = Literal[FailureKind, ""]
"""The kind of a failure; empty if nothing failed."""
CostText: TypeAlias = str | None
"""US dollars, as a decimal; None if a price is not known."""


class StageStatus(StrEnum):
    """The status of a stage, as events and `state.json` write it. Counts are shown in this order."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    # `state.json` and journals of earlier builds contain the values; only the names of members may change.
    DEFERRED = "gathered"
    BUILT = "built"
    RESTORED = "restored"
    VERIFIED = "verified"
    FRESH = "fresh"
    DONE = "done"
    SKIPPED = "skipped"
    WITHHELD = "held"
    NOT_SELECTED = "passed_over"
    NOT_BUILT = "not_built"
    FAILED = "failed"
    EDITED = "edited"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    # The run ended before the batch with its request.
    AWAITING = "awaiting"

    @property
    def is_reported(self) -> bool:
        """Return whether a stage can end like this, so that `stage_finished` reports it: for docs/events.md."""
        return self not in {_S.WAITING, _S.READY, _S.RUNNING, _S.DEFERRED, _S.NOT_SELECTED, _S.NOT_BUILT}

    @property
    def has_result(self) -> bool:
        """Return whether the stage has a result of its current key, or is done."""
        return self in _WITH_RESULT

    @property
    def is_green(self) -> bool:
        """Return whether the stage is up to date."""
        return self in _GREEN

    @property
    def releases_downstream(self) -> bool:
        """Return whether the stages that depend on it can run."""
        return self in _GREEN or self is StageStatus.NOT_SELECTED

    @property
    def is_awaited(self) -> bool:
        """Return whether its promotion group waits for it."""
        return self in _AWAITED

    @property
    def is_failure(self) -> bool:
        """Return whether the user has to do something: the stage failed, or its files were edited."""
        return self in (StageStatus.FAILED, StageStatus.EDITED)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing was done for the stage."""
        return self in (StageStatus.FRESH, StageStatus.DONE, StageStatus.SKIPPED)


_S: Final = StageStatus
_STOPPED: Final = frozenset({_S.EDITED, _S.FAILED, _S.BLOCKED, _S.CANCELLED, _S.AWAITING})
_DONE: Final = frozenset({_S.BUILT, _S.VERIFIED, *_STOPPED})
_WITH_RESULT: Final = frozenset({_S.DEFERRED, _S.BUILT, _S.RESTORED, _S.VERIFIED, _S.FRESH, _S.DONE})
_GREEN: Final = _WITH_RESULT | {_S.SKIPPED}
NEW_RESULTS: Final = frozenset({_S.BUILT, _S.VERIFIED, _S.RESTORED})
_AWAITED: Final = frozenset({_S.WAITING, _S.READY, _S.RUNNING, _S.DEFERRED, _S.WITHHELD, *_STOPPED})

TRANSITIONS: Final[Mapping[StageStatus, frozenset[StageStatus]]] = {
    _S.WAITING: frozenset(
        {_S.READY, _S.WITHHELD, _S.FRESH, _S.DONE, _S.RESTORED, _S.SKIPPED, _S.NOT_SELECTED, _S.NOT_BUILT, *_STOPPED}
    ),
    _S.READY: frozenset({_S.RUNNING, _S.BLOCKED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.WAITING, _S.DEFERRED, _S.WITHHELD, *_DONE}),
    _S.DEFERRED: _DONE,
    _S.WITHHELD: frozenset({_S.WITHHELD, _S.FRESH, _S.RESTORED, *_DONE}),
}
"""The statuses that may follow each status; those without an entry are final.

A running stage can wait again: its inputs changed while its sandbox directory was prepared, or its request is in a
batch.
"""


def checked_transition(before: StageStatus, after: StageStatus, name: str) -> StageStatus:
    """Return the next status of a stage; every transition is checked here.

    Raises:
        ValueError: `after` may not follow `before`.
    """
    if after not in TRANSITIONS.get(before, ()):
        refuse(f"BUG: stage {name} cannot go from {before} to {after}")
    return after


# Users read these lines. Fields may be added; any other change needs a new format version (ADR 32).
class EventData(Struct, frozen=True, kw_only=True):
    """The data of an event. `kind` is the `type` of its line: of `RunStarted` it is `run_started`.

    A class whose line has kept the `type` of an earlier name states it.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, **config: Any) -> None:
        """Set the type of a class that states none."""
        super().__init_subclass__(**config)
        cls.kind = vars(cls).get("kind") or re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class EventReason(Struct, frozen=True):
    """A reason for a decision: a code, and the input, key or stage that it refers to."""

    code: str
    subject: str = ""


class EventProblem(Struct, frozen=True):
    """A diagnostic: its code, what is wrong, where, and what to do. `fix` is a text at its place, and a better one."""

    code: str
    message: str = ""
    subject: str | None = None
    hint: str | None = None
    location: Location | UnsetType = UNSET
    fix: tuple[str, ...] | UnsetType = UNSET


CauseKind: TypeAlias = Literal[
    "undeclared_input",
    "path",
    "python_path",
    "module",
    "package",
    "program",
    "variable",
    "network",
    "network_use",
    "time",
    "limit",
    "output",
]
"""What a likely cause is about. A `network_use` is only a possible one: the command uses a network that it has not.

The last three are only in logs of earlier versions.
"""


class LikelyCause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a step probably failed, from verified facts, and the change of the pipeline that helps.

    `text` is one line; `hint` says what else to do or to know. `key` is a key of the stage, such as `limits/memory`,
    and `value` its new value; with `appends` it is one more item of the list there. Both are empty if no key helps.
    """

    kind: CauseKind
    text: str
    key: str = ""
    value: str = ""
    appends: bool = False
    hint: str = ""


class SentFile(Struct, frozen=True):
    """A file that a request contains as a whole or in part."""

    path: str
    slice: str
    sha256: str
    bytes: NaturalNumber


class RequestTotals(Struct, frozen=True):
    """Totals of requests: their number, tokens of input and output together, known cost and possible further cost."""

    calls: int = 0
    tokens: int = 0
    cost: CostText = "0"
    possible_tokens: int = 0
    possible_cost: str = "0"


class UsageTotals(Struct, frozen=True):
    """The number of calls, their input and output tokens together, and their cost in US dollars.

    `tokens` and `cost` are known. `possible_tokens` and `possible_cost` are the maximum of what may have been charged
    besides, for calls without a known outcome. Limits count both.
    """

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    possible_tokens: int = 0
    possible_cost: Decimal = Decimal(0)

    @property
    def most_tokens(self) -> int:
        """The maximum of tokens."""
        return self.tokens + self.possible_tokens

    @property
    def most_cost(self) -> Decimal:
        """The maximum of the cost."""
        return self.cost + self.possible_cost

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the sum of both."""
        return UsageTotals(*map(operator.add, astuple(self), astuple(other)))

    def minus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the difference of both."""
        return UsageTotals(*map(operator.sub, astuple(self), astuple(other)))

    def as_possible(self) -> "UsageTotals":
        """Return the same amounts as possible ones: they may have been charged."""
        return UsageTotals(self.calls, 0, Decimal(0), self.most_tokens, self.most_cost)


class RunLimits(Struct, frozen=True):
    """The limits of `stop_conditions` for calls, tokens, money and time; null means no limit."""

    max_llm_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: str | None = None
    max_wall_s: float | None = None
