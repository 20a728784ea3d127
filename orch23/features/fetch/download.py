"""Run a fetch step: take the bytes from the store, the project, or a server.

A download is resumed, follows redirects, has a maximum size, and its digest is verified.
"""

import contextlib
import os
import re
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from hashlib import file_digest
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

from orch23 import __version__
from orch23.attempt.attempt import AttemptInput, AttemptLoop, AttemptResult, StepRequirements, StepRunner
from orch23.attempt.failures import failure_of
from orch23.attempt.safeguards import NetworkAccess
from orch23.features.fetch.connections import (
    DownloadWatch,
    FetchError,
    download_error,
    download_timeout_error,
    refused_address_error,
    route_to,
    wrong_digest_error,
)
from orch23.features.fetch.step.language import fetch_url_fault
from orch23.features.fetch.step.spec import FetchStep, barred_offline
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConsentError, MissingBytesError
from orch23.model.ports import ContentStore
from orch23.model.server_url import is_loopback, url_origin
from orch23.providers.registry import not_granted_error
from orch23.store.safe_files import PRIVATE_FOLDER_MODE, make_folder, open_own, open_stream

_CHUNK = 1 << 16
# At most three tries: the next build resumes the download.
_PAUSES_S = (0.2, 1.0)
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK, _PARTIAL, _NOT_SATISFIABLE = 200, 206, 416
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


def download(step: FetchStep, outside: NetworkAccess, timeout_s: float) -> Path:
    """Return a file whose bytes have the digest of a step; the caller removes it.

    Raises:
        FetchError: the file could not be fetched.
    """
    watch = DownloadWatch(step.url, outside, timeout_s)
    make_folder(outside.partial_dir, PRIVATE_FOLDER_MODE)
    # Named by the digest, so that a moved URL resumes the same download.
    part = outside.partial_dir / f"{step.sha256}.part"
    with watch.running():
        pauses = iter(_PAUSES_S)
        while True:
            try:
                return _fetch(step, part, watch)
            except FetchError as error:
                pause_s = next(pauses, None)
                if pause_s is None or not error.is_transient or outside.is_closed or pause_s > watch.left_s:
                    with contextlib.suppress(FileNotFoundError):
                        if part.stat().st_size == 0:
                            part.unlink()
                    raise
                time.sleep(pause_s)


def _fetch(step: FetchStep, part: Path, watch: DownloadWatch) -> Path:
    # A resumed file with another digest may consist of two versions: it is fetched once more from its beginning.
    while True:
        with os.fdopen(open_own(part, os.O_RDWR | os.O_CREAT), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            is_complete = size > 0 and _digest(part) == step.sha256
            start = 0 if is_complete else _transfer(step, file, size, watch)
        found = _digest(part)
        if found == step.sha256:
            return part
        part.unlink(missing_ok=True)
        # The whole file came in one piece, so it is really another file.
        if start == 0:
            raise wrong_digest_error(step.url, found, step.sha256)


def _transfer(step: FetchStep, file: BinaryIO, offset: int, watch: DownloadWatch) -> int:
    """Append the missing bytes to an open file; return the offset at which the server began to send."""
    with _response(step, offset, watch) as response:
        match = _RANGE.fullmatch(response.getheader("Content-Range", ""))
        start = int(match[1]) if response.status == _PARTIAL and match is not None else 0
        # Status 200: the server ignores ranges and sends the whole file. Another range cannot be appended.
        if start != offset:
            start = 0 if response.status == _OK else -1
        file.truncate(max(start, 0))  # the next try asks for the whole file
        if start < 0:
            raise download_error(step.url, "the server sent a range that was not requested", is_transient=True)
        size = file.seek(0, os.SEEK_END)
        _check_size(step, size + (response.length or 0))
        while chunk := _read(step, response, watch):
            size += len(chunk)
            _check_size(step, size)
            file.write(chunk)
        if response.length != 0:  # without a length, an aborted connection looks like the end of the file
            watch.check()
        if response.length:
            raise download_error(step.url, f"the transfer was interrupted after {size:,} bytes", is_transient=True)
    return start


def _read(step: FetchStep, response: HTTPResponse, watch: DownloadWatch) -> bytes:
    watch.check()
    try:
        return response.read1(_CHUNK)
    except (OSError, HTTPException) as error:
        watch.check()
        raise download_error(step.url, f"the transfer was interrupted: {_text(error)}", is_transient=True) from None


@contextlib.contextmanager
def _response(step: FetchStep, offset: int, watch: DownloadWatch) -> Iterator[HTTPResponse]:
    """Yield the response that has the file from an offset on, after all redirects."""
    url = step.url
    headers = {"User-Agent": f"orch23/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    for _ in range(_MAX_REDIRECTS + 1):
        watch.check()
        connection, target, login = route_to(url, watch)
        with contextlib.closing(watch.sockets), contextlib.closing(connection):
            try:
                connection.request("GET", target, headers={**headers, **login})
                response = connection.getresponse()
            except (OSError, HTTPException, ValueError) as error:
                watch.check()
                # A wrong certificate stays wrong; other errors of a connection may pass.
                is_transient = not isinstance(error, ssl.SSLCertVerificationError)
                raise download_error(url, _text(error), is_transient=is_transient) from None
            with response:
                if response.status in _REDIRECTS:
                    location = response.getheader("Location", "")
                    url = _redirected(step, url, location, is_offline=watch.outside.offline)
                    continue
                if response.status == _NOT_SATISFIABLE and "Range" in headers:
                    # The file on the server is now shorter than the partial download: fetch it from its beginning.
                    del headers["Range"]
                    continue
                if response.status not in (_OK, _PARTIAL):
                    what = f"the server responded with {response.status} {response.reason}".rstrip()
                    raise download_error(url, what, is_transient=response.status in _TRANSIENT)
                yield response
                return
    raise download_error(step.url, f"more than {_MAX_REDIRECTS} redirects")


def _redirected(step: FetchStep, before: str, location: str, *, is_offline: bool) -> str:
    url = urljoin(before, location).partition("#")[0]
    if (fault := fetch_url_fault(url)) is not None:
        raise refused_address_error(before, f"redirects to an address that {fault}", "name the file's own address")
    origin = url_origin(url)
    # The digest protects the bytes, but not the request: others could read which file is fetched.
    if urlsplit(before).scheme == "https" != urlsplit(url).scheme:
        hint = "name an address that does not leave https"
        raise refused_address_error(before, f"redirects from https to {origin}", hint)
    # Consent is for one server: it must not choose another one that gets the request (ADR 32).
    if origin not in {grant.name for grant in step.grants}:
        hint = f"if it is intended, write `redirects: [{origin}]` into the step"
        raise refused_address_error(before, f"redirects to {origin}, which the pipeline does not name", hint)
    if is_offline and not is_loopback(url):
        raise FetchError(barred_offline(f"{before} redirects to {origin}, which"))
    return url


def _check_size(step: FetchStep, size: int) -> None:
    if size > step.max_bytes:
        message = f"{step.url} has {size:,} bytes or more, the limit is {step.max_bytes:,}"
        raise FetchError(Diagnostic("E453", message, hint="raise `fetch.max_size` if this size is correct"))


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, in pieces."""
    with open_stream(path) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _digest(path: Path) -> str:
    with open_stream(path) as file:
        return file_digest(file, "sha256").hexdigest()


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _FetchRunner(StepRunner):
    """Fetches files. The lock of a digest makes two stages that need the same file download it once."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def needs(self, step: FetchStep, contents: ContentStore) -> StepRequirements:
        """Return the servers to connect to: none if the store has the file."""
        # A stored file is not fetched again, so its server needs no consent.
        if not step.url or _stored(step, contents) is not None:
            return StepRequirements()
        return StepRequirements(step.grants, step.barred)

    def attempt(self, attempts: AttemptLoop, step: FetchStep, turn: AttemptInput) -> AttemptResult:
        began = time.monotonic()
        try:
            entry = self._entry(attempts, step)
        except FetchError as error:
            kind, retryable = "timeout" if error.is_timeout else "exception", error.is_transient or error.is_timeout
            return AttemptResult(turn.start, (), failure_of(kind, (error.diagnostic,), retryable=retryable))
        return AttemptResult({attempts.resolved.stage.outputs[0]: entry}, took_s=time.monotonic() - began)

    def _entry(self, attempts: AttemptLoop, step: FetchStep) -> FileEntry:
        if step.file:
            # The inputs of a stage are copied into the store before it starts (ADR 4).
            digest = _stored(step, attempts.contents) or attempts.resolved.unkeyed[step.file].digest
            if digest.sha256 != step.sha256:
                raise wrong_digest_error(step.file, digest.sha256, step.sha256)
            return FileEntry(digest)
        # Waiting for another stage's download of the file counts too.
        attempts.report.step_lines(f"fetching {step.url}")
        deadline = time.monotonic() + attempts.resolved.stage.timeout_s
        lock = self._locks[step.sha256]
        if not lock.acquire(timeout=attempts.resolved.stage.timeout_s):
            raise download_timeout_error(step.url)
        try:
            # Another stage may have fetched the file while this one waited for the lock.
            found = _stored(step, attempts.contents)
            if found is None:
                _check_allowed(attempts, step)
                path = download(step, attempts.safeguards.network, deadline - time.monotonic())
                found = attempts.contents.put_chunks(file_chunks(path))
                path.unlink(missing_ok=True)
        finally:
            lock.release()
        return FileEntry(found)


def _stored(step: FetchStep, contents: ContentStore) -> Digest | None:
    # The whole file is read: damaged bytes count as missing, and are fetched again.
    try:
        size = sum(map(len, contents.get_chunks(Digest(step.sha256, 0))))
    except MissingBytesError:
        return None
    return Digest(step.sha256, size)


def _check_allowed(attempts: AttemptLoop, step: FetchStep) -> None:
    """Check that the build may connect to the servers of a step: it is not offline, and the user has consented."""
    outside = attempts.safeguards.network
    if outside.offline and step.barred is not None:
        raise FetchError(step.barred)
    lacking = [grant for grant in step.grants if not outside.is_granted(grant)]
    if lacking:
        raise ConsentError(*(not_granted_error(grant, outside.trust_command()) for grant in lacking))


FETCH_RUNNER = _FetchRunner()
