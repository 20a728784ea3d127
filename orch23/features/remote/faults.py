"""What goes wrong with an action on other machines, and how often it is submitted again."""

from concurrent.futures import CancelledError

from msgspec import Struct, field

from orch23.features.remote.engine import EngineFault, WorkerLost
from orch23.model.errors import CacheFault


class RemoteLimits(Struct, frozen=True, kw_only=True):
    """How often an action is submitted again after a fault of each kind, and the waits, in seconds.

    `lost` counts workers that ended, `missing` inputs or outputs that the cache has lost, `faults` an engine, a cache
    or a worker that cannot be used. `patience_s` is how long an action waits while there is no worker. `slots` is the
    number of slots of an engine that cannot be asked.
    """

    lost: int = 10
    missing: int = 3
    faults: int = 4
    pauses_s: tuple[float, ...] = (0.5, 2.0, 5.0, 10.0)
    patience_s: float = 60.0
    look_each_s: float = 0.2
    slots: int | None = None


USUAL_LIMITS = RemoteLimits()


class Faults(Struct):
    """What went wrong with one action so far, by kind, and the places of the workers that could not run it."""

    counts: dict[str, int] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)

    def note(self, kind: str) -> int:
        """Count a fault, and return how many of its kind there were."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]


class GivenUpError(Exception):
    """The budget of an action for faults is used up. It has the reason, and what to do if that is not the usual."""


def described(fault: Exception) -> tuple[str, str]:
    """Return the kind of a fault, and what happened."""
    match fault:
        case WorkerLost(reason=reason):
            return "lost", reason
        case EngineFault(reason=reason):
            return "faults", reason
        case CacheFault(message=message):
            return "faults", f"the cache cannot be used: {message}"
        case CancelledError():
            # The scheduler was restarted, or the connection to it was lost.
            return "faults", "the engine has cancelled the action"
        case _:
            return "faults", f"the reply of a worker cannot be read: {fault}"
