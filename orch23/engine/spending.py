"""What the answers of a stage took: calls, tokens, money, and what its recordings saved."""

from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.llm import Response
from orch23.providers.adapter import BY_HAND


class Spent(Struct, frozen=True, kw_only=True):
    """Sums over the answers of one stage. Tokens are those of all answers, costs are in US dollars.

    `cost` is what was paid now, `saved` what the recorded answers had cost; `unpriced` says that some now had no price.
    `by_hand` counts the answers that a person wrote: no model was ever asked for them.
    """

    calls: int = 0
    recorded: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)
    unpriced: bool = False
    by_hand: int = 0

    def plus(self, response: Response) -> "Spent":
        """Return the sums with one answer more."""
        cost = Decimal(response.cost) if response.cost is not None else Decimal(0)
        return replace(
            self,
            calls=self.calls + (not response.replayed),
            recorded=self.recorded + response.replayed,
            input_tokens=self.input_tokens + response.usage.input_tokens,
            output_tokens=self.output_tokens + response.usage.output_tokens,
            cost=self.cost + (Decimal(0) if response.replayed else cost),
            saved=self.saved + (cost if response.replayed else Decimal(0)),
            unpriced=self.unpriced or (response.cost is None and not response.replayed),
            by_hand=self.by_hand + (response.provenance == BY_HAND),
        )


NOTHING = Spent()
"""Of every stage that asked no model."""
