"""Spell a secret as programs do that print or send it: plain, escaped, percent-encoded, in hex, in base64."""

import binascii
import json
import math
import string
from collections.abc import Iterator

_BITS, _SIX = 8, 6
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}_.-~".encode())
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_URL_SAFE = str.maketrans("+/", "-_")


def spellings(value: str) -> tuple[str, ...]:
    """Return every spelling of a value, each once. Of base64 it is the part that no neighbour can change."""
    data = value.encode("utf-8", "surrogateescape")
    found = (value, *_escaped(value), *_percent(data), *_numbered(value, data), *_base64(data))
    return tuple(dict.fromkeys(one for one in found if one))


def _escaped(value: str) -> Iterator[str]:
    """Give it as it stands in JSON, in JSON inside of JSON, in Python and in HTML."""
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    yield from (repr(value)[1:-1], value.translate(_HTML))


def _percent(data: bytes) -> Iterator[str]:
    """Give it as it stands in a URL: with what must be escaped escaped, with slashes, with plus signs; or all of it."""
    for kept in (_UNRESERVED, _UNRESERVED | frozenset(b"/"), frozenset[int]()):
        for digits in ("02X", "02x"):
            text = "".join(chr(byte) if byte in kept else f"%{byte:{digits}}" for byte in data)
            yield from (text, text.replace("%20", "+"))


def _numbered(value: str, data: bytes) -> Iterator[str]:
    """Give it as the numbers of its characters or bytes."""
    wide = value.encode("utf-16-be", "surrogatepass")
    units = [wide[at : at + 2].hex() for at in range(0, len(wide), 2)]
    for pairs in (units, [unit.upper() for unit in units]):
        yield from ("".join(f"{lead}u{pair}" for pair in pairs) for lead in ("\\", "\\\\"))
    for text in (data.hex(), data.hex(":"), data.hex(" "), data.hex("-")):
        yield from (text, text.upper())
    yield from (
        "".join(f"{lead}x{byte:{digits}}" for byte in data) for lead in ("\\", "\\\\") for digits in ("02x", "02X")
    )


def _base64(data: bytes) -> Iterator[str]:
    """Give both alphabets at the three places at which a value can begin among the bytes around it."""
    for shift in range(3):
        whole = binascii.b2a_base64(bytes(shift) + data, newline=False).decode("ascii")
        first, last = math.ceil(shift * _BITS / _SIX), (shift + len(data)) * _BITS // _SIX
        yield from (whole[first:last], whole[first:last].translate(_URL_SAFE))
