"""Recorded responses of models in a shared cache, as a source of the engine (ADR 57)."""

from orch23.decide.shared_responses import MAX_RESPONSE_BYTES
from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import decode_result, encode_result, entry_digest
from orch23.features.cache.signatures import Signatures, small_blobs

KIND, VERSION = "response", 1
"""The kind of an entry that is a recorded response, and the version of its format."""
_EXCHANGE = "exchange.json"


class CacheResponses:
    """The recorded responses in a shared cache: a `ResponseSource`."""

    def __init__(self, client: CacheClient, signatures: Signatures) -> None:
        """Look up nothing yet."""
        self._client, self._signatures = client, signatures

    @property
    def is_signing(self) -> bool:
        """Whether new entries are signed, and may replace one that does not count."""
        return self._signatures.pair is not None

    def find(self, fingerprint: str) -> bytes | None:
        """Return the exchange of a request, if its entry counts by its signature."""
        action = entry_digest(KIND, VERSION, fingerprint)
        data = self._client.entry(action)
        if data is None:
            self._client.warn_of(action)
            return None
        try:
            files = decode_result(data)
            file = files[_EXCHANGE]
        except (ValueError, KeyError):
            self._client.reject(action)
            return None
        text = file.contents or self._client.get(file.entry.digest, MAX_RESPONSE_BYTES) or b""
        self._client.warn_of(file.entry.digest)
        if self._signatures.fault(KIND, action, files, text, _EXCHANGE):
            self._client.reject(action)
            return None
        return text

    def reject(self, fingerprint: str) -> None:
        """Let an upload replace an entry."""
        self._client.reject(entry_digest(KIND, VERSION, fingerprint))

    def offer(self, fingerprint: str, text: bytes) -> None:
        """Store an exchange in the background."""
        action = entry_digest(KIND, VERSION, fingerprint)
        files = self._signatures.signed(KIND, action, {_EXCHANGE: text})
        self._client.upload(action, encode_result(files), small_blobs(KIND, VERSION, fingerprint, files))
