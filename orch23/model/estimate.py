"""What a stage may take, said before it runs: calls, tokens, dollars, time. None stands for what is not known."""

from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

Price: TypeAlias = Literal["none", "free", "known", "unknown"]
"""What asking costs: nobody is asked, nothing, what the price table says, or nobody knows."""


class Calls(Struct, frozen=True):
    """How many requests a stage may make: at least, and at most where that is known."""

    least: int = 0
    most: int | None = 0


class Estimate(Struct, frozen=True, kw_only=True):
    """What one stage may take. Tokens and `likely_cost` are those of its first request, if a provider answers it.

    `answers` counts the earlier answers that the tokens rest on, `runs` the earlier runs of which `duration_s` is the
    median. `least_cost` is that of a run without a second attempt, 0 where nobody may be asked at all; `most_cost` is
    a bound. `saved_calls` are requests that the transcripts answer for sure, `saved_cost` is what those had cost.
    """

    calls: Calls = Calls()
    price: Price = "none"
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    answers: int = 0
    least_cost: Decimal | None = Decimal(0)
    likely_cost: Decimal | None = Decimal(0)
    most_cost: Decimal | None = Decimal(0)
    saved_calls: int = 0
    saved_cost: Decimal | None = Decimal(0)
    duration_s: float | None = None
    runs: int = 0

    @property
    def may_ask(self) -> bool:
        """Say whether a provider may be asked."""
        return self.calls.most != 0


NOTHING = Estimate()
