"""Recognize forbidden addresses, in all forms in which a host can be written."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

# Addresses of cloud metadata services, which serve the credentials of a machine, beyond the link-local ones.
_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))

# IPv6 networks whose addresses lead to an IPv4 address, and the number of bits to the right of it.
_EMBEDDING = (
    (IPv6Network("::/96"), 0),  # IPv4-compatible
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("64:ff9b:1::/48"), 0),  # NAT64, local use
    (IPv6Network("2002::/16"), 80),  # 6to4
)

_IPV4_BITS = 0xFFFF_FFFF
_NUMBER = re.compile(r"0x(?P<hex>[0-9a-f]*)|(?P<digits>[0-9]+)", re.IGNORECASE)
_MOST_PARTS = 4
_MOST_DIGITS = 11  # of the octal form of a whole address


def forbidden_address(host: str) -> Address | None:
    """Return the address of a host if no step may connect to it, else None. A name is not looked up."""
    addresses = (one for address in _addresses_of(host) for one in _with_embedded(address))
    for one in addresses:
        if one.is_link_local or one in _METADATA or one.is_multicast or one.is_unspecified:
            return one
    return None


def is_address(host: str) -> bool:
    """Return whether a host is an address, and not a name."""
    return next(_addresses_of(host), None) is not None


def _addresses_of(host: str) -> Iterator[Address]:
    plain = host.rstrip(".").partition("%")[0]
    try:
        yield ip_address(plain)
    except ValueError:
        # Programs read `169.0254.1.1` differently: a leading zero means octal to inet_aton, and nothing to others.
        for base_of_zero in (8, 10):
            address = _inet_aton(plain, base_of_zero)
            if address is not None:
                yield address


def _inet_aton(host: str, base_of_zero: int) -> IPv4Address | None:
    """Return the address of one to four numbers, of which the last one fills the rest; None for other texts."""
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
    # A connection to such an IPv6 address ends at the IPv4 address that is part of it.
    yield address
    if isinstance(address, IPv6Address):
        for network, shift in _EMBEDDING:
            if address in network:
                yield IPv4Address(int(address) >> shift & _IPV4_BITS)
