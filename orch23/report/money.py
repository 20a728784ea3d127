"""Money as people read it."""

from decimal import ROUND_HALF_UP, Decimal

_CENTS = Decimal("0.01")
_FINE = Decimal("0.0001")


def money(amount: Decimal) -> str:
    """Return US dollars: `$1.00`, `$0.0347`; what is too little to show is said to be so, and never `$0`."""
    if amount == 0:
        return "$0"
    if amount < _FINE:
        return f"under ${_FINE}"
    if amount >= 1:
        return f"${amount.quantize(_CENTS, ROUND_HALF_UP):,}"
    fine = str(amount.quantize(_FINE, ROUND_HALF_UP))
    while fine.endswith("0") and len(fine.partition(".")[2]) > len("00"):
        fine = fine[:-1]
    return f"${fine}"
