"""Ranges of versions, as Python writes them (`>=22,<24`) and as npm does (`^22.1`, `~1.2`, `22.x`)."""

from typing import TYPE_CHECKING

from orch23.model.patterns import lazy_pattern

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

FORMS = "write a range such as `>=22`, `>=20,<23`, `~=1.2`, `^22.1`, `~1.2.3` or `22`"
_PART = lazy_pattern(r"(\^|~=|~|>=|<=|==|=|!=|>|<|)\s*v?(\d{1,9}(?:\.\d{1,9}){0,5})(\.[x*])?(?![^\s,])[\s,]*")
_LEADING = lazy_pattern(r"\d+(?:\.\d+)*")


def parse_range(text: str) -> "SpecifierSet":
    """Return a range of versions.

    Raises:
        ValueError: it is not one, such as `latest` or `20 || 22`.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - few tools have a version

    found, rest = list[str](), text.strip()
    while rest or not found:
        if (part := _PART.match(rest)) is None or (part[3] and part[1] not in {"", "=", "==", "!="}):
            message = f"`{text}` is not a range of versions"
            raise ValueError(message)
        found.append(_specifier(part[1], part[2]))
        rest = rest[part.end() :]
    return SpecifierSet(",".join(found))


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
    numbers = [int(one) for one in version.split(".")]
    if sign in {"^", "~"}:
        first = next((place for place, one in enumerate(numbers) if one), len(numbers) - 1)
        place = first if sign == "^" else min(1, len(numbers) - 1)
        upper = [*numbers[:place], numbers[place] + 1]
        return f">={version},<{'.'.join(map(str, upper))}"
    if sign == "~=" and len(numbers) == 1:
        return f">={version}"
    return f"{sign if sign == '!=' else '=='}{version}.*" if sign in {"", "=", "==", "!="} else f"{sign}{version}"
