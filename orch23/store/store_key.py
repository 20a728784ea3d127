"""Authenticate what is in a store, with the key that is registered for it (ADR 60)."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from orch23.model.digest import Json, canonical_json
from orch23.model.parsing import parse_stored
from orch23.store.json_text import add_checksum, checked_line

_MAC_BYTES = 16


class Keys(NamedTuple):
    """The keys of lines and of the index, empty without one. No index may be used if its key is None.

    `trusts_all`: a line without a MAC counts, too.
    """

    lines: bytes = b""
    sealing: bytes | None = b""
    trusts_all: bool = True


class StoreKey:
    """Makes and checks the MACs of a store. Its keys are read when they are first needed. By default, all counts."""

    def __init__(self, read: Callable[[], Keys] = Keys) -> None:
        """Read nothing yet."""
        self._read = read

    def refresh(self) -> None:
        """Read the keys again when they are next needed: the store may have got one."""
        vars(self).pop("_keys", None)

    @cached_property
    def _keys(self) -> Keys:
        return self._read()

    @property
    def sealing(self) -> bytes:
        """The key of the index.

        Raises:
            LookupError: the index must not be used.
        """
        if self._keys.sealing is None:
            raise LookupError
        return self._keys.sealing

    def encode(self, value: Json) -> bytes:
        """Return one line of JSON with a value, the SHA-256 of its text, and its MAC."""
        return self.line(canonical_json(value))

    def line(self, inner: bytes, *, sign: bool = True) -> bytes:
        """Return the line of a value that is canonical JSON, with its checksum and its MAC."""
        return add_checksum(inner, mac_of(inner, self._keys.lines) if sign else b"")

    def proves(self, inner: bytes, mac: bytes) -> bool:
        """Return whether a build of this user wrote a line."""
        return self._keys.trusts_all or (mac != b"" and mac == mac_of(inner, self._keys.lines))

    def decode(self, data: bytes) -> Json:
        """Return the value of a line.

        Raises:
            ValueError: a byte of it has changed, or no build of this user wrote it.
        """
        inner, mac = checked_line(data)
        if not self.proves(inner, mac):
            message = "was not written by a build of yours"
            raise ValueError(message)
        return parse_stored(inner)


TRUSTED = StoreKey()
"""For what needs no MAC: every line counts, and none has one."""


def mac_of(inner: bytes, key: bytes) -> bytes:
    """Return the MAC of a line in hex; without a key it is empty."""
    return hashlib.blake2b(inner, digest_size=_MAC_BYTES, key=key).hexdigest().encode() if key else b""
