"""Copy blobs between a shared cache and a content store of this machine; all of them are verified."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from orch23.features.cache.batches import batches_of, put_from, put_together, read_each
from orch23.features.cache.bounds import WrongBytesError, guarded, is_valid, reading, verified
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault, MissingBytesError
from orch23.model.ports import ContentStore, SharedCache

_Result = TypeVar("_Result")

_PAUSES_S = (0.2, 1.0, 3.0)
_BATCH = 1000


class Transfers:
    """Uploads and fetches blobs. Safe for calls from several threads. Transient faults of the cache are retried."""

    def __init__(
        self, cache: SharedCache, contents: ContentStore, pause: Callable[[float], object] = time.sleep
    ) -> None:
        """Call nothing yet. `pause` waits some seconds before a call is repeated."""
        self._cache, self._contents, self._pause = cache, contents, pause
        self._lock = threading.Lock()
        self._known: set[Digest] = set()

    def upload(self, digests: Iterable[Digest]) -> None:
        """Upload those of these blobs that the cache does not have. It is asked only once for each blob.

        Raises:
            CacheFault: the cache cannot be reached, or refuses a blob.
            MissingBytesError: the content store does not have the bytes.
        """
        with self._lock:
            wanted = sorted(set(digests) - self._known)
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            self.upload_again(self._tried(partial(guarded, partial(self._cache.missing, batch))))
            with self._lock:
                self._known.update(batch)

    def upload_again(self, digests: Iterable[Digest]) -> None:
        """Upload blobs, also if the cache says that it has them: their bytes may be wrong.

        Raises:
            CacheFault, MissingBytesError: as for `upload`.
        """
        for group in batches_of(self._cache, sorted(digests)):
            left: Iterable[Digest] = group
            if len(group) > 1:
                blobs = {digest: self._contents.get(digest) for digest in group}
                left = self._tried(partial(put_together, self._cache, blobs))
            for digest in left:
                self._send(digest)

    def fetch(self, digests: Iterable[Digest]) -> tuple[Digest, ...]:
        """Copy blobs to the content store. Return those that the cache does not have, or whose bytes are wrong.

        Raises:
            CacheFault: the cache cannot be reached.
            OSError: the content store cannot store them.
        """
        absent = {*self._contents.absent(digests)}
        lost = {digest for digest in absent if not is_valid(digest)}
        for digest in absent - lost:
            if not digest.size_bytes and self._contents.put(b"") != digest:
                lost.add(digest)
        # A cache need not store the blob without bytes.
        wanted = [digest for digest in sorted(absent - lost) if digest.size_bytes]
        for group in batches_of(self._cache, wanted):
            left = set(group)
            self._tried(partial(self._copy, group, left, lost))
        return tuple(sorted(lost))

    def _copy(self, group: Sequence[Digest], left: set[Digest], lost: set[Digest]) -> None:
        """Copy the blobs of a group that are left, and take them out of it; add those that are missing to `lost`."""
        for digest, chunks in read_each(self._cache, [digest for digest in group if digest in left]):
            if chunks is None or not self._stored(digest, chunks):
                lost.add(digest)
            left.discard(digest)

    def _stored(self, digest: Digest, chunks: Iterator[bytes]) -> bool:
        with reading(chunks) as guarded_chunks:
            try:
                self._contents.put_chunks(verified(guarded_chunks, digest))
            except WrongBytesError:
                guarded(partial(self._cache.discard, digest))
                return False
        return True

    def _send(self, digest: Digest) -> None:
        """Upload a blob. An error of the content store is raised as it is, since the cache works."""
        try:
            self._tried(partial(put_from, self._cache, digest, partial(self._contents.get_chunks, digest)))
        except WrongBytesError as error:
            raise MissingBytesError(str(error)) from None

    def _tried(self, call: Callable[[], _Result]) -> _Result:
        for pause_s in _PAUSES_S:
            try:
                return call()
            except CacheFault as fault:
                if not fault.transient:
                    raise
            self._pause(pause_s)
        return call()
