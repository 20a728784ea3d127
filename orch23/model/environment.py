"""The identity of the environment that the result of a stage depends on."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.digest import digest_json

_HEX_DIGITS = 64
_SHOWN_DIGITS = 12
PLATFORM_HINT = "state what all machines that share results have in common: `cache: {platform: NAME}`"
"""A hint for a stage whose environment has no identity."""


class EnvironmentIdentity(Struct, frozen=True, kw_only=True):
    """What a result depends on beside its stage key: the system, programs and installed packages, by name.

    The values of `parts` are texts or digests, without paths of this machine. `shown` are values that describe a part
    better than its digest; they are not part of the identity. With `faults` the environment has no identity, so the
    result must not be shared; each is a clause such as "`app` is installed in editable mode".
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def is_shareable(self) -> bool:
        """Return whether the environment has an identity."""
        return not self.faults

    def digest(self) -> str:
        """Return the sha256, in hex, of the parts: equal environments have equal digests.

        Raises:
            ValueError: the environment has no identity.

        """
        if self.faults:
            message = f"BUG: an environment without an identity: {self.faults[0]}"
            raise ValueError(message)
        return digest_json(dict(self.parts))

    def describe(self) -> str:
        """Return the parts in one line, or why the result is not shared."""
        if self.faults:
            return f"not shared: {'; '.join(self.faults)} ({PLATFORM_HINT})"
        if not self.parts:
            return "does not depend on the machine"
        return ", ".join(f"{name} {self.shown.get(name) or _shortened(value)}" for name, value in self.parts.items())


def _shortened(value: str) -> str:
    return value[:_SHOWN_DIGITS] if len(value) == _HEX_DIGITS else value
