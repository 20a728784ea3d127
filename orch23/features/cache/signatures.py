"""Sign the entries that a build stores in a shared cache, and verify those that it reads (`cache.signed_by`).

Keys are ed25519 (RFC 8032). `cryptography` is an extra: only these functions import it. Without it they raise
ModuleNotFoundError.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from orch23.features.cache.reapi.entries import EntryFile, encode_result, entry_blobs
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Digest, FileEntry, Json, canonical_json, digest_bytes
from orch23.model.errors import ConfigurationError
from orch23.model.language import PUBLIC_KEY_PATTERN
from orch23.model.parsing import from_struct, parse_json, to_struct
from orch23.model.ports import ChunkSource

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


LIBRARY: Final = "cryptography"
"""The distribution that this module needs."""
KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""The names that a key may have."""
_PREFIX: Final = "ed25519:"


class PublicKey(Struct, frozen=True):
    """A public key: 32 bytes. Its name is for people, and not compared."""

    raw: bytes
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Return the key of a line `ed25519:BASE64 NAME`.

        Raises:
            ConfigurationError: it has another form.
        """
        key, _, name = text.partition(" ")
        raw = decode_base64(key.removeprefix(_PREFIX)) if re.match(PUBLIC_KEY_PATTERN, text) else None
        if raw is not None:
            return cls(raw, name)
        hint = "copy the whole line that `orch23 cache key new NAME` prints"
        raise ConfigurationError(Diagnostic("E732", "a public key is not `ed25519:BASE64 NAME`", hint=hint))

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same key, by whatever name."""
        return self.raw == other.raw if isinstance(other, PublicKey) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of the bytes."""
        return hash(self.raw)

    def __str__(self) -> str:
        """Return the line that `parse` reads."""
        key = f"{_PREFIX}{base64.b64encode(self.raw).decode()}"
        return f"{key} {self.name}" if self.name else key

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether a signature is of this message and by this key."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - an extra

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class KeyPair(Struct, frozen=True):
    """A private key with its name. Nothing shows the private key but `to_pem`."""

    _private: "Ed25519PrivateKey"
    public: PublicKey

    @classmethod
    def generate(cls, name: str) -> "KeyPair":
        """Return a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra

        return cls._of(Ed25519PrivateKey.generate(), name)

    @classmethod
    def from_pem(cls, data: bytes, name: str) -> "KeyPair":
        """Return the key of a PEM text (PKCS #8, RFC 8410) without a password.

        Raises:
            ConfigurationError: it has another form.
        """
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - an extra

        try:
            found = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            found = None
        if not isinstance(found, Ed25519PrivateKey):
            # Without the text of the library: it may quote the key.
            message = f"the private key `{name}` is not an ed25519 key in PEM form without a password"
            hint = "create one with `orch23 cache key new NAME`"
            raise ConfigurationError(Diagnostic("E732", message, hint=hint))
        return cls._of(found, name)

    @classmethod
    def _of(cls, private: "Ed25519PrivateKey", name: str) -> "KeyPair":
        return cls(private, PublicKey(private.public_key().public_bytes_raw(), name))

    def to_pem(self) -> bytes:
        """Return the private key as `from_pem` reads it."""
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra

        pem: bytes = self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return pem

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes, always the same for the same message."""
        signature: bytes = self._private.sign(message)
        return signature

    def __repr__(self) -> str:
        """Return the public part: an object may be shown in an error."""
        return f"KeyPair({self.public})"


def decode_base64(text: str) -> bytes | None:
    """Return the bytes of a base64 text in its only form, or None."""
    try:
        data = base64.b64decode(text)
    except ValueError:
        return None
    # The last character may have bits that no byte uses.
    return data if base64.b64encode(data).decode() == text else None


DOMAIN: Final = b"orch23 shared cache entry, version 1\0"
"""The beginning of each signed message: no signature for another purpose can be used for an entry."""
MAX_SIGNATURE_BYTES: Final = 1024
"""The maximum size of a stored signature."""


class SignedEntry(Struct, frozen=True):
    """What a signature is of: an entry of the cache, and the result that it has.

    `kind` is the kind of the entry, such as `action`. `entry` is the digest that it is looked up by, in hex; `result`
    is the digest of the bytes that are stored there.
    """

    # All three: a result must not be moved to another entry, nor an entry of one kind be read as one of another.
    kind: str
    entry: str
    result: Digest

    def message(self) -> bytes:
        """Return the bytes that are signed."""
        result: Json = {"sha256": self.result.sha256, "size_bytes": self.result.size_bytes}
        return DOMAIN + canonical_json({"kind": self.kind, "entry": self.entry, "result": result})


class _Form(Struct, frozen=True, forbid_unknown_fields=True):
    orch23_signature: Literal[1]
    key: str
    signature: str


def sign_entry(pair: KeyPair, entry: SignedEntry) -> bytes:
    """Return the signature of an entry, as it is stored beside it."""
    signature = base64.b64encode(pair.sign(entry.message())).decode()
    # Without the name of the key, which would be a claim of the signer.
    return canonical_json(from_struct(_Form(1, str(PublicKey(pair.public.raw)), signature))) + b"\n"


def signature_fault(data: bytes | None, entry: SignedEntry, signed_by: Sequence[PublicKey]) -> Diagnostic | None:
    """Return why a stored signature does not show that one of these keys signed the entry; None if it does.

    `data` is None if there is no signature. Nothing in the data is believed before it is verified.
    """
    why = _fault(data, entry, signed_by)
    if why is None:
        return None
    message = f"the result {entry.entry[:12]} of the shared cache {why}"
    hint = "the stage runs; let a machine with one of the keys in `cache.signed_by` write the result, or add its key"
    return Diagnostic("W731", message, None, hint, Severity.WARNING)


def _fault(data: bytes | None, entry: SignedEntry, signed_by: Sequence[PublicKey]) -> str | None:
    if data is None:
        return "has no signature"
    unreadable = "has a signature that cannot be read"
    try:
        form = to_struct(parse_json(data, max_bytes=MAX_SIGNATURE_BYTES, max_depth=2), _Form)
        claimed = PublicKey.parse(form.key)
    except (ValueError, ConfigurationError):
        return unreadable
    signature = decode_base64(form.signature)
    if signature is None:
        return unreadable
    known = next((key for key in signed_by if key == claimed), None)
    if known is None:
        # The claimed key is shown, so that the user can compare it; it has a fixed form.
        return f"is signed by {PublicKey(claimed.raw)}, which `cache.signed_by` does not list"
    if not known.verify(entry.message(), signature):
        return f"has a signature that {known} did not make for it"
    return None


SIGNATURE = "signature.json"
"""The file of an entry that has its signature. It is of the entry without this file."""


class Signatures(Struct, frozen=True):
    """The keys of a build: `signed_by` are those whose signatures count, `pair` is the one of them that the user has.

    If there are no keys, nothing is signed, and signatures are not looked at.
    """

    signed_by: Sequence[PublicKey] = ()
    pair: KeyPair | None = None

    @property
    def can_sign(self) -> bool:
        """Whether entries that this build stores will count."""
        return not self.signed_by or self.pair is not None

    def signed(self, kind: str, action: Digest, files: Mapping[str, FileEntry | bytes]) -> dict[str, FileEntry | bytes]:
        """Return the files of an entry with its signature.

        Raises:
            ValueError: these cannot be the files of an entry.
        """
        if self.pair is None:
            return dict(files)
        return {**files, SIGNATURE: sign_entry(self.pair, _signed_entry(kind, action, files))}

    def fault(
        self, kind: str, action: Digest, files: Mapping[str, EntryFile], text: bytes, name: str
    ) -> Diagnostic | None:
        """Return why an entry does not count; None if it does.

        `text` has the bytes of its file `name`, which the server may have left out of the entry.
        """
        if not self.signed_by:
            return None
        signature = files[SIGNATURE].contents if SIGNATURE in files else None
        others: dict[str, FileEntry | bytes] = {
            path: file.entry for path, file in files.items() if path not in (SIGNATURE, name)
        }
        return signature_fault(signature, _signed_entry(kind, action, {**others, name: text}), self.signed_by)


def small_blobs(kind: str, version: int, key: str, files: Mapping[str, FileEntry | bytes]) -> dict[Digest, ChunkSource]:
    """Return the blobs of an entry that are bytes: those of its action, and its own files."""
    own = {digest_bytes(one): one for one in files.values() if isinstance(one, bytes)}
    return {digest: partial(tuple, (data,)) for digest, data in {**entry_blobs(kind, version, key), **own}.items()}


def _signed_entry(kind: str, action: Digest, files: Mapping[str, FileEntry | bytes]) -> SignedEntry:
    return SignedEntry(kind, action.sha256, digest_bytes(encode_result(files)))
