"""Keys for signatures (ed25519, RFC 8032) and their text forms.

`cryptography` is an extra: only these functions import it. Without it they raise ModuleNotFoundError.
"""

import base64
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.language import PUBLIC_KEY_PATTERN

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
