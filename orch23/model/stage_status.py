"""How a stage ends in a run. The table of the enum is the one place that says what follows from a status."""

from enum import StrEnum
from typing import Self


class StageStatus(StrEnum):
    """The end of a stage, as the event `stage_finished` and `state.json` write it.

    `has_result`: there is a result of today's key. `is_green`: the stage is up to date. `lets_pass`: what depends on
    it can run. `is_waited_for`: its promotion group waits for it. `is_idle`: nothing was done for it.
    """

    has_result: bool
    is_green: bool
    lets_pass: bool
    is_waited_for: bool
    is_idle: bool

    #             written        result green  pass   waited idle
    BUILT = "built", True, True, True, False, False
    RESTORED = "restored", True, True, True, False, False
    VERIFIED = "verified", True, True, True, False, False
    FRESH = "fresh", True, True, True, False, True
    SKIPPED = "skipped", False, True, True, False, True
    PASSED_OVER = "passed_over", False, False, True, False, False
    NOT_BUILT = "not_built", False, False, False, False, False
    EDITED = "edited", False, False, False, True, False
    HELD = "held", False, False, False, True, False
    FAILED = "failed", False, False, False, True, False
    BLOCKED = "blocked", False, False, False, True, False
    CANCELLED = "cancelled", False, False, False, True, False

    def __new__(
        cls,
        written: str,
        has_result: bool,  # noqa: FBT001 - likewise
        is_green: bool,  # noqa: FBT001
        lets_pass: bool,  # noqa: FBT001
        is_waited_for: bool,  # noqa: FBT001
        is_idle: bool,  # noqa: FBT001
    ) -> Self:
        """Make a member of a row of the table."""
        member = str.__new__(cls, written)
        member._value_ = written
        member.has_result, member.is_green, member.lets_pass = has_result, is_green, lets_pass
        member.is_waited_for, member.is_idle = is_waited_for, is_idle
        return member
