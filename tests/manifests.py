"""Manifests that are the same on every machine, for proofs that keys stay as they are."""

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

_TEXTS = (
    "",
    "kind",
    "ä",
    "日本",
    "\u2028",
    "\x7f",
    'a "b" \\c',
    "e\u0301",
    "\U0001f600",
    "\n\t\r\x00",
    "</script>",
    "~",
)
_FLOATS = (1e-7, 1e-07 / 3, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 1e16, 1e15, 123456789012345680.0, 0.1, 2.5e-5)


class _Numbers:
    """Numbers from 0 to 2**64 - 1, always the same ones of a seed: random.Random may change between versions."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def next(self) -> int:
        self._count += 1
        data = hashlib.sha256(f"{self._seed} {self._count}".encode()).digest()
        return int.from_bytes(data[:8], "big")

    def below(self, limit: int) -> int:
        return self.next() % limit


def manifests(count: int) -> Iterator[dict[str, Any]]:
    """Give manifests with floats, large integers, text that is not ASCII, and nested lists and objects."""
    for seed in range(count):
        numbers = _Numbers(seed)
        yield {_text(numbers): _value(numbers, 3) for _ in range(1 + numbers.below(8))}


def _value(numbers: _Numbers, depth: int) -> Any:
    kind = numbers.below(8 if depth else 6)
    if kind == 0:
        return (None, True, False)[numbers.below(3)]
    if kind == 1:
        return numbers.below(1 << (1 + numbers.below(63))) * (-1 if numbers.below(2) else 1)
    if kind == 2:
        return numbers.next() ** (2 + numbers.below(8)) * (-1 if numbers.below(2) else 1)
    if kind == 3:
        return _FLOATS[numbers.below(len(_FLOATS))]
    if kind == 4:
        found = struct.unpack(">d", numbers.next().to_bytes(8, "big"))[0]
        return found if found - found == 0 else 0.5  # neither NaN nor infinite
    if kind == 5:
        return _text(numbers)
    if kind == 6:
        return [_value(numbers, depth - 1) for _ in range(numbers.below(4))]
    return {_text(numbers): _value(numbers, depth - 1) for _ in range(numbers.below(4))}


def _text(numbers: _Numbers) -> str:
    if numbers.below(2):
        return _TEXTS[numbers.below(len(_TEXTS))]
    characters = (numbers.below(0x110000) for _ in range(numbers.below(6)))
    return "".join(chr(one) for one in characters if not 0xD800 <= one <= 0xDFFF)
