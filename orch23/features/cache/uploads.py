"""Upload results to a shared cache in the background: first the blobs that it does not have, then the entry."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from orch23.features.cache.availability import Availability, CacheLimits
from orch23.features.cache.batches import batches_of, put_from, put_together, worth_asking
from orch23.features.cache.bounds import guarded, verified
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource, SharedCache


class _Upload:
    """A result that is not uploaded yet. `left` is the number of blobs that are sent before the entry."""

    def __init__(self, action: Digest, entry: bytes, blobs: Mapping[Digest, ChunkSource], *, replace: bool) -> None:
        self.action, self.entry, self.blobs, self.replace = action, entry, blobs, replace
        self.left = 0
        self.is_failed = False


class Uploads:
    """Uploads results in some threads. Safe for calls from several threads; `add` does not wait."""

    def __init__(
        self,
        cache: SharedCache,
        availability: Availability,
        limits: CacheLimits,
        clock: Callable[[], float],
        on_sent: Callable[[int], None],
    ) -> None:
        """Start no thread yet. `on_sent` gets the size in bytes of all that was uploaded."""
        self._cache, self._availability, self._limits, self._on_sent = cache, availability, limits, on_sent
        self._threads, self._clock = DaemonThreads(limits.uploads, "cache-upload"), clock
        self._changed = threading.Condition()
        self._pending: dict[Digest, _Upload] = {}
        self._new: deque[_Upload] = deque()
        self._is_announcing = False
        self._in_flight: dict[Digest, list[_Upload]] = {}
        self._ready: deque[_Upload] = deque()
        self._there: set[Digest] = set()
        self._damaged: set[Digest] = set()
        self._unsent: set[Digest] = set()
        self._is_confirmed = self._is_awaited = False

    def add(self, action: Digest, entry: bytes, blobs: Mapping[Digest, ChunkSource], *, replace: bool) -> None:
        """Upload a result when a thread is free. It is not uploaded if too many wait."""
        with self._changed:
            if action in self._pending:
                return
            if len(self._pending) >= self._limits.pending or not self._availability.is_on:
                self._unsent.add(action)
                return
            upload = _Upload(action, entry, blobs, replace=replace)
            self._pending[action] = upload
            self._new.append(upload)
            if self._is_announcing:
                return
            self._is_announcing = True
        self._submit(self._announce_all)

    def forget(self, digest: Digest) -> None:
        """Ask again whether the cache has a blob: it was missing."""
        with self._changed:
            self._there.discard(digest)

    def send_again(self, digest: Digest) -> None:
        """Upload a blob again, although the cache has it: its bytes are wrong."""
        with self._changed:
            self._damaged.add(digest)
            self._there.discard(digest)

    def flush(self, deadline_s: float) -> tuple[Digest, ...]:
        """Wait until all results are uploaded, for some seconds at most; return the actions of those that are not."""
        until_s = self._clock() + deadline_s

        def wait() -> None:
            self._is_awaited = True
            with self._changed:
                while self._pending and self._availability.is_on and (left_s := until_s - self._clock()) > 0:
                    self._changed.wait(min(left_s, self._limits.check_each_s))
                    self._availability.check()

        # All uploads together must not be slow.
        self._availability.patience.timed(wait)
        with self._changed:
            return tuple(sorted({*self._unsent, *self._pending}))

    def wake(self) -> None:
        """Let `flush` return if the cache is switched off."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the threads end after their calls. The cache is switched off."""
        self.wake()
        self._threads.stop()

    def _submit(self, call: Callable[[], None]) -> None:
        def run() -> None:
            # Before further blobs: a result counts only with its entry, and time may run out.
            self._send_ready()
            call()

        self._threads.submit(run)

    def _announce_all(self) -> None:
        """Announce the new results, in one thread: the questions for results that come meanwhile are asked as one."""
        while uploads := self._taken():
            self._announce(uploads)

    def _announce(self, uploads: Sequence[_Upload]) -> None:
        """Find out which blobs of some results are missing, and send them."""
        try:
            absent = self._absent({digest for upload in uploads for digest in upload.blobs})
        except CacheFault:
            for upload in uploads:
                self._end(upload, is_sent=False)
            return
        ready: list[_Upload] = []
        sources: dict[Digest, ChunkSource] = {}
        with self._changed:
            for upload in uploads:
                needed = [digest for digest in upload.blobs if digest in absent and digest not in self._there]
                upload.left = len(needed)
                for digest in needed:
                    if digest not in self._in_flight:
                        self._in_flight[digest] = []
                        sources[digest] = upload.blobs[digest]
                    self._in_flight[digest].append(upload)
                if not needed:
                    ready.append(upload)
        for group in batches_of(self._cache, sources):
            self._submit(partial(self._send_blobs, {digest: sources[digest] for digest in group}))
        self._add_ready(ready)

    def _taken(self) -> list[_Upload]:
        """Take new results, with as many blobs as one question has; none ends the announcements."""
        taken: list[_Upload] = []
        count = 0
        with self._changed:
            while self._new and count < self._limits.batch:
                taken.append(self._new.popleft())
                count += len(taken[-1].blobs)
            self._is_announcing = bool(taken)
        return taken

    def _absent(self, digests: set[Digest]) -> set[Digest]:
        with self._changed:
            unknown = sorted(digests - self._there - self._damaged)
            absent = digests & self._damaged
        asked = sorted(worth_asking(self._cache, unknown))
        absent.update(set(unknown) - set(asked))
        for start in range(0, len(asked), self._limits.batch):
            part = asked[start : start + self._limits.batch]
            absent.update(self._availability.tried(lambda part=part: guarded(lambda: self._cache.missing(part))))  # type: ignore[misc]
        with self._changed:
            self._there.update(set(asked) - absent)
        return absent

    def _send_blobs(self, sources: Mapping[Digest, ChunkSource]) -> None:
        """Upload blobs in one request, if it can have several; those that were not stored by it one by one."""
        sent = self._put_together(sources) if len(sources) > 1 and self._availability.is_on else ()
        for digest in sent:
            self._end_blob(digest, is_sent=True)
        for digest, source in sources.items():
            if digest in sent:
                continue
            is_sent = False
            # Its bytes may be gone from this machine.
            with contextlib.suppress(Exception):
                self._availability.tried(partial(put_from, self._cache, digest, partial(self._counted, source)))
                is_sent = True
            self._end_blob(digest, is_sent=is_sent)

    def _put_together(self, sources: Mapping[Digest, ChunkSource]) -> Collection[Digest]:
        blobs: dict[Digest, bytes] = {}
        for digest, source in sources.items():
            # One whose bytes are gone from this machine is not sent alone either.
            with contextlib.suppress(Exception):
                blobs[digest] = b"".join(verified(source(), digest))
        try:
            left = self._availability.tried(lambda: put_together(self._cache, blobs))
        except CacheFault:
            return ()
        return blobs.keys() - set(left)

    def _end_blob(self, digest: Digest, *, is_sent: bool) -> None:
        """Note what became of a blob. The entries that have waited for it last are sent next."""
        with self._changed:
            waiting = self._in_flight.pop(digest)
            if is_sent:
                self._there.add(digest)
                self._damaged.discard(digest)
            for upload in waiting:
                upload.left -= 1
                upload.is_failed |= not is_sent
            ended = [upload for upload in waiting if not upload.left]
        if is_sent:
            self._confirm(digest.size_bytes)
        self._add_ready(ended)

    def _confirm(self, size_bytes: int) -> None:
        self._is_confirmed = True
        self._moved(size_bytes, replies=1)
        self._on_sent(size_bytes)

    def _moved(self, size_bytes: int, replies: int = 0) -> None:
        if self._is_awaited:  # else it would give time to lookups
            self._availability.patience.moved(size_bytes, replies)

    def _counted(self, source: ChunkSource) -> Iterator[bytes]:
        for chunk in source():
            yield chunk
            if self._is_confirmed:  # else the system may only have kept it for a server that is dead
                self._moved(len(chunk))

    def _add_ready(self, uploads: Sequence[_Upload]) -> None:
        for upload in uploads:
            self._ready.append(upload)
            self._submit(self._send_ready)

    def _send_ready(self) -> None:
        while True:
            with self._changed:
                upload = self._ready.popleft() if self._ready else None
            if upload is None:
                return
            self._send_entry(upload)

    def _send_entry(self, upload: _Upload) -> None:
        def put() -> None:
            guarded(lambda: self._cache.put_entry(upload.action, upload.entry, replace=upload.replace))

        try:
            if not upload.is_failed:
                self._availability.tried(put)
                self._confirm(len(upload.entry))
        except CacheFault:
            upload.is_failed = True
        self._end(upload, is_sent=not upload.is_failed)

    def _end(self, upload: _Upload, *, is_sent: bool) -> None:
        with self._changed:
            self._pending.pop(upload.action, None)
            if not is_sent:
                self._unsent.add(upload.action)
            self._changed.notify_all()
