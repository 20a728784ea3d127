"""What the data of events is made of: their base class, the objects in them, and fixed words."""

from typing import ClassVar, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from orch23.model.diagnostic import Location
from orch23.model.parsing import NaturalNumber
from orch23.model.pipeline import FailureKind

EventLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
RunStatus: TypeAlias = Literal["ok", "failed", "interrupted", "limit", "decision", "waiting"]
DecisionName: TypeAlias = Literal["fresh", "run", "restore", "verify", "edited"]
FailureName: TypeAlias = Literal[FailureKind, ""]
"""The kind of a failure; empty if nothing failed."""
CostText: TypeAlias = str | None
"""US dollars, as a decimal; None if a price is not known."""


# Users read these lines. Fields may be added; any other change needs a new format version (ADR 32).
class EventData(Struct, frozen=True, kw_only=True):
    """The data of an event. `kind` is the `type` of its line."""

    kind: ClassVar[str]


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


class RunLimits(Struct, frozen=True):
    """The limits of `stop_conditions` for calls, tokens, money and time; null means no limit."""

    max_llm_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: str | None = None
    max_wall_s: float | None = None
