"""Signatures of entries of a shared cache: which bytes are signed, how a signature is stored, and its check."""

import base64
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from orch23.features.cache.signing.keys import KeyPair, PublicKey, decode_base64
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Digest, Json, canonical_json
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import from_struct, parse_json, to_struct

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
