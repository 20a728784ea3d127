"""What is to be done with a stage, and why. Maybe and Expand exist only in a dry-run."""

from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from orch23.model.manifest import Reason
from orch23.model.record import Record


class Fresh(Struct, frozen=True):
    """The disk equals this record of today's key: nothing to do."""

    record: Record
    label: ClassVar[Literal["fresh"]] = "fresh"


class Restore(Struct, frozen=True):
    """A record of today's key exists and its bytes can be had: put them back, run nothing."""

    record: Record
    reasons: tuple[Reason, ...]
    label: ClassVar[Literal["restore"]] = "restore"


class VerifyOnly(Struct, frozen=True):
    """Verify the recorded outputs as they are: only the verification changed, a user edited them, or it is a claim.

    `adopted` are outputs that a user edited and committed: they are in the record as they are on disk, and are recorded
    as accepted if they pass. With `claim`, only the lock file has the record (ADR 21).
    """

    record: Record
    reasons: tuple[Reason, ...]
    adopted: tuple[str, ...] = ()
    claim: bool = False
    label: ClassVar[Literal["verify"]] = "verify"

    @property
    def is_final(self) -> bool:
        """Return whether nothing else can come of it but a failure: no model is asked."""
        return bool(self.adopted) or self.claim


class Run(Struct, frozen=True):
    """The stage has to run."""

    reasons: tuple[Reason, ...]
    label: ClassVar[Literal["run"]] = "run"


class Maybe(Struct, frozen=True):
    """It depends on what the stages it waits for will write."""

    waiting_on: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    label: ClassVar[Literal["maybe"]] = "maybe"


class Expand(Struct, frozen=True):
    """A foreach whose items are unknown until its producer has run; last time there were `last_count`."""

    waiting_on: tuple[str, ...]
    last_count: int
    label: ClassVar[Literal["expand"]] = "expand"


class Blocked(Struct, frozen=True):
    """It cannot run, since these stages failed or wait for a person."""

    by: tuple[str, ...]
    label: ClassVar[Literal["blocked"]] = "blocked"


class Edited(Struct, frozen=True):
    """A user's bytes are at these outputs, and the user has to say what is to become of them.

    With a record, the stage has nothing else to do: what does not read these paths goes on. `existed` are those that
    no stage has ever written, `accepted` those that a run would overwrite although the user had them accepted.
    """

    paths: tuple[str, ...]
    record: Record | None = None
    existed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    label: ClassVar[Literal["edited"]] = "edited"

    @property
    def clauses(self) -> tuple[str, ...]:
        """Give what there is to say of the paths, in parts."""
        plain = tuple(path for path in self.paths if path not in self.existed and path not in self.accepted)
        told = (
            ("edited by hand", plain),
            ("existed before the stage first ran", self.existed),
            ("accepted by a user, and a run would overwrite it", self.accepted),
        )
        return tuple(f"{what}: {', '.join(paths)}" for what, paths in told if paths)


class Skipped(Struct, frozen=True):
    """Its `if`, given as it is written, switches it off."""

    condition: str
    label: ClassVar[Literal["skipped"]] = "skipped"


Decision: TypeAlias = Fresh | Restore | VerifyOnly | Run | Maybe | Expand | Blocked | Edited | Skipped
