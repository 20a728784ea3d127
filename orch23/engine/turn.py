"""One attempt of a stage: what it goes on from, and what it leaves."""

from msgspec import Struct

from orch23.engine.failure import Failure
from orch23.engine.running import Files


class Turn(Struct, frozen=True, kw_only=True):
    """What an attempt goes on from: the stage's own files, the exchanges behind them, the failure and answer before."""

    attempt: int
    start: Files
    laid: tuple[str, ...] = ()
    failure: Failure | None = None
    previous: str | None = None


class Pass(Struct, frozen=True):
    """What one attempt left: the tree of the stage's own files, the exchanges it rests on, what is wrong with it.

    `written` are the paths that the responses behind the tree wrote, also where the bytes are those of the base. `left`
    is what a program had written when it failed: no attempt goes on from it, but `on_failure: keep` promotes it.
    """

    tree: Files
    exchanges: tuple[str, ...] = ()
    failure: Failure | None = None
    answer: str | None = None
    proposal: str | None = None
    took_s: float = 0.0
    written: frozenset[str] = frozenset()
    left: Files | None = None
