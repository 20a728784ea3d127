"""What is to be done with a stage, and why. Maybe and Expand exist only in a dry-run."""

from dataclasses import dataclass
from typing import TypeAlias

from orch23.model.manifest import Reason
from orch23.model.record import Record


@dataclass(frozen=True, slots=True)
class Fresh:
    """The disk equals this record of today's key: nothing to do."""

    record: Record
    label = "fresh"


@dataclass(frozen=True, slots=True)
class Restore:
    """A record of today's key exists and its bytes can be had: put them back, run nothing."""

    record: Record
    reasons: tuple[Reason, ...]
    label = "restore"


@dataclass(frozen=True, slots=True)
class VerifyOnly:
    """Only the verification changed: verify the recorded outputs as they are."""

    record: Record
    reasons: tuple[Reason, ...]
    label = "verify"


@dataclass(frozen=True, slots=True)
class Run:
    """The stage has to run."""

    reasons: tuple[Reason, ...]
    label = "run"


@dataclass(frozen=True, slots=True)
class Maybe:
    """It depends on what the stages it waits for will write."""

    waiting_on: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    label = "maybe"


@dataclass(frozen=True, slots=True)
class Expand:
    """A foreach whose items are unknown until its producer has run; last time there were `last_count`."""

    waiting_on: tuple[str, ...]
    last_count: int
    label = "expand"


@dataclass(frozen=True, slots=True)
class Blocked:
    """It cannot run, since these stages failed or wait for a person."""

    by: tuple[str, ...]
    label = "blocked"


@dataclass(frozen=True, slots=True)
class Edited:
    """A person changed these outputs by hand; a person must say what is to become of them."""

    paths: tuple[str, ...]
    label = "edited"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Its `if`, given as it is written, switches it off."""

    condition: str
    label = "skipped"


Decision: TypeAlias = Fresh | Restore | VerifyOnly | Run | Maybe | Expand | Blocked | Edited | Skipped
