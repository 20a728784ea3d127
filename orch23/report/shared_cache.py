"""Write what a run did with a shared cache: a clause for each count."""

from decimal import Decimal

from orch23.model.event import SharedCacheUsed
from orch23.model.text import format_duration, format_money, parse_amount
from orch23.report.values import format_size, pluralize

_CENT = Decimal("0.01")
_SECOND = 1.0
_SHOWN_S = 0.05
"""Less is shown as 0 seconds."""


def shared_cache_text(used: SharedCacheUsed, not_stored: str = "") -> str:
    """Return the counts of a run that are not 0, and what they saved; `not_stored` names stages."""
    return ", ".join((*_counts(used, not_stored), *_saved(used)))


def shared_cache_clauses(used: SharedCacheUsed) -> tuple[str, ...]:
    """Return a clause for each count of a run that is not 0, and how long it waited for the cache."""
    refused = [f"{used.refused:,} not stored because of secrets"] if used.refused else []
    waited = [f"waited {format_duration(used.waited_s)}"] if used.waited_s >= _SHOWN_S else []
    return (*_counts(used), *refused, *waited, *_saved(used))


def _counts(used: SharedCacheUsed, not_stored: str = "") -> list[str]:
    names = f" ({not_stored})" if not_stored else ""
    parts = [f"{used.restored:,} restored ({format_size(used.down_bytes)})"] if used.restored else []
    parts += [f"{used.confirmed:,} confirmed"] if used.confirmed else []
    parts += [pluralize(used.responses, "response")] if used.responses else []
    parts += [f"{used.missing:,} not found"] if used.missing else []
    parts += [f"{used.stored:,} stored ({format_size(used.up_bytes)})"] if used.stored else []
    parts += [f"{used.not_stored:,} not stored{names}"] if used.not_stored else []
    return parts


def _saved(used: SharedCacheUsed) -> list[str]:
    """Return the time and the money that restored results had taken; nothing below a second and a cent."""
    amount = parse_amount(used.saved) or Decimal(0)
    saved = [format_duration(used.saved_s)] if used.saved_s >= _SECOND else []
    saved += [format_money(amount)] if amount >= _CENT else []
    return [f"saved {' and '.join(saved)}"] if saved else []
