"""Set what a process of a step and all that it starts inherit: limits, and that the kernel kills them first."""

import contextlib
import resource

from orch23.model.step_limits import StepLimits

_KILLED_FIRST = b"1000"


def restrain(pid: int, limits: StepLimits) -> None:
    """Restrain a process from outside; it may have ended.

    A function between fork and exec could do so earlier, but is not safe in a program with threads.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
        file.write(_KILLED_FIRST)
    if limits.address_space is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.address_space, limits.address_space))
