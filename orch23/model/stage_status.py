"""The status of a stage in a run: what each one implies, and which may follow it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


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
        """Return whether a stage can end like this, so that `stage_finished` reports it."""
        return self not in _NEVER_REPORTED

    @property
    def has_result(self) -> bool:
        """Return whether the stage has a result of its current key."""
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
        return self in (StageStatus.FRESH, StageStatus.SKIPPED)


_S: Final = StageStatus
_STOPPED: Final = frozenset({_S.EDITED, _S.FAILED, _S.BLOCKED, _S.CANCELLED, _S.AWAITING})
_DONE: Final = frozenset({_S.BUILT, _S.VERIFIED, *_STOPPED})
_WITH_RESULT: Final = frozenset({_S.DEFERRED, _S.BUILT, _S.RESTORED, _S.VERIFIED, _S.FRESH})
_GREEN: Final = _WITH_RESULT | {_S.SKIPPED}
NEW_RESULTS: Final = frozenset({_S.BUILT, _S.VERIFIED, _S.RESTORED})
_AWAITED: Final = frozenset({_S.WAITING, _S.READY, _S.RUNNING, _S.DEFERRED, _S.WITHHELD, *_STOPPED})
_NEVER_REPORTED: Final = frozenset({_S.WAITING, _S.READY, _S.RUNNING, _S.DEFERRED, _S.NOT_SELECTED, _S.NOT_BUILT})

TRANSITIONS: Final[Mapping[StageStatus, frozenset[StageStatus]]] = {
    _S.WAITING: frozenset(
        {_S.READY, _S.WITHHELD, _S.FRESH, _S.RESTORED, _S.SKIPPED, _S.NOT_SELECTED, _S.NOT_BUILT, *_STOPPED}
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
        message = f"BUG: stage {name} cannot go from {before} to {after}"
        raise ValueError(message)
    return after
