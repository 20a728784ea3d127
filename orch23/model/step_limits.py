"""How much of the machine a process of a stage, with all that it starts, may use."""

from msgspec import Struct


class StepLimits(Struct, frozen=True, kw_only=True):
    """Limits while a process and its descendants run; sizes are in bytes.

    `memory` is what they use together. `files` and `disk` are what the sandbox directory holds, with temporary files.
    `address_space` is of each process; None sets no limit.
    """

    memory: int = 8 << 30
    processes: int = 4096
    files: int = 1_000_000
    disk: int = 8 << 30
    address_space: int | None = None


DEFAULT_LIMITS = StepLimits()
