"""Ranges of versions, as Python writes them (`>=22,<24`) and as npm does (`^22.1`, `~1.2`, `22.x`)."""

from typing import TYPE_CHECKING

from orch23.model.patterns import lazy_pattern

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

FORMS = "write a range such as `>=22`, `>=20,<23`, `~=1.2`, `^22.1`, `~1.2.3` or `22`"
_PART = lazy_pattern(r"(\^|~=|~|>=|<=|==|=|!=|>|<|)\s{0,9}v?(\d{1,9}(?:\.\d{1,9}){0,5})(\.[x*])?(?![^\s,])[\s,]*")
_WHOLE = ("", "=", "==", "!=")
_LEADING = lazy_pattern(r"\d+(?:\.\d+)*")


def parse_range(text: str) -> "SpecifierSet":
    """Return a range of versions.

    Raises:
        ValueError: it is not one, such as `latest` or `20 || 22`.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - few tools have a version

    found = _PART.findall(text)
    if not found or _PART.sub("", text).strip() or any(rest and sign not in _WHOLE for sign, _, rest in found):
        message = f"`{text}` is not a range of versions"
        raise ValueError(message)
    return SpecifierSet(",".join(_specifier(sign, version) for sign, version, _ in found))


def is_in_range(version: str, text: str) -> bool | None:
    """Return whether a version is in a range; None if it is not exact enough: 22 is or is not at least 22.1."""
    numbers, wanted = _LEADING.match(version), parse_range(text)
    if numbers is None:
        return None
    # `22` is any of its versions.
    if any(one.version.removesuffix(".*").startswith(f"{numbers[0]}.") for one in wanted if "." not in numbers[0]):
        return None
    return wanted.contains(numbers[0])


def _specifier(sign: str, version: str) -> str:
    parts = version.split(".")
    if sign in {"^", "~"}:
        first = next((place for place, one in enumerate(parts, 1) if int(one)), len(parts))
        return f">={version},=={'.'.join(parts[: first if sign == '^' else 2])}.*"
    if sign in _WHOLE:
        return f"{'!=' if sign == '!=' else '=='}{version}.*"
    return f">={version}" if sign == "~=" and len(parts) == 1 else f"{sign}{version}"
