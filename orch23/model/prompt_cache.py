"""How an llm step uses the prompt cache of a vendor."""

from typing import Literal

from msgspec import Struct


class CachePolicy(Struct, frozen=True, omit_defaults=True):
    """How the vendor's prompt cache is used: for how long, and whether for text that several stages share."""

    ttl: Literal["5m", "1h"] = "5m"
    share: bool = True
