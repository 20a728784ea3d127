"""Use recorded responses of models in a shared cache, and store new ones (ADR 57).

A response of the cache is verified here, and then used like a recorded one: it is parsed, checked and verified by each
stage that uses it.
"""

import threading

from msgspec.structs import replace

from orch23.features.cache.client import CacheClient
from orch23.features.cache.reapi.entries import decode_result, encode_result, entry_digest
from orch23.features.cache.signatures import Signatures, small_blobs
from orch23.model.digest import Digest
from orch23.model.llm import SCRIPTED_PROVENANCE, Exchange
from orch23.store.exchanges import exchange_text, parse_exchange
from orch23.text.secrets import Secrets

RESPONSE_KIND, VERSION = "response", 1
"""The kind of an entry that is a recorded response, and the version of its format."""
_MAX_BYTES = 4 << 20
"""The largest exchange that is shared."""
_EXCHANGE = "exchange.json"


class CacheResponses:
    """The recorded responses in a shared cache. Safe for calls from several threads. Each is looked up once in a run.

    `stored` has the fingerprints of new responses.
    """

    def __init__(self, client: CacheClient, signatures: Signatures, secrets: Secrets, *, writes: bool) -> None:
        """Look up nothing yet. With `writes`, new responses are stored in the cache."""
        self._client, self._signatures, self._secrets, self._writes = client, signatures, secrets, writes
        self._lock = threading.Lock()
        self._found: dict[str, Exchange | None] = {}
        self._used: set[str] = set()
        self.stored: set[str] = set()

    @property
    def used(self) -> int:
        """The number of responses of the cache that a stage has used instead of a call.

        Others were only looked at, such as the response to an earlier request whose result is compared.
        """
        return len(self._used)

    def find(self, fingerprint: str) -> Exchange | None:
        """Return the exchange of a request, as if its response had just arrived; None if the cache has none."""
        with self._lock:
            if fingerprint not in self._found:
                self._found[fingerprint] = self._look(fingerprint)
            return self._found[fingerprint]

    def share(self, exchange: Exchange) -> None:
        """Store an exchange in the background, if its response was accepted and has no secret.

        It was judged: one of the cache is counted as used.
        """
        fingerprint = exchange.fingerprint
        if self._found.get(fingerprint) is not None:
            self._used.add(fingerprint)
        if not self._writes or not _is_useful(exchange):
            return
        if fingerprint in self.stored or self._found.get(fingerprint) is not None:
            return
        text = exchange_text(exchange)
        data = text.encode()
        if len(data) > _MAX_BYTES or self._secrets.may_contain((text,)):
            return
        self.stored.add(fingerprint)
        if self._signatures.pair is not None:
            # It rejects an entry that does not count: the first one would stay.
            self._look(fingerprint)
        action = entry_digest(RESPONSE_KIND, VERSION, fingerprint)
        files = self._signatures.signed(RESPONSE_KIND, action, {_EXCHANGE: data})
        self._client.upload(action, encode_result(files), small_blobs(RESPONSE_KIND, VERSION, fingerprint, files))

    def _look(self, fingerprint: str) -> Exchange | None:
        action = entry_digest(RESPONSE_KIND, VERSION, fingerprint)
        data = self._client.entry(action)
        if data is None:
            self._client.warn_of(action)
            return None
        try:
            exchange = self._exchange(action, data)
        except (ValueError, KeyError):
            exchange = None
        if exchange is None or exchange.fingerprint != fingerprint or not _is_useful(exchange):
            self._client.reject(action)
            return None
        return replace(exchange, outcome="pending", diagnostics=(), superseded=False)

    def _exchange(self, action: Digest, data: bytes) -> Exchange | None:
        """Return the exchange of an entry; None if it does not count by its signature. Raise if it is damaged."""
        files = decode_result(data)
        file = files[_EXCHANGE]
        text = file.contents or self._client.get(file.entry.digest, _MAX_BYTES) or b""
        self._client.warn_of(file.entry.digest)
        return None if self._signatures.fault(RESPONSE_KIND, action, files, text, _EXCHANGE) else parse_exchange(text)


def _is_useful(exchange: Exchange) -> bool:
    """Return whether other stages can use a response: a model gave it, and no stage has refused it."""
    # After a truncated response, the next request has its own.
    is_good = exchange.outcome in ("accepted", "truncated") and not exchange.superseded
    return is_good and not exchange.files and exchange.provenance != SCRIPTED_PROVENANCE
