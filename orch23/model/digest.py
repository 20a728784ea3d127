"""Digests of bytes, files and JSON values; the canonical form of JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from orch23.model.patterns import lazy_pattern
from orch23.snapshot.signatures import sha256, sha256_hex

try:  # `hashlib` loads OpenSSL
    from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from hashlib import sha1

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json: TypeAlias = Any  # msgspec decodes no type alias that refers to itself


_SHA256_DIGITS = 64
_MANY = 1_000


class Digest(Struct, frozen=True, order=True):
    """The identity of some bytes: sha256 in hex and the size in bytes, as in Bazel's REAPI v2."""

    sha256: str
    size_bytes: int

    def __str__(self) -> str:
        """Return the hex form, as messages and manifests show it."""
        return self.sha256


class FileEntry(Struct, frozen=True, order=True):
    """One file as a build sees it: its bytes and its executable bit, without times and owner.

    `link` is the path of the file from the root if it was reached through links, else empty; only inputs have it.
    """

    digest: Digest
    executable: bool = False
    # With the path of the file, a link that is set to another file makes the stage stale (ADR 27).
    link: str = ""

    def __str__(self) -> str:
        """Return the form used in manifests: the hex digest, `+x` for an executable, and where a link leads to."""
        # The text of most files is the digest itself, not a copy of it.
        content = f"{self.digest.sha256}+x" if self.executable else self.digest.sha256
        return f"{content} -> {self.link}" if self.link else content


def is_script(data: bytes) -> bool:
    """Return whether a file names its interpreter in its first line; `#![` is an attribute of Rust."""
    return data.startswith(b"#!") and not data.startswith(b"#![")


def digest_bytes(data: bytes) -> Digest:
    """Return the digest of some bytes."""
    return Digest(sha256_hex(data), len(data))


def canonical_json(value: Json) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no spaces, UTF-8. Equal values have equal bytes.

    Raises:
        ValueError: the value contains NaN, an infinity or a lone surrogate.
        TypeError: the value contains something that is not JSON, such as bytes.
    """
    if isinstance(value, dict) and (
        len(value) >= _MANY or [one for one in value.values() if isinstance(one, dict) and len(one) >= _MANY]
    ):
        # msgspec writes texts, not numbers, as `json` does, in a fifth of the time. Its own sorting is quadratic if
        # nearly all names are sorted.
        names = sorted(value)
        ordered = value if [*value] == names else {name: value[name] for name in names}
        raw = {name: msgspec.Raw(canonical_json(one)) for name, one in value.items() if type(one) is not str}
        return msgspec.json.encode({**ordered, **raw})
    return _CANONICAL.encode(value).encode("utf-8")


def digest_json(value: Json) -> str:
    """Return the sha256, in hex, of a value's canonical JSON."""
    return sha256_hex(canonical_json(value))


def is_identical(one: Json | Struct, other: Json | Struct) -> bool:
    """Return whether two values are equal, have the same types (1 is not 1.0 or True), and the same order of keys."""
    try:
        return msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other)
    except (TypeError, UnicodeError, OverflowError):  # a lone surrogate, or a number of more than 64 bits
        return False


def git_blob_id(data: bytes, like: str = "") -> str:
    """Return the id that git gives to some bytes: SHA-1, or SHA-256 in a repository whose ids are as long as `like`."""
    # git fixes the algorithm; Pythons that are built for FIPS refuse SHA-1 that is used for security.
    head = b"blob %d\0" % len(data)
    hasher = sha256(head) if len(like) == _SHA256_DIGITS else sha1(head, usedforsecurity=False)
    hasher.update(data)
    return hasher.hexdigest()


_LFS = lazy_pattern(
    rb"version https?://(?:(?:git-lfs|hawser)\.github\.com/spec/v1|git-media\.io/v/2)\r?\n(?:ext-.*\n)*"
    rb"oid sha256:([0-9a-f]{64})\r?\nsize ([0-9]{1,18})\r?\n?"
)


def lfs_digest(data: bytes) -> Digest | None:
    """Return the digest of the file for which some bytes are a pointer of Git LFS, or None."""
    found = _LFS.fullmatch(data) if data.startswith(b"version http") else None
    return None if found is None else Digest(found[1].decode(), int(found[2]))


def json_builtin(value: object) -> object:
    """Return a mapping or a sequence of another type as a dict or a list, the types that encoders of JSON know.

    Raises:
        TypeError: the value is not JSON; bytes are not, although they are a sequence.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return list(value)
    message = f"BUG: {type(value).__name__} is not a JSON value"
    raise TypeError(message)


# Not msgspec: it writes 1e-7 where `json` writes 1e-07, and every key with such a number would change. The search for
# cycles, which values from texts cannot have, takes more than half of the time.
_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    default=json_builtin,
)
