"""A shared cache in a bucket of S3, Google Cloud Storage, Azure, or of a server with the interface of S3.

The library `obstore` logs in by the variables of each vendor, such as AWS_ACCESS_KEY_ID, or the role of the machine.
"""

import contextlib
import re
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from orch23.features.cache.batches import RecentMisses, filtered
from orch23.features.cache.bounds import CHUNK_BYTES, after, checked_sha256, larger, opened, whole_entry
from orch23.features.cache.registry import url_error
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault
from orch23.model.ports import ChunkSource

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CHECKS = 16
_PARTS = 2
"""Parts of an upload at once; each has 5 MiB in memory."""
_WHOLE_BYTES = 4 << 20
"""A blob up to this size is one request; a larger one has three more than parts."""
_PROBE = ".create-only"
_OPTIONS = {"endpoint", "region"}
# The client above bounds the time that all calls may lose, and repeats calls.
_CLIENT = {"connect_timeout": "5s", "timeout": "3600s"}
_RETRIES = {"max_retries": 0}
# The only words of the library for http:// that it was not allowed. AWS_ALLOW_HTTP has no effect beside other options.
_PLAIN_HTTP, _NOT_ALLOWED = " http://", "builder error"
# Of Azure, it can contain a token.
_QUERY = re.compile(r"\?\S+")


def open_object_store(url: str, _credentials: object) -> "ObjectStoreCache":
    """Return the cache in a bucket, below the path of the URL. Its query may have `endpoint` and `region` of S3.

    Raises:
        ConfigurationError: the URL has another option.
    """
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra
    from obstore.store import from_url  # noqa: PLC0415 - likewise

    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = sorted(set(options) - (_OPTIONS if parts.scheme.lower() == "s3" else set()))
    if unknown:
        why = f"has the unknown option `{unknown[0]}`"
        raise url_error(why)
    client = {**_CLIENT, "allow_http": options.get("endpoint", "").startswith("http://")}
    more: dict[str, Any] = {**options, "client_options": client, "retry_config": _RETRIES}
    try:
        return ObjectStoreCache(from_url(urlunsplit(parts._replace(query="")), **more))
    except (BaseError, ValueError) as error:
        why = f"is refused: {_first_line(error)}"
        raise url_error(why) from None


class ObjectStoreCache:
    """A shared cache in a bucket: `cas/<sha256>` and `ac/<sha256>` below its path."""

    def __init__(self, store: "ObjectStore") -> None:
        """Use a store of the library; it is not called yet."""
        self._store = store
        self._lock = threading.Lock()
        self._creates_only: bool | None = None
        self._misses = RecentMisses()

    def entry(self, digest: Digest) -> bytes | None:
        """See the port."""
        chunks = opened(self._chunks(f"ac/{checked_sha256(digest)}"))
        if chunks is not None:
            return whole_entry(chunks)
        self._misses.note(digest)
        return None

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """See the port. If the store cannot create only, of two that write within some seconds the second may win."""
        path = f"ac/{checked_sha256(digest)}"
        if replace:
            self._put(path, data)
        elif self._can_create_only():
            self._create(path, data)
        elif self._misses.take(digest) or self._size(path) is None:
            self._put(path, data)

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        return filtered(lambda one: self._size(f"cas/{checked_sha256(one)}") != one.size_bytes, digests, _CHECKS)

    def worth_asking(self, digests: Collection[Digest]) -> Collection[Digest]:
        """See the port."""
        return larger(digests)

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """See the port."""
        return opened(self._chunks(f"cas/{checked_sha256(digest)}", digest.size_bytes, offset))

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """See the port."""
        path = f"cas/{checked_sha256(digest)}"
        if digest.size_bytes <= _WHOLE_BYTES:
            self._put(path, b"".join(chunks()))
        else:
            self._put(path, iter(chunks()))

    def discard(self, digest: Digest) -> None:
        """Delete a blob."""
        with _faults():
            self._store.delete(f"cas/{checked_sha256(digest)}")

    def close(self) -> None:
        """Do nothing: the library closes its connections itself."""

    def _chunks(self, path: str, size_bytes: int = 0, offset: int = 0) -> Iterator[bytes]:
        """Yield two empty chunks before those of an object; only one if there is none."""
        from obstore.exceptions import GenericError  # noqa: PLC0415 - an extra

        yield b""
        with _faults():
            try:
                found = self._store.get(path, options={"range": (offset, size_bytes)} if offset else None)
            except FileNotFoundError:
                return
            except GenericError:
                # Some servers, such as rclone's, return the whole object instead.
                if not offset:
                    raise
                found = self._store.get(path)
            yield b""
            chunks = map(bytes, found.stream(min_chunk_size=CHUNK_BYTES))
            yield from after(chunks, offset - found.range[0])

    def _size(self, path: str) -> int | None:
        with _faults(), contextlib.suppress(FileNotFoundError):
            return self._store.head(path)["size"]
        return None

    def _put(self, path: str, data: bytes | Iterator[bytes]) -> None:
        with _faults():
            self._store.put(path, data, max_concurrency=_PARTS)

    def _create(self, path: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        with _faults(), contextlib.suppress(AlreadyExistsError):
            self._store.put(path, data, mode="create", use_multipart=False)
            return True
        return False

    def _can_create_only(self) -> bool:
        """Return whether the store refuses to create an object that exists. Some accept the condition and ignore it."""
        from obstore.exceptions import NotSupportedError  # noqa: PLC0415 - an extra

        with self._lock:
            if self._creates_only is None:
                try:
                    self._creates_only = not self._create(_PROBE, b"") or not self._create(_PROBE, b"")
                except (NotSupportedError, NotImplementedError):
                    self._creates_only = False
            return self._creates_only


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    from obstore import exceptions  # noqa: PLC0415 - an extra

    lasting = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.InvalidPathError,
        exceptions.UnknownConfigurationKeyError,
    )
    try:
        yield
    except (exceptions.NotSupportedError, exceptions.AlreadyExistsError):
        raise
    except exceptions.BaseError as error:
        text = _first_line(error)
        if _NOT_ALLOWED in text.partition(_PLAIN_HTTP)[2]:
            message = "its endpoint has http://, which only `?endpoint=http://...` in the address of the cache allows"
            raise CacheFault(message) from error
        raise CacheFault(text, transient=not isinstance(error, lasting)) from error
    except FileNotFoundError as error:
        # The reply to a put if there is no bucket.
        raise CacheFault(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return _QUERY.sub("", str(error).partition("\n")[0]).strip()
