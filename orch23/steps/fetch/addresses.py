"""Know the addresses that no step may reach, in all forms in which a host can be written."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
"""Addresses that are not link-local and at which clouds serve the credentials of a machine."""

_EMBEDDING = (
    (IPv6Network("::/96"), 0),  # IPv4-compatible
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("64:ff9b:1::/48"), 0),  # NAT64, local use
    (IPv6Network("2002::/16"), 80),  # 6to4
)
"""IPv6 networks whose addresses lead to an IPv4 address, and the number of bits to the right of it."""

_IPV4_BITS = 0xFFFF_FFFF
_NUMBER = re.compile(r"0x(?P<hex>[0-9a-f]*)|(?P<digits>[0-9]+)", re.IGNORECASE)
_MOST_PARTS = 4
_MOST_DIGITS = 11  # of the octal form of a whole address


def forbidden_address(host: str) -> Address | None:
    """Return the address that a host is written as if no step may reach it, else None. Nothing is looked up."""
    for address in _addresses_of(host):
        for one in _with_embedded(address):
            if one.is_link_local or one in _METADATA or one.is_multicast or one.is_unspecified:
                return one
    return None


def is_address(host: str) -> bool:
    """Return whether a host is written as an address, and not as a name."""
    return next(_addresses_of(host), None) is not None


def _addresses_of(host: str) -> Iterator[Address]:
    """Yield the addresses that a host can be read as: nothing for a name.

    Programs differ in how they read `169.0254.1.1`: a zero in front means octal to inet_aton, and nothing to others.
    """
    plain = host.rstrip(".").partition("%")[0]
    try:
        yield ip_address(plain)
    except ValueError:
        for base_of_zero in (8, 10):
            address = _inet_aton(plain, base_of_zero)
            if address is not None:
                yield address


def _inet_aton(host: str, base_of_zero: int) -> IPv4Address | None:
    """Return the address of one to four numbers, of which the last one fills what is left; None for other texts."""
    parts = host.split(".")
    numbers = [_number(part, base_of_zero) for part in parts]
    known = [number for number in numbers if number is not None]
    if len(parts) > _MOST_PARTS or len(known) < len(parts):
        return None
    *first, last = known
    free = 8 * (_MOST_PARTS - len(first))
    if any(number > 0xFF for number in first) or last >= 1 << free:  # noqa: PLR2004 - a byte
        return None
    return IPv4Address(sum(number << (24 - 8 * place) for place, number in enumerate(first)) + last)


def _number(part: str, base_of_zero: int) -> int | None:
    match = _NUMBER.fullmatch(part)
    if match is None:
        return None
    digits, base = match["digits"], base_of_zero if part.startswith("0") else 10
    if digits is None:
        digits, base = match["hex"], 16
    digits = digits.lstrip("0") or "0"
    try:
        return int(digits, base) if len(digits) <= _MOST_DIGITS else None
    except ValueError:  # an 8 or a 9 in an octal number
        return None


def _with_embedded(address: Address) -> Iterator[Address]:
    """Yield an address, and the IPv4 addresses that an IPv6 address leads to."""
    yield address
    if isinstance(address, IPv6Address):
        for network, shift in _EMBEDDING:
            if address in network:
                yield IPv4Address(int(address) >> shift & _IPV4_BITS)
