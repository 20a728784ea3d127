"""Look up results in a shared cache in the background: first the entry, then its files (ADR 57).

An entry names the digests of its outputs. So the keys of the next stages are known with it, and their lookups run while
its files are downloaded. They are only used once all files are here.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial

from orch23.cache.client import CacheClient
from orch23.cache.daemon_threads import DaemonThreads
from orch23.engine.shared_entries import (
    KIND,
    MAX_RECORD_BYTES,
    RECORD,
    VERSION,
    FoundResult,
    InvalidResultError,
    found_result,
)
from orch23.engine.shared_signatures import SIGNATURE, Signatures
from orch23.model.digest import Digest, FileEntry
from orch23.model.environment import TIERS, Tier
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import Stage
from orch23.model.ports import ContentStore
from orch23.model.text import join_first
from orch23.reapi.entries import EntryFile, decode_result, entry_digest
from orch23.resolve.resolution import ResolvedStage

_MOST_NAMES = 5
_AT_ONCE = 16
"""So many lookups read their entry at once, and so many others their files. The client bounds the requests."""


class _WrongRecordError(InvalidResultError):
    """The record of an entry has wrong bytes."""


class Lookup:
    """The lookup of one key. Any thread may call it.

    `expected` is the result of a valid entry whose files may still turn out to be lost, `result` has all of its files.
    `refused` is one whose steps were isolated too little.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.expected: FoundResult | None = None
        self.result: FoundResult | None = None
        self.refused: FoundResult | None = None
        self.error: BaseException | None = None
        self.is_finished = False
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function with each change, from any thread; at once if there was a change already."""
        with self._lock:
            has_changed = self.is_finished or self.expected is not None
            if not self.is_finished:
                self._watchers.append(changed)
        if has_changed:
            changed()

    def expect(self, found: FoundResult) -> None:
        """Set the result of the entry, whose files are not here yet."""
        with self._lock:
            self.expected = found
            watchers = [*self._watchers]
        for changed in watchers:
            changed()

    def finish(self, result: FoundResult | None, error: BaseException | None = None) -> None:
        """Set what was found, or what went wrong in orch23. Only the first call counts."""
        with self._lock:
            if self.is_finished:
                return
            self.result, self.error, self.is_finished = result, error, True
            watchers, self._watchers = self._watchers, []
        for changed in watchers:
            changed()


class PendingLookupError(Exception):
    """A decision needs the result of a lookup that has not finished. It is made again later."""

    def __init__(self, lookup: Lookup) -> None:
        """Store the lookup."""
        super().__init__("BUG: no one waits for a lookup")
        self.lookup = lookup


class Lookups:
    """The lookups of a run, each key once. Safe for calls from several threads.

    With `downloads`, the outputs of a result are in `contents` or on disk when it is found; without, they may be in the
    cache alone. `is_on_disk` returns whether a path has a file. `warn` gets the stage, a code, and why an entry is
    ignored. `least_tier` returns the lowest tier of the sandbox whose results count for a stage.
    """

    def __init__(
        self,
        client: CacheClient,
        contents: ContentStore,
        *,
        is_on_disk: Callable[[str, FileEntry], bool],
        signatures: Signatures,
        downloads: bool,
        warn: Callable[[str, str, str], None],
        least_tier: Callable[[ResolvedStage], Tier],
    ) -> None:
        """Look up nothing yet."""
        self._client, self._contents, self._signatures = client, contents, signatures
        self._is_on_disk, self._downloads, self._warn, self._least_tier = is_on_disk, downloads, warn, least_tier
        self._lock = threading.Lock()
        self._known: dict[str, Lookup] = {}
        self._is_closed = False
        self._remote: set[Digest] = set()
        # Files in threads of their own: the entries of the next stages do not wait for downloads.
        self._entries = DaemonThreads(_AT_ONCE, "cache-entry")
        self._files = DaemonThreads(_AT_ONCE, "cache-files")

    def of(self, key: str) -> Lookup | None:
        """Return the lookup of a key, if there is one."""
        return self._known.get(key)

    def start(self, resolved: ResolvedStage, action: str) -> Lookup:
        """Return the lookup of a stage; start it if there is none. `action` is the key of the entry."""
        with self._lock:
            if (known := self._known.get(resolved.key)) is not None:
                return known
            lookup = self._known[resolved.key] = Lookup()
            if self._is_closed:
                lookup.finish(None)
                return lookup
            self._submit(self._entries, lookup, partial(self._read_entry, lookup, resolved, action))
            return lookup

    def is_remote(self, digest: Digest) -> bool:
        """Return whether the cache has bytes that were not downloaded."""
        return digest in self._remote

    def close(self) -> None:
        """Wait for nothing: what has not finished finds nothing."""
        with self._lock:
            self._is_closed = True
            self._entries.stop()
            self._files.stop()
            known = [*self._known.values()]
        for lookup in known:
            lookup.finish(None)

    def _submit(self, threads: DaemonThreads, lookup: Lookup, step: Callable[[], None]) -> None:
        """Run a step of a lookup in a thread."""

        def run() -> None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - raised by the decision on the stage
                lookup.finish(None, error)

        threads.submit(run)

    def _read_entry(self, lookup: Lookup, resolved: ResolvedStage, action: str) -> None:
        """Read and check the entry of a stage, then go on with its files."""
        digest = entry_digest(KIND, VERSION, action)
        data, stage = self._client.entry(digest), resolved.stage
        if data is None:
            if why := self._client.fault_of(digest):
                self._client.reject(digest)
                self._warn(stage.name, "W698", why)
            lookup.finish(None)
            return
        try:
            text, files = self.signed(digest, data)
            outputs = {path: file.entry for path, file in files.items() if path not in (RECORD, SIGNATURE)}
            found = found_result(resolved, text, outputs)
        except (InvalidResultError, MissingBytesError) as error:
            self._client.reject(digest, is_damaged=isinstance(error, _WrongRecordError))
            if isinstance(error, InvalidResultError):
                self._warn(stage.name, error.code, str(error))
            lookup.finish(None)
            return
        if found.tier != TIERS[-1] and TIERS.index(found.tier) < TIERS.index(self._least_tier(resolved)):
            lookup.refused = found
            lookup.finish(None)
            return
        # What is stored, or at its path, need not be downloaded.
        absent = [(p, one) for p, one in found.record.outputs.items() if not self._contents.has(one.digest)]
        wanted = {entry.digest for path, entry in absent if not self._is_on_disk(path, entry)}
        if not wanted:
            self._finish(lookup, found)
            return
        lookup.expect(found)
        self._submit(self._files, lookup, partial(self._obtain, lookup, stage, digest, found, wanted))

    def _obtain(self, lookup: Lookup, stage: Stage, action: Digest, found: FoundResult, wanted: set[Digest]) -> None:
        """Download the outputs of a result, or find out whether the cache has them."""
        try:
            if self._downloads:
                is_complete = self._client.fetch(wanted, self._contents, stage.limits.disk)
            else:
                is_complete = not self._client.missing(wanted)
                with self._lock:
                    self._remote |= wanted if is_complete else set()
        except OSError as error:
            # Such as a full disk: the build finds out where it matters.
            self._warn(stage.name, "W698", f"its files cannot be stored: {error.strerror}")
            lookup.finish(None)
            return
        if not is_complete:
            faults = ((path, self._client.fault_of(one.digest)) for path, one in found.record.outputs.items())
            wrong = [f"{path} ({why})" for path, why in faults if why]
            self._client.reject(action, is_damaged=bool(wrong))
            if wrong:
                self._warn(stage.name, "W698", f"files of it cannot be used: {join_first(wrong, _MOST_NAMES)}")
        self._finish(lookup, found if is_complete else None)

    def _finish(self, lookup: Lookup, found: FoundResult | None) -> None:
        self._client.saved(found.about.seconds if found else 0.0)
        lookup.finish(found)

    def signed(self, action: Digest, data: bytes) -> tuple[bytes, Mapping[str, EntryFile]]:
        """Return the record and the files of an entry that counts, by its signature.

        Raises:
            InvalidResultError: it does not count, or cannot be read.
            MissingBytesError: the cache does not have its record.

        """
        try:
            files = decode_result(data)
        except ValueError as error:
            is_page = data.lstrip()[:1] == b"<"
            message = "it is not an entry, but HTML or XML, such as a page to log in" if is_page else str(error)
            raise InvalidResultError(message) from None
        described = files.get(RECORD)
        if described is None:
            message = "it has no record"
            raise InvalidResultError(message)
        text, record = described.contents, described.entry.digest
        if text is None and (text := self._client.get(record, MAX_RECORD_BYTES)) is None:
            if why := self._client.fault_of(record):
                message = f"its record cannot be used: {why}"
                raise _WrongRecordError(message)
            raise MissingBytesError(record.sha256)
        if fault := self._signatures.fault(KIND, action, files, text, RECORD):
            raise InvalidResultError(fault.message, code=fault.code)
        return text, files
