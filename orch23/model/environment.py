"""The identity of the environment that the result of a stage depends on."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from orch23.model.digest import digest_json

Tier: TypeAlias = Literal["none", "B", "A"]
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
"""How much the sandbox isolated the processes of a result, the least first (ADR 14)."""
_TIERS: Final[Mapping[str, Tier]] = {"namespaces": "A", "bubblewrap": "A", "landlock": "B"}
PLATFORM_HINT = "state what all machines that share results have in common: `cache: {platform: NAME}`"
"""A hint for a stage whose environment has no identity."""


class EnvironmentIdentity(Struct, frozen=True, kw_only=True):
    """What a result depends on beside its stage key: the system, programs and installed packages, by name.

    The values of `parts` are texts or digests, without paths of this machine. With `faults` the environment has no
    identity, so the result must not be shared; each is a clause such as "`app` is installed in editable mode".
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return the sha256, in hex, of the parts: equal environments have equal digests.

        Raises:
            ValueError: the environment has no identity.
        """
        if self.faults:
            message = f"BUG: an environment without an identity: {self.faults[0]}"
            raise ValueError(message)
        return digest_json(dict(self.parts))


def tier_of(sandboxes: Iterable[str]) -> Tier:
    """Return the lowest tier of the sandboxes that processes ran in, by their names; `A` if no process ran."""
    return min((_TIERS.get(name, "none") for name in sandboxes), key=TIERS.index, default="A")
