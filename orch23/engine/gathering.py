"""Gather what is soon made again, so that many results are made to last in one transaction."""

from collections.abc import Callable

from msgspec import Struct, field

from orch23.engine.attempt import Attempted
from orch23.engine.together import Success
from orch23.model.pipeline import CheckStep, EnsuresStep, Stage

_SOON_S = 0.15
_MOST = 256
_PATIENCE_S, _MOST_PATIENCE_S = 0.3, 2.0
_SHARE = 10


def is_soon_made_again(stage: Stage, done: Attempted) -> bool:
    """Say whether a crash may cost this result: nothing was paid for it, and it took no time.

    What belongs to a chain has versions that others start from, and is none.
    """
    if done.exchanges or stage.chain is not None or not stage.step.is_cheap:
        return False
    checked = all(isinstance(step, CheckStep | EnsuresStep) for step in stage.verify.steps)
    return checked and done.attempts == 1 and done.took_s <= _SOON_S


class Gathering(Struct):
    """Successes that other stages see already, and that are not promoted. Only the loop thread calls this."""

    clock: Callable[[], float]
    _members: dict[str, Success] = field(default_factory=dict)
    _since: float = 0.0
    _took_s: float = 0.0

    def add(self, success: Success) -> None:
        """Take a success; the first one sets the time until which all are to be committed."""
        if not self._members:
            self._since = self.clock()
        self._members[success.resolved.stage.name] = success

    @property
    def is_due(self) -> bool:
        """Say whether it is time to commit."""
        return len(self._members) >= _MOST or (bool(self._members) and self.left_s == 0)

    @property
    def left_s(self) -> float | None:
        """Give how long the successes may wait yet; None where there are none."""
        if not self._members:
            return None
        patience_s = max(_PATIENCE_S, min(_MOST_PATIENCE_S, _SHARE * self._took_s))
        return max(0.0, self._since + patience_s - self.clock())

    def committed(self, took_s: float) -> None:
        """Note how long it took to commit: on a slow disk more is gathered, so that it is a tenth of the time."""
        self._took_s = took_s

    def take(self) -> dict[str, Success]:
        """Return all of them in the order they came in, and hold none."""
        taken, self._members = self._members, {}
        return taken
