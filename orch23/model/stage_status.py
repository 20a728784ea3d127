"""The status of a stage in a run: what each one implies, and which may follow it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self


class StageStatus(StrEnum):
    """The status of a stage, as events and `state.json` write it.

    `is_told`: the stage can end like this, and `stage_finished` says so. `has_result`: there is a result of today's
    key. `is_green`: the stage is up to date. `lets_pass`: what depends on it can run. `is_waited_for`: its promotion
    group waits for it. `is_idle`: nothing was done for it.
    """

    is_told: bool
    has_result: bool
    is_green: bool
    lets_pass: bool
    is_waited_for: bool
    is_idle: bool

    #             written        told   result green  pass   waited idle
    WAITING = "waiting", False, False, False, False, True, False
    READY = "ready", False, False, False, False, True, False
    RUNNING = "running", False, False, False, False, True, False
    GATHERED = "gathered", False, True, True, True, True, False
    HELD = "held", True, False, False, False, True, False
    BUILT = "built", True, True, True, True, False, False
    RESTORED = "restored", True, True, True, True, False, False
    VERIFIED = "verified", True, True, True, True, False, False
    FRESH = "fresh", True, True, True, True, False, True
    SKIPPED = "skipped", True, False, True, True, False, True
    PASSED_OVER = "passed_over", False, False, False, True, False, False
    NOT_BUILT = "not_built", False, False, False, False, False, False
    EDITED = "edited", True, False, False, False, True, False
    FAILED = "failed", True, False, False, False, True, False
    BLOCKED = "blocked", True, False, False, False, True, False
    CANCELLED = "cancelled", True, False, False, False, True, False

    def __new__(
        cls,
        written: str,
        is_told: bool,  # noqa: FBT001 - likewise
        has_result: bool,  # noqa: FBT001
        is_green: bool,  # noqa: FBT001
        lets_pass: bool,  # noqa: FBT001
        is_waited_for: bool,  # noqa: FBT001
        is_idle: bool,  # noqa: FBT001
    ) -> Self:
        """Make a member of a row of the table."""
        member = str.__new__(cls, written)
        member._value_ = written
        member.is_told, member.has_result, member.is_green = is_told, has_result, is_green
        member.lets_pass, member.is_waited_for, member.is_idle = lets_pass, is_waited_for, is_idle
        return member


_S: Final = StageStatus
_STOPPED: Final = frozenset({_S.EDITED, _S.FAILED, _S.BLOCKED, _S.CANCELLED})
_DONE: Final = frozenset({_S.BUILT, _S.VERIFIED, *_STOPPED})

TRANSITIONS: Final[Mapping[StageStatus, frozenset[StageStatus]]] = {
    _S.WAITING: frozenset(
        {_S.READY, _S.HELD, _S.FRESH, _S.RESTORED, _S.SKIPPED, _S.PASSED_OVER, _S.NOT_BUILT, *_STOPPED}
    ),
    _S.READY: frozenset({_S.RUNNING, _S.BLOCKED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.WAITING, _S.GATHERED, _S.HELD, *_DONE}),
    _S.GATHERED: _DONE,
    _S.HELD: frozenset({_S.HELD, _S.FRESH, _S.RESTORED, *_DONE}),
}
"""What may follow a status: a stage whose inputs change while it is prepared waits again. What is not here is final."""


def checked_transition(before: StageStatus, after: StageStatus, name: str) -> StageStatus:
    """Return the next status of a stage; the one gate that every transition passes.

    Raises:
        ValueError: it cannot follow.

    """
    if after not in TRANSITIONS.get(before, ()):
        message = f"BUG: stage {name} cannot go from {before} to {after}"
        raise ValueError(message)
    return after
