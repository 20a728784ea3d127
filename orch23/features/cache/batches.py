"""Move blobs of a shared cache with few requests: several in one if its protocol can, and no needless questions."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from orch23.features.cache.bounds import guarded, verified
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource, SharedCache


# Optional, and not a part of SharedCache: most protocols have one request for each blob.
@runtime_checkable
class BlobBatches(Protocol):
    """Several small blobs in one request to a shared cache. A blob that a batch did not move has to be moved alone."""

    def batches(self, digests: Collection[Digest]) -> Sequence[Sequence[Digest]]:
        """Return the digests in groups: a batch can have all blobs of a group. A large blob is alone. Calls nothing."""

    def read_batch(self, digests: Collection[Digest]) -> Mapping[Digest, bytes | None]:
        """Return the blobs of a group, not verified; None for those that the cache does not have. It may lack some."""

    def put_batch(self, blobs: Mapping[Digest, bytes]) -> Collection[Digest]:
        """Store the blobs of a group; return those that were not stored."""


# Optional as well: in a directory, questions cost nothing.
@runtime_checkable
class CostlyQuestions(Protocol):
    """A shared cache in which the question for a blob costs as much as the upload of a small one."""

    def worth_asking(self, digests: Collection[Digest]) -> Collection[Digest]:
        """Return the blobs to ask for before an upload. The others are uploaded unasked. Calls nothing."""


def worth_asking(cache: SharedCache, digests: Collection[Digest]) -> Collection[Digest]:
    """Return the blobs to ask for before an upload. The others are uploaded unasked. Calls nothing."""
    return cache.worth_asking(digests) if isinstance(cache, CostlyQuestions) else digests


def batches_of(cache: SharedCache, digests: Collection[Digest]) -> Sequence[Sequence[Digest]]:
    """Return the digests in groups that one call of `read_each` or `put_together` moves. Calls nothing."""
    return cache.batches(digests) if isinstance(cache, BlobBatches) else [[digest] for digest in digests]


def read_each(cache: SharedCache, group: Sequence[Digest]) -> Iterator[tuple[Digest, Iterator[bytes] | None]]:
    """Yield each digest of a group with its chunks, not verified; None if the cache does not have the blob.

    Raises:
        CacheFault: as the cache does.
    """
    found: dict[Digest, bytes | None] = {}
    if len(group) > 1 and isinstance(cache, BlobBatches):
        found.update(guarded(lambda: cache.read_batch(group)))
    for digest in group:
        if digest in found:
            data = found.pop(digest)
            yield digest, None if data is None else iter((data,))
        else:
            yield digest, guarded(lambda digest=digest: cache.blob(digest))  # type: ignore[misc]


def put_from(cache: SharedCache, digest: Digest, source: ChunkSource) -> None:
    """Store a blob whose bytes are on this machine.

    Raises:
        CacheFault: as the cache does.
        Exception: as the source does, or WrongBytesError: the cache works.
    """
    failed_here: list[Exception] = []

    def chunks() -> Iterator[bytes]:
        try:
            yield from verified(source(), digest)
        except Exception as error:
            failed_here.append(error)
            raise

    try:
        guarded(lambda: cache.put_blob(digest, chunks))
    except CacheFault:
        if failed_here:
            raise failed_here[-1] from None
        raise


def put_together(cache: SharedCache, blobs: Mapping[Digest, bytes]) -> Collection[Digest]:
    """Store the blobs of a group in one request. Return those that were not stored, which have to be put alone.

    Raises:
        CacheFault: as the cache does.
    """
    if len(blobs) <= 1 or not isinstance(cache, BlobBatches):
        return blobs.keys()
    return guarded(lambda: cache.put_batch(blobs))


def filtered(is_kept: Callable[[Digest], bool], digests: Collection[Digest], count: int) -> list[Digest]:
    """Return the blobs for which a call returns True, in their order. The calls run in `count` threads at most.

    Raises:
        BaseException: what the first failed call raised. The calls of further blobs may run on.
    """
    if len(digests) <= 1:
        return [*filter(is_kept, digests)]
    threads = DaemonThreads(count, "cache-check")
    tasks = [(digest, threads.submit(partial(is_kept, digest))) for digest in digests]
    try:
        return [digest for digest, task in tasks if task.result()]
    finally:
        threads.stop()


RECENT_S = 5.0
"""A stage that takes longer pays for another question: meanwhile, another machine may have stored its result."""
_MOST = 10_000


class RecentMisses:
    """The misses of the last seconds. Safe for calls from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any."""
        self._clock, self._lock = clock, threading.Lock()
        self._noted_s: dict[Digest, float] = {}

    def note(self, digest: Digest) -> None:
        """Note that the cache has no such entry now."""
        now_s = self._clock()
        with self._lock:
            if len(self._noted_s) >= _MOST:
                self._noted_s.clear()
            self._noted_s[digest] = now_s

    def take(self, digest: Digest) -> bool:
        """Return whether an entry was missing a moment ago, only once: the next put asks."""
        with self._lock:
            noted_s = self._noted_s.pop(digest, None)
        return noted_s is not None and self._clock() - noted_s <= RECENT_S
