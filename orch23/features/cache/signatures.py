"""Sign the entries that a build stores in a shared cache, and verify those that it reads (`cache.signed_by`)."""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from orch23.features.cache.reapi.entries import EntryFile, encode_result, entry_blobs
from orch23.features.cache.signing.entries import SignedEntry, sign_entry, signature_fault
from orch23.features.cache.signing.keys import KeyPair, PublicKey
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.ports import ChunkSource

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
