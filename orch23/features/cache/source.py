"""Look up and store entries of a shared cache that are results of stages, or responses of models (ADR 57).

A response of the cache is verified here, and then used like a recorded one: it is parsed, checked and verified by each
stage that uses it.

A result is an entry of the cache: the outputs by digest, and a small JSON file with the rest of the record. An entry
names the digests of its outputs. So the keys of the next stages are known with it, and their lookups run while its
files are downloaded. They are only used once all files are here.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.features.cache.claims import (
    MAX_RECORD_BYTES,
    RECORD,
    TIERS,
    Claim,
    FoundResult,
    InvalidResultError,
    Lookup,
    record_form,
)
from orch23.features.cache.client import CacheClient
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.features.cache.environment import EnvironmentIdentity
from orch23.features.cache.reapi.entries import EntryFile, decode_result, encode_result, entry_digest
from orch23.features.cache.signatures import SIGNATURE, Signatures, small_blobs
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.llm import SCRIPTED_PROVENANCE, Exchange
from orch23.model.pipeline import Stage
from orch23.model.ports import ChunkSource, ContentStore
from orch23.model.shared_cache import Tier
from orch23.model.text import join_first
from orch23.resolve.resolution import ResolvedStage
from orch23.store.exchanges import exchange_text, parse_exchange
from orch23.text.secrets import Secrets

STAGE_KIND, VERSION = "stage", 1
"""The kind of an entry that is the result of a stage, and the version of its format."""
_OUTPUTS = "outputs/"
_MAX_READ_BYTES = 4 << 20
"""The largest file that a plan reads from the cache for a prompt or a list."""
_MOST_NAMES = 5
_AT_ONCE = 16
"""So many lookups read their entry at once, and so many others their files. The client bounds the requests."""

IdentityOf: TypeAlias = Callable[[ResolvedStage], EnvironmentIdentity]
"""Return the identity of the environment of a stage."""


class _WrongRecordError(InvalidResultError):
    """The record of an entry has wrong bytes."""


class CacheSource(Struct, eq=False):
    """Results in a shared cache by the keys of their entries: of a stage together with its environment.

    With `downloads`, the outputs of a result are in `contents` or on disk when it is found; without, they may be in the
    cache alone. `is_on_disk` returns whether a path has a file. `signatures` has the keys whose signatures count.
    """

    client: CacheClient
    contents: ContentStore
    is_on_disk: Callable[[str, FileEntry], bool]
    identity: IdentityOf
    downloads: bool = True
    signatures: Signatures = Signatures()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _remote: set[Digest] = field(default_factory=set)
    # The stages whose results are stored, by the digest of the action.
    _offered: dict[Digest, str] = field(default_factory=dict)
    # Files in threads of their own: the entries of the next stages do not wait for downloads.
    _entries: DaemonThreads = field(default_factory=lambda: DaemonThreads(_AT_ONCE, "cache-entry"))
    _files: DaemonThreads = field(default_factory=lambda: DaemonThreads(_AT_ONCE, "cache-files"))

    @property
    def refusal(self) -> str | None:
        """Why a result was not stored, though the cache works, as far as it is known; None if it was switched off."""
        return None if self.client.fault else self.client.refusal

    def has_bytes(self, digest: Digest) -> bool:
        """Return whether the cache has bytes that were not downloaded."""
        return digest in self._remote

    def read(self, digest: Digest) -> bytes | None:
        """Return bytes that were not downloaded, without storing them; None if there are none, or too many."""
        return self.client.get(digest, _MAX_READ_BYTES) if digest in self._remote else None

    def close(self) -> None:
        """Wait for nothing, and release all resources."""
        self.client.close()
        self._entries.stop()
        self._files.stop()

    def begin(self, key: str, resolved: ResolvedStage, lookup: Lookup) -> None:
        """Start to look up a result in the background: first the entry, then its files."""
        self._submit(self._entries, lookup, partial(self._read_entry, lookup, resolved.stage, key))

    def _submit(self, threads: DaemonThreads, lookup: Lookup, step: Callable[[], None]) -> None:

        def run() -> None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - raised by the decision on the stage
                lookup.finish(error=error)

        threads.submit(run)

    def _read_entry(self, lookup: Lookup, stage: Stage, key: str) -> None:
        """Read an entry and let its claim be verified, then go on with its files."""
        digest = entry_digest(STAGE_KIND, VERSION, key)
        data = self.client.entry(digest)
        if data is None:
            if why := self.client.fault_of(digest):
                self.client.reject(digest)
                lookup.warn("W698", why)
            lookup.finish()
            return
        try:
            found = lookup.claim(self._claim(digest, data))
        except (InvalidResultError, MissingBytesError) as error:
            self.client.reject(digest, is_damaged=isinstance(error, _WrongRecordError))
            if isinstance(error, InvalidResultError):
                lookup.warn(error.code, str(error))
            lookup.finish()
            return
        if found is None:
            lookup.finish()
            return
        # A blob that is stored, or at its path, need not be downloaded.
        absent = [(p, one) for p, one in found.record.outputs.items() if not self.contents.has(one.digest)]
        wanted = {entry.digest for path, entry in absent if not self.is_on_disk(path, entry)}
        if not wanted:
            self._finish(lookup, found)
            return
        lookup.expect()
        self._submit(self._files, lookup, partial(self._obtain, lookup, stage, digest, found, wanted))

    def _obtain(self, lookup: Lookup, stage: Stage, action: Digest, found: FoundResult, wanted: set[Digest]) -> None:
        """Download the outputs of a result, or find out whether the cache has them."""
        try:
            if self.downloads:
                is_complete = self.client.fetch(wanted, self.contents, stage.limits.disk)
            else:
                is_complete = not self.client.missing(wanted)
                with self._lock:
                    self._remote |= wanted if is_complete else set()
        except OSError as error:
            # Such as a full disk: the build finds out where it matters.
            lookup.warn("W698", f"its files cannot be stored: {error.strerror}")
            lookup.finish()
            return
        if not is_complete:
            faults = ((path, self.client.fault_of(one.digest)) for path, one in found.record.outputs.items())
            wrong = [f"{path} ({why})" for path, why in faults if why]
            self.client.reject(action, is_damaged=bool(wrong))
            if wrong:
                lookup.warn("W698", f"files of it cannot be used: {join_first(wrong, _MOST_NAMES)}")
        self._finish(lookup, found if is_complete else None)

    def _finish(self, lookup: Lookup, found: FoundResult | None) -> None:
        self.client.saved(found.about.seconds if found else 0.0)
        lookup.finish(is_complete=found is not None)

    def _claim(self, action: Digest, data: bytes) -> Claim:
        """Return what an entry says, if it counts by its signature; raise if not, or if its record is missing."""
        try:
            files = decode_result(data)
        except ValueError as error:
            is_page = data.lstrip()[:1] == b"<"
            message = "it is not an entry, but HTML or XML, such as a page to log in" if is_page else str(error)
            raise InvalidResultError(message) from None
        if RECORD not in files:
            message = "it has no record"
            raise InvalidResultError(message)
        text = self._record(files[RECORD])
        if fault := self.signatures.fault(STAGE_KIND, action, files, text, RECORD):
            raise InvalidResultError(fault.message, code=fault.code)
        others = {path: file.entry for path, file in files.items() if path not in (RECORD, SIGNATURE)}
        outputs = {p.removeprefix(_OUTPUTS): entry for p, entry in others.items() if p.startswith(_OUTPUTS)}
        if len(outputs) != len(others):
            message = "it has files that are not outputs"
            raise InvalidResultError(message)
        return Claim(text, outputs)

    def _record(self, file: EntryFile) -> bytes:
        """Return the bytes of the record of an entry, which the server may have left out of it."""
        record = file.entry.digest
        text = file.contents
        if text is None and (text := self.client.get(record, MAX_RECORD_BYTES)) is None:
            if why := self.client.fault_of(record):
                message = f"its record cannot be used: {why}"
                raise _WrongRecordError(message)
            raise MissingBytesError(record.sha256)
        return text

    def offer(self, key: str, claim: Claim, tier: Tier, stage: str, known: Lookup | None) -> bool:
        """Store a result in the background; return False if it cannot be an entry.

        It was searched for secrets. `known` is the lookup of its key, if there was one.
        """
        action = entry_digest(STAGE_KIND, VERSION, key)
        files: Mapping[str, FileEntry | bytes] = {
            RECORD: claim.text,
            **{f"{_OUTPUTS}{path}": entry for path, entry in claim.outputs.items()},
        }
        try:
            files = self.signatures.signed(STAGE_KIND, action, files)
            entry = encode_result(files)
        except ValueError:  # such as too many files
            return False
        blobs: dict[Digest, ChunkSource] = {
            **{one.digest: partial(self.contents.get_chunks, one.digest) for one in claim.outputs.values()},
            **small_blobs(STAGE_KIND, VERSION, key, files),
        }
        self._offered[action] = stage
        if known is not None and known.result is not None:
            self.client.reject(action)  # its result did not pass here
        elif self.signatures.pair is not None or known is None or known.refused:
            self._reject_lesser(action, tier)
        self.client.upload(action, entry, blobs)
        return True

    def _reject_lesser(self, action: Digest, tier: Tier) -> None:
        """Let an upload replace an entry that does not count, or that has a lower tier; it may have come since."""
        data = self.client.entry(action)
        if data is None:
            return
        with contextlib.suppress(InvalidResultError, MissingBytesError):
            if TIERS.index(record_form(self._claim(action, data).text).tier) >= TIERS.index(tier):
                return
        self.client.reject(action)

    def flush(self, deadline_s: float) -> Sequence[str]:
        """Wait for the uploads, for some seconds at most. Return the stages whose results are not stored."""
        unsent = self.client.flush(deadline_s)
        return sorted(self._offered[action] for action in unsent if action in self._offered)


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
