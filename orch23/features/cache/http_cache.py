"""A shared cache behind Bazel's HTTP protocol: `/cas/<sha256>` and `/ac/<sha256>` below a URL, with GET, HEAD and PUT.

bazel-remote, nginx with `dav_methods PUT` and others have it. Redirects are not followed: another host must get neither
the credentials nor the results.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orch23.features.cache.batches import RecentMisses, filtered
from orch23.features.cache.bounds import (
    BlobFault,
    after,
    can_compress,
    checked_sha256,
    decompressed,
    larger,
    opened,
    whole_entry,
)
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource

if TYPE_CHECKING:
    import httpcore2

_CONNECTIONS, _KEPT_CONNECTIONS = 128, 24
"""Maximum numbers. The number of threads limits them too; a call that waited for a connection would look slow."""
_CHECKS = 8
"""Maximum of parallel HEAD requests: the protocol needs one for each blob."""
_TIMEOUTS = {"connect": 5.0, "read": 8.0, "write": 8.0, "pool": 8.0}
_OK, _REDIRECTS, _REFUSED, _LOGIN = range(200, 300), range(300, 400), range(400, 500), frozenset({401, 403, 407})
_SMALL_BYTES = 1 << 16
_ABSENT = frozenset({404, 410})
_CONDITION_FAILED = 412
_PARTIAL = 206
_BUSY = frozenset({408, 425, 429})


def open_http(url: str, credentials: Callable[[str], Mapping[str, str]]) -> "HttpCache":
    """Return the cache at a URL; no connection is opened yet."""
    import httpcore2  # noqa: PLC0415 - heavy

    pool = httpcore2.ConnectionPool(max_connections=_CONNECTIONS, max_keepalive_connections=_KEPT_CONNECTIONS)
    return HttpCache(url, credentials, pool)


class HttpCache:
    """A shared cache behind HTTP, with connections that are kept."""

    def __init__(
        self, url: str, credentials: Callable[[str], Mapping[str, str]], pool: "httpcore2.ConnectionPool"
    ) -> None:
        """Set the URL, without a slash at its end, and the function that returns the headers to log in."""
        self._url, self._credentials, self._pool = url, credentials, pool
        self._misses = RecentMisses()
        self._is_closed = False

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        with self._reply("GET", f"ac/{checked_sha256(digest)}") as reply:
            if not _is_there(reply):
                self._misses.note(digest)
                return None
            return whole_entry(reply.iter_stream())

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port. Few servers know `If-None-Match`: at the same time, a second entry may replace the first."""
        path = f"ac/{checked_sha256(digest)}"
        if replace:
            self._put(path, len(data), (data,), {})
        elif self._misses.take(digest) or not self._has(path, None):
            self._put(path, len(data), (data,), {"If-None-Match": "*"})

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""

        def is_missing(digest: Digest) -> bool:
            return not self._has(f"cas/{checked_sha256(digest)}", digest.size_bytes)

        return filtered(is_missing, digests, _CHECKS)

    def worth_asking(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        return larger(digests)

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """See the port."""
        # A blob of the wrong size is read too, up to the size in its digest: damage is worth a warning.
        return opened(self._chunks(f"cas/{checked_sha256(digest)}", digest.size_bytes, offset))

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port."""
        self._put(f"cas/{checked_sha256(digest)}", digest.size_bytes, chunks(), {})

    def discard(self, digest: Digest) -> None:
        """Do nothing: each upload replaces the blob."""

    def close(self) -> None:
        """Close all connections, also those in use. A call that is connecting closes its own when it ends."""
        self._is_closed = True
        self._pool.close()

    def _chunks(self, path: str, size_bytes: int, offset: int) -> Iterator[bytes]:
        """Yield two empty chunks before those of the blob; only one if there is no blob."""
        yield b""
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        elif can_compress():
            # bazel-remote can compress replies. No server states whether it accepts compressed uploads.
            headers["Accept-Encoding"] = "zstd, identity"
        with self._reply("GET", path, headers) as reply:
            is_compressed = "Accept-Encoding" in headers and _header(reply, b"content-encoding") == b"zstd"
            parts = _header(reply, b"content-range") or b""
            is_part = bool(offset) and reply.status == _PARTIAL and parts.startswith(b"bytes %d-" % offset)
            if not (is_part or _is_there(reply, is_compressed=is_compressed)):
                return
            yield b""
            chunks = reply.iter_stream()
            if is_compressed:
                chunks = decompressed(chunks, size_bytes)
            # A server may ignore the range.
            yield from chunks if is_part else after(chunks, offset)

    def _has(self, path: str, size_bytes: int | None) -> bool:
        with self._reply("HEAD", path) as reply:
            length = _header(reply, b"content-length")
            return _is_there(reply) and (size_bytes is None or length in {None, b"%d" % size_bytes})

    def _put(self, path: str, size_bytes: int, chunks: Iterable[bytes], condition: Mapping[str, str]) -> None:
        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/octet-stream", **condition}
        with self._reply("PUT", path, headers, chunks) as reply:
            if reply.status not in _OK and not (condition and reply.status == _CONDITION_FAILED):
                raise _status_fault(reply)

    @contextlib.contextmanager
    def _reply(
        self, method: str, path: str, more: Mapping[str, str] | None = None, content: Iterable[bytes] | None = None
    ) -> Iterator["httpcore2.Response"]:
        import httpcore2  # noqa: PLC0415 - heavy

        url = httpcore2.URL(f"{self._url}/{path}")
        headers = {
            "Host": urlsplit(self._url).netloc,
            "User-Agent": "orch23",
            "Accept": "*/*",
            # A compressed reply does not have the size in its digest.
            "Accept-Encoding": "identity",
            **self._credentials(self._url),
            **(more or {}),
        }
        passing = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.RemoteProtocolError)
        kind: type[CacheFault] = CacheFault
        try:
            request = httpcore2.Request(
                method, url, headers=list(headers.items()), content=content, extensions={"timeout": _TIMEOUTS}
            )
            reply = self._pool.handle_request(request)
            try:
                kind = BlobFault
                yield reply
                # A connection is kept only if its reply was read to the end. An error page may be too long for that.
                if method != "GET" or reply.status in _ABSENT:
                    _drain(reply)
            finally:
                reply.close()
                if self._is_closed:
                    # The pool does not know a connection that was made while it was closed.
                    reply.extensions["network_stream"].close()
        except passing as error:
            text = str(error) or type(error).__name__
            message = f"{method} /{path.partition('/')[0]}/ failed: {text}"
            # If a reply ends too early at each try, this blob is damaged, and not the server.
            is_short = isinstance(error, httpcore2.RemoteProtocolError)
            raise (kind if is_short else CacheFault)(message, transient=True) from error


def _is_there(reply: "httpcore2.Response", *, is_compressed: bool = False) -> bool:
    """Return whether the server has the entry or blob; raise on another status, or an unwanted encoding."""
    if reply.status in _ABSENT:
        return False
    if reply.status != _OK[0]:
        raise _status_fault(reply)
    if not is_compressed and _header(reply, b"content-encoding") not in {None, b"identity"}:
        message = "the server compresses its replies"
        raise CacheFault(message)
    return True


def _drain(reply: "httpcore2.Response") -> None:
    left = _SMALL_BYTES
    for chunk in reply.iter_stream():
        left -= len(chunk)
        if left < 0:
            return


def _status_fault(reply: "httpcore2.Response") -> CacheFault:
    status = reply.status
    text = f"the server replied {status}"
    if status in _REDIRECTS:
        text = f"the server redirects (status {status}), which is not followed"
    elif status in _LOGIN:
        text = f"the server refused the login (status {status})"
    return CacheFault(text, transient=status in _BUSY or status not in {*_OK, *_REDIRECTS, *_REFUSED})


def _header(reply: "httpcore2.Response", name: bytes) -> bytes | None:
    return next((value for key, value in reply.headers if key.lower() == name), None)
