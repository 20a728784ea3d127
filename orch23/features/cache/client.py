"""The client of a shared cache that the engine uses: it verifies, bounds, retries, and never fails a build.

Everything that is wrong with the cache is a miss. A cache that is unreachable or slow is switched off for the rest of
the run, after a bounded time in all.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import islice
from typing import TypeVar

from orch23.features.cache.availability import Availability, CacheLimits, Patience
from orch23.features.cache.batches import batches_of, read_each
from orch23.features.cache.bounds import (
    EMPTY,
    BlobFault,
    WrongBytesError,
    guarded,
    is_valid,
    reading,
    verified,
    whole_entry,
)
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.features.cache.uploads import Uploads
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource, ContentStore, SharedCache

_Result = TypeVar("_Result")

USUAL_LIMITS = CacheLimits()


class CacheClient:
    """Looks up and stores results of actions in a shared cache. Safe for calls from several threads.

    No method raises because of the cache. Blobs go to and come from a content store of this machine. `down_bytes` and
    `up_bytes` were moved so far, `damaged` is the number of blobs with wrong bytes, and `fault` is why the cache was
    switched off, or empty.
    """

    def __init__(
        self,
        cache: SharedCache,
        warn: Callable[[str], None],
        limits: CacheLimits = USUAL_LIMITS,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Call nothing yet. `warn` gets why the cache is used no more, from any thread; `name` is its URL in warnings.

        `pause` waits before a call is repeated.
        """
        self._cache, self._warn = cache, warn
        self._name = f"the shared cache {name}".rstrip()
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._patience = Patience(limits, clock)
        self.saved = self._patience.saved
        self._reading = Availability(limits, self._stop_reading, self._patience, clock, self._pause)
        self._writing = Availability(limits, self._stop_writing, self._patience, clock, self._pause)
        self._limits = limits
        # Its own pool, so that the lookup of one stage does not wait for the downloads of another.
        self._lookups = DaemonThreads(limits.downloads, "cache-lookup")
        self._downloads = DaemonThreads(limits.downloads, "cache-download")
        self._uploads = Uploads(cache, self._writing, limits, clock, lambda size: self._count(up_bytes=size))
        self._lock = threading.Lock()
        self.down_bytes = self.up_bytes = self.damaged = 0
        self.fault = ""
        self._rejected: set[Digest] = set()
        self._wrong: dict[Digest, str] = {}
        self._has_warned = False
        self._resent: set[Digest] = set()

    @property
    def refusal(self) -> str:
        """Return why the first result that failed alone was not stored; an empty text if there is none."""
        return self._writing.refusal

    def entry(self, action: Digest) -> bytes | None:
        """Return the bytes of the ActionResult of an action; None if the cache has none, or is switched off.

        They are not verified, and may be forged. If they cannot be used, `reject` them.
        """
        if not self._reading.is_on:
            return None

        def read() -> bytes | None:
            data = guarded(lambda: self._cache.entry(action))
            return None if data is None else whole_entry((data,))

        data = self._wait(self._lookups.submit(self._timed(read, lambda: (action,))))
        self._count(down_bytes=len(data or b""))
        return data

    def fault_of(self, digest: Digest) -> str:
        """Return what is wrong with an entry or a blob that the cache has; an empty text if no fault is known."""
        return self._wrong.get(digest, "")

    def warn_of(self, digest: Digest) -> None:
        """Warn that a recorded response is damaged, if it is; only once."""
        if not self._has_warned and (why := self.fault_of(digest)):
            self._has_warned = True
            self._warn(f"[W698] a recorded response in {self._name} is ignored: {why}")

    def reject(self, action: Digest, *, is_damaged: bool = False) -> None:
        """Let the next upload of this action replace its entry, which cannot be used.

        If a blob of it is damaged, that upload sends all blobs again: some may be damaged that were not read.
        """
        with self._lock:
            self._rejected.add(action)
            if is_damaged:
                self._resent.add(action)

    def get(self, digest: Digest, limit_bytes: int) -> bytes | None:
        """Return a verified blob; None if it is missing, damaged or larger than the limit."""
        if not is_valid(digest) or digest.size_bytes > limit_bytes:
            return None
        if digest == EMPTY:
            return b""
        found: list[bytes] = []
        # A second try begins again.
        return b"".join(found) if self._read([digest], partial(found.__setitem__, slice(None))) else None

    def fetch(self, digests: Collection[Digest], contents: ContentStore, limit_bytes: int) -> bool:
        """Copy blobs to a content store; return whether it now has all of them, verified.

        Nothing is read if they are larger than the limit together: a forged entry can name any sizes.

        Raises:
            OSError: the content store cannot store them.
        """
        wanted = set(digests)
        if not all(map(is_valid, wanted)) or sum(digest.size_bytes for digest in wanted) > limit_bytes:
            return False
        if EMPTY in wanted:
            contents.put(b"")
        absent = sorted(contents.absent(wanted))
        return self._read(absent, contents.put_chunks)

    def _read(self, absent: Sequence[Digest], use: Callable[[Iterator[bytes]], object]) -> bool:
        """Let `use` read the verified chunks of each blob; return whether it has read all of them to their end."""
        if absent and not self._reading.is_on:
            return False
        is_complete = threading.Event()
        is_complete.set()
        left = set(absent)

        def copy(group: Sequence[Digest]) -> bool:
            wanted = [digest for digest in group if digest in left]
            for digest, chunks in read_each(self._cache, wanted) if is_complete.is_set() else ():
                if not self._use(digest, chunks, use):
                    is_complete.clear()
                    break
                left.discard(digest)
            return is_complete.is_set()

        groups = batches_of(self._cache, absent)
        calls = [self._timed(partial(copy, group), partial(filter, left.__contains__, group)) for group in groups]
        futures = [*map(self._downloads.submit, calls)]
        # Wait for all, also after one has failed: the caller has the store for itself again.
        copied = [self._wait(future) is True for future in futures]
        return all(copied)

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """Return the blobs that the cache does not have, by their digests; all of them if it is switched off."""
        wanted = sorted(digest for digest in digests if digest != EMPTY)
        if not all(map(is_valid, wanted)) or not self._reading.is_on:
            return wanted
        call = self._timed(lambda: guarded(lambda: self._cache.missing(wanted)))
        found = self._wait(self._lookups.submit(call))
        return wanted if found is None else found

    def upload(self, action: Digest, entry: bytes, blobs: Mapping[Digest, ChunkSource]) -> None:
        """Store a result in the background: the blobs that the cache does not have, then the entry."""
        with self._lock:
            replace, is_resent = action in self._rejected, action in self._resent
        for digest in blobs if is_resent else ():
            self._uploads.send_again(digest)
        self._uploads.add(action, entry, blobs, replace=replace)

    def flush(self, deadline_s: float) -> tuple[Digest, ...]:
        """Wait for the uploads, for some seconds at most. Return the actions whose results are not uploaded."""
        return self._uploads.flush(deadline_s)

    def close(self) -> None:
        """Start no further call, and release all resources. It does not wait for a call that hangs."""
        self._reading.switch_off()
        self._writing.switch_off()
        self._closed.set()
        self._lookups.stop()
        self._downloads.stop()
        self._uploads.stop()
        with contextlib.suppress(CacheFault):
            guarded(self._cache.close)

    def _use(self, digest: Digest, chunks: Iterator[bytes] | None, use: Callable[[Iterator[bytes]], object]) -> bool:
        """Let `use` read the verified chunks of a blob; return False if it is missing or damaged."""
        if chunks is None:
            self._uploads.forget(digest)
            return False
        with contextlib.closing(self._resumed(digest, chunks)) as resumed:
            next(resumed)
            try:
                use(verified(resumed, digest))
            except WrongBytesError:
                self._wrong[digest] = "wrong bytes"
                self._count(damaged=1)
                if self.damaged >= self._limits.damaged:
                    self._reading.switch_off(f"it sent wrong bytes {self._limits.damaged} times")
                self._uploads.send_again(digest)
                with contextlib.suppress(CacheFault):
                    guarded(lambda: self._cache.discard(digest))
                return False
        return True

    def _resumed(self, digest: Digest, chunks: Iterator[bytes]) -> Generator[bytes, None, None]:
        """Yield an empty chunk, then those of a blob. After a transient fault, go on if there was progress."""
        at, left = 0, chunks
        while True:
            began_at = at
            with reading(left) as guarded_chunks:
                if left is chunks:
                    yield b""
                try:
                    for chunk in self._counted(guarded_chunks):
                        at += len(chunk)
                        yield chunk
                except CacheFault as fault:
                    if not fault.transient or at == began_at:
                        raise
                else:
                    return
            self._pause(min(self._limits.delays_s, default=0.0))
            found = guarded(partial(self._cache.blob, digest, at))
            if found is None:
                # It was removed meanwhile: there are too few bytes.
                return
            left = found

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if not self._reading.is_on:
                # The caller waits no more: nothing may be stored.
                message = "the cache is switched off"
                raise CacheFault(message)
            self._count(down_bytes=len(chunk))
            self._patience.moved(len(chunk))
            yield chunk

    def _timed(
        self, call: Callable[[], _Result | None], asked: Callable[[], Iterable[Digest]] = tuple
    ) -> Callable[[], _Result | None]:
        """Return a call that is tried some times, whose lost time counts, and which raises no fault.

        `asked` returns what it still has to read: if the cache works, something is wrong with the first one.
        """

        def timed() -> _Result | None:
            try:
                return self._patience.timed(lambda: self._reading.tried(call))
            except CacheFault as fault:
                if isinstance(fault, BlobFault):
                    self._wrong.update(dict.fromkeys(islice(asked(), 1), fault.message))
                return None
            finally:
                self._reading.check()

        return timed

    def _wait(self, future: Future[_Result | None]) -> _Result | None:
        """Return the result of a call; None as soon as the cache is switched off."""
        while not wait([future], self._limits.check_each_s).done and self._reading.is_on:
            self._reading.check()
        return future.result() if future.done() else None

    def _stop_reading(self, reason: str) -> None:
        self._writing.switch_off()
        self._off(f"{self._name} is not used for the rest of this run: {reason}")

    def _stop_writing(self, reason: str) -> None:
        self._off(f"results are not uploaded to {self._name} for the rest of this run: {reason}")

    def _off(self, message: str) -> None:
        self.fault = message
        self._uploads.wake()
        self._warn(message)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, size in more.items():
                setattr(self, name, getattr(self, name) + size)
