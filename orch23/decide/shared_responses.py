"""Use recorded responses of models from elsewhere, and offer new ones (ADR 57, ADR 73).

A response of a source is verified here, and then used like a recorded one: it is parsed, checked and verified by each
stage that uses it.
"""

import threading

from msgspec.structs import replace

from orch23.decide.result_source import ResponseSource
from orch23.model.llm import Exchange
from orch23.providers.adapter import SCRIPTED_PROVENANCE
from orch23.store.exchanges import exchange_text, parse_exchange
from orch23.text.secrets import Secrets

MAX_RESPONSE_BYTES = 4 << 20
"""The largest exchange that is shared."""


class SharedResponses:
    """The recorded responses of a source. Safe for calls from several threads. Each is looked up once in a run.

    `stored` has the fingerprints of new responses.
    """

    def __init__(self, source: ResponseSource, secrets: Secrets, *, writes: bool) -> None:
        """Look up nothing yet. With `writes`, new responses are stored in the source."""
        self._source, self._secrets, self._writes = source, secrets, writes
        self._lock = threading.Lock()
        self._found: dict[str, Exchange | None] = {}
        self._used: set[str] = set()
        self.stored: set[str] = set()

    @property
    def used(self) -> int:
        """The number of responses of the source that a stage has used instead of a call.

        Others were only looked at, such as the response to an earlier request whose result is compared.
        """
        return len(self._used)

    def find(self, fingerprint: str) -> Exchange | None:
        """Return the exchange of a request, as if its response had just arrived; None if the source has none."""
        with self._lock:
            if fingerprint not in self._found:
                self._found[fingerprint] = self._look(fingerprint)
            return self._found[fingerprint]

    def share(self, exchange: Exchange) -> None:
        """Store an exchange in the background, if its response was accepted and has no secret.

        It was judged: one of the source is counted as used.
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
        if len(data) > MAX_RESPONSE_BYTES or self._secrets.may_contain((text,)):
            return
        self.stored.add(fingerprint)
        if self._source.is_signing:
            # It rejects an entry that does not count: the first one would stay.
            self._look(fingerprint)
        self._source.offer(fingerprint, data)

    def _look(self, fingerprint: str) -> Exchange | None:
        text = self._source.find(fingerprint)
        if text is None:
            return None
        try:
            exchange = parse_exchange(text)
        except (ValueError, KeyError):
            self._source.reject(fingerprint)
            return None
        if exchange.fingerprint != fingerprint or not _is_useful(exchange):
            self._source.reject(fingerprint)
            return None
        return replace(exchange, outcome="pending", diagnostics=(), superseded=False)


def _is_useful(exchange: Exchange) -> bool:
    """Return whether other stages can use a response: a model gave it, and no stage has refused it."""
    # After a truncated response, the next request has its own.
    is_good = exchange.outcome in ("accepted", "truncated") and not exchange.superseded
    return is_good and not exchange.files and exchange.provenance != SCRIPTED_PROVENANCE
