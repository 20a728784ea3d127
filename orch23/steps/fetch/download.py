"""Download one file over HTTP: resume, limit its size, refuse link-local addresses.

A host name is looked up once, and the connection is made to the address that was checked: a second lookup could return
another address. With `--offline` no name is looked up, and no connection leaves this machine.
"""

import contextlib
import os
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from msgspec import Struct

from orch23 import __version__
from orch23.engine.egress import NetworkAccess
from orch23.model.diagnostic import Diagnostic
from orch23.model.server_url import is_loopback, url_origin
from orch23.steps.fetch.addresses import forbidden_address, is_address
from orch23.steps.fetch.language import fetch_url_fault
from orch23.steps.fetch.spec import FetchStep, barred_offline

_CHUNK = 1 << 16
_READ_S, _CONNECT_S = 30.0, 10.0
_PAUSES_S = (0.2, 1.0)
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK, _PARTIAL, _NOT_SATISFIABLE = 200, 206, 416
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
# The addresses of a name of this machine with `--offline`, where names are not looked up.
_LOOPBACK = ("127.0.0.1", "::1")


class FetchError(Exception):
    """A file could not be fetched. `is_transient`: another try may succeed. `is_timeout`: the deadline has passed."""

    def __init__(self, diagnostic: Diagnostic, *, is_transient: bool = False, is_timeout: bool = False) -> None:
        """Create an error with a diagnostic."""
        super().__init__(diagnostic.message)
        self.diagnostic, self.is_transient, self.is_timeout = diagnostic, is_transient, is_timeout


class _Address(Struct, frozen=True):
    url: str

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def host(self) -> str:
        return self.parts.hostname or ""

    @property
    def is_https(self) -> bool:
        return self.parts.scheme.lower() == "https"

    @property
    def port(self) -> int:
        return self.parts.port or (443 if self.is_https else 80)

    @property
    def target(self) -> str:
        path = self.parts.path or "/"
        return f"{path}?{self.parts.query}" if self.parts.query else path


class _Watch:
    """Ends one download at its deadline, or when the build is stopped.

    The timeout of a socket starts again with each byte, so that a slow server could send forever. Therefore another
    thread shuts the connection down.
    """

    def __init__(self, url: str, outside: NetworkAccess, timeout_s: float) -> None:
        """Create a watch for a download of `timeout_s` seconds from now on. `url` is for its errors."""
        self.outside = outside
        self._url, self._deadline = url, time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._is_aborted = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the download in the body of the `with` statement."""
        timer = threading.Timer(max(0.0, self.left_s), self._abort)
        timer.daemon = True
        timer.start()
        try:
            with self.outside.cancellable(self._abort):
                yield
        finally:
            timer.cancel()

    @property
    def left_s(self) -> float:
        """Return the seconds until the deadline; negative after it."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Check that the download may go on.

        Raises:
            FetchError: the build was stopped, or the deadline has passed.

        """
        if self.outside.is_closed:
            raise _failed(self._url, "the build was interrupted")
        if self._is_aborted or self.left_s <= 0:
            raise timeout_error(self._url)

    def watch(self, connection: socket.socket) -> None:
        """Watch a connection, by a duplicate: TLS and the response take over and close the descriptor itself."""
        with self._lock:
            self._connection = connection.dup()
            if self._is_aborted:
                _shut_down(self._connection)

    def close(self) -> None:
        """Stop watching the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _abort(self) -> None:
        with self._lock:
            self._is_aborted = True
            if self._connection is not None:
                _shut_down(self._connection)


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def download(step: FetchStep, outside: NetworkAccess, timeout_s: float) -> Path:
    """Return a file whose bytes have the digest of a step; the caller removes it.

    Raises:
        FetchError: the file could not be fetched.

    """
    watch = _Watch(step.url, outside, timeout_s)
    outside.partial_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Named by the digest, so that a moved URL resumes the same download.
    part = outside.partial_dir / f"{step.sha256}.part"
    with watch.running():
        for pause_s in (*_PAUSES_S, None):
            try:
                return _fetch(step, part, watch)
            except FetchError as error:
                if pause_s is None or not error.is_transient or outside.is_closed or pause_s > watch.left_s:
                    _remove_empty(part)
                    raise
                time.sleep(pause_s)
    message = "BUG: the last try neither returned nor raised"
    raise RuntimeError(message)


def _remove_empty(part: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if part.stat().st_size == 0:
            part.unlink()


def _fetch(step: FetchStep, part: Path, watch: _Watch) -> Path:
    """Fetch the missing bytes of a file, and return it.

    A resumed file with another digest may consist of two versions: it is fetched once more from its beginning.
    """
    while True:
        # O_NOFOLLOW: a link of that name must not make the download overwrite another file.
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            is_complete = size > 0 and _digest(part) == step.sha256
            start = 0 if is_complete else _transfer(step, file, size, watch)
        found = _digest(part)
        if found == step.sha256:
            return part
        part.unlink(missing_ok=True)
        # The whole file came in one piece, so it is really another file.
        if start == 0:
            hint = "check the file; if the change is intended, write this digest into `fetch.sha256`"
            raise FetchError(Diagnostic("E452", f"{step.url} has the SHA-256 {found}, not {step.sha256}", hint=hint))


def _transfer(step: FetchStep, file: BinaryIO, offset: int, watch: _Watch) -> int:
    """Append the missing bytes to an open file; return the offset at which the server began to send."""
    with _response(step, offset, watch) as response:
        match = _RANGE.fullmatch(response.getheader("Content-Range", ""))
        start = int(match[1]) if response.status == _PARTIAL and match is not None else 0
        # Status 200: the server ignores ranges and sends the whole file. Another range cannot be appended.
        if start != offset:
            start = 0 if response.status == _OK else -1
        file.truncate(max(start, 0))  # the next try asks for the whole file
        if start < 0:
            raise _failed(step.url, "the server sent a range that was not requested", is_transient=True)
        size = file.seek(0, os.SEEK_END)
        length = response.getheader("Content-Length", "")
        _check_size(step, size + int(length) if length.isdigit() else size)
        while chunk := _read(step, response, watch):
            size += len(chunk)
            _check_size(step, size)
            file.write(chunk)
        if response.length != 0:  # without a length, an aborted connection looks like the end of the file
            watch.check()
        if response.length:
            raise _failed(step.url, f"the transfer was interrupted after {size:,} bytes", is_transient=True)
    return start


def _read(step: FetchStep, response: HTTPResponse, watch: _Watch) -> bytes:
    watch.check()
    try:
        return response.read1(_CHUNK)
    except (OSError, HTTPException) as error:
        watch.check()
        raise _failed(step.url, f"the transfer was interrupted: {_text(error)}", is_transient=True) from None


@contextlib.contextmanager
def _response(step: FetchStep, offset: int, watch: _Watch) -> Iterator[HTTPResponse]:
    """Yield the response that has the file from an offset on, after all redirects."""
    address = _Address(step.url)
    allowed = {grant.name for grant in step.grants}
    headers = {"User-Agent": f"orch23/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    for _ in range(_MAX_REDIRECTS + 1):
        watch.check()
        route = _route(address, watch)
        connection = route.connection
        with contextlib.closing(watch), contextlib.closing(connection):
            try:
                connection.request("GET", route.target, headers={**headers, **route.headers})
                response = connection.getresponse()
            except (OSError, HTTPException, ValueError) as error:
                watch.check()
                # A wrong certificate stays wrong; other errors of a connection may pass.
                is_transient = not isinstance(error, ssl.SSLCertVerificationError)
                raise _failed(address.url, _text(error), is_transient=is_transient) from None
            with response:
                if response.status in _REDIRECTS:
                    is_offline = watch.outside.offline
                    address = _redirected(address, response.getheader("Location", ""), allowed, is_offline=is_offline)
                    continue
                if response.status == _NOT_SATISFIABLE and "Range" in headers:
                    # The file on the server is now shorter than the partial download: fetch it from its beginning.
                    del headers["Range"]
                    continue
                if response.status not in (_OK, _PARTIAL):
                    what = f"the server responded with {response.status} {response.reason}".rstrip()
                    raise _failed(address.url, what, is_transient=response.status in _TRANSIENT)
                yield response
                return
    raise _failed(step.url, f"more than {_MAX_REDIRECTS} redirects")


def _redirected(before: _Address, location: str, allowed: set[str], *, is_offline: bool) -> _Address:
    url = urljoin(before.url, location).partition("#")[0]
    fault = fetch_url_fault(url)
    if fault is not None:
        raise _refused(before.url, f"redirects to an address that {fault}", "name the file's own address")
    after = _Address(url)
    # The digest protects the bytes, but not the request: others could read which file is fetched.
    if before.is_https and not after.is_https:
        raise _refused(
            before.url, f"redirects from https to {url_origin(url)}", "name an address that does not leave https"
        )
    # Consent is for one server: it must not choose another one that gets the request (ADR 32).
    if url_origin(url) not in allowed:
        hint = f"if it is intended, write `redirects: [{url_origin(url)}]` into the step"
        raise _refused(before.url, f"redirects to {url_origin(url)}, which the pipeline does not name", hint)
    if is_offline and not is_loopback(url):
        raise FetchError(barred_offline(f"{before.url} redirects to {url_origin(url)}, which"))
    return after


# ---- connections ------------------------------------------------------------------------------


class _Route(Struct, frozen=True):
    """A connection, not made yet, to a server or to a proxy, and the target to request from it."""

    connection: HTTPConnection
    target: str
    headers: Mapping[str, str] = {}


def _route(address: _Address, watch: _Watch) -> _Route:
    """Return the route to the server of an address, by the proxy of the environment if there is one."""
    # A proxy would look up the name itself, so at least an address that is written in the URL is checked here.
    _check_address(address.host, address.host)
    proxy = _proxy(address, watch.outside.environ, offline=watch.outside.offline)
    host, port = (address.host, address.port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
    timeout_s = min(_READ_S, max(0.1, watch.left_s))
    connection = (
        HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        if address.is_https
        else HTTPConnection(host, port, timeout=timeout_s)
    )
    # http.client has had this attribute since Python 2.7. It is the only place where an address can be checked between
    # its lookup and the connection.
    connection._create_connection = partial(_connect, watch, is_proxy=proxy is not None)  # type: ignore[attr-defined]  # noqa: SLF001
    if proxy is None:
        return _Route(connection, address.target)
    login = {"Proxy-Authorization": f"Basic {_login(proxy)}"} if proxy.username else {}
    if address.is_https:
        connection.set_tunnel(address.host, address.port, headers=login)
        return _Route(connection, address.target)
    return _Route(connection, f"http://{address.parts.netloc}{address.target}", login)


def _proxy(address: _Address, environ: Mapping[str, str], *, offline: bool) -> SplitResult | None:
    """Return the proxy of the environment for an address, or None; offline, only a proxy on this machine.

    Raises:
        FetchError: the address of the proxy is invalid.

    """
    scheme = address.parts.scheme.lower()
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next(filter(environ.get, names), None)
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if name is None or proxy_bypass_environment(f"{address.host}:{address.port}", {"no": excluded}):
        return None
    url = environ[name] if "://" in environ[name] else f"http://{environ[name]}"
    if offline and not is_loopback(url):
        return None
    try:
        proxy = urlsplit(url)
        _ = proxy.port
    except ValueError:
        raise _failed(address.url, f"the proxy in {name} is not a valid URL") from None
    return proxy


def _login(proxy: SplitResult) -> str:
    return b64encode(f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()).decode("ascii")


def _connect(
    watch: _Watch,
    where: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
    *,
    is_proxy: bool,
) -> socket.socket:
    """Connect to a server at one of the addresses of its name, of which none may be forbidden.

    The address of a proxy is not checked: the user has chosen it in the environment.
    """
    host, port = where
    found = _offline_addresses(host) if watch.outside.offline else _look_up(host, port, watch)
    # All addresses are checked before the first connection: the name could have harmless ones too.
    for address in () if is_proxy else (host, *found):
        _check_address(host, address)
    error: OSError | None = None
    for address in found:
        watch.check()
        try:
            seconds = min(timeout or _CONNECT_S, _CONNECT_S, max(0.1, watch.left_s))
            connection = socket.create_connection((address, port), seconds, source_address)
        except OSError as refused:
            error = refused
        else:
            connection.settimeout(timeout)
            watch.watch(connection)
            return connection
    raise error or OSError(f"{host} has no address")


def _offline_addresses(host: str) -> tuple[str, ...]:
    """Return the loopback addresses of a host, without a lookup.

    Raises:
        FetchError: the host is another machine.

    """
    if not is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}"):
        raise FetchError(barred_offline(host))
    return (host.rstrip("."),) if is_address(host) else _LOOPBACK


def _look_up(host: str, port: int, watch: _Watch) -> tuple[str, ...]:
    """Return the addresses of a name.

    A thread calls the resolver: its own timeouts can be longer than the time that is left.

    Raises:
        OSError: the name has no address, the deadline has passed, or the build was stopped.

    """
    found: SimpleQueue[tuple[str, ...] | Exception] = SimpleQueue()

    def resolve() -> None:
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(tuple(str(place[0]) for *_, place in places))
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            found.put(error)

    threading.Thread(target=resolve, daemon=True).start()
    timeout = OSError(f"{host} was not looked up in time")
    try:
        with watch.outside.cancellable(lambda: found.put(timeout)):
            result = found.get(timeout=max(0.0, watch.left_s))
    except Empty:
        result = timeout
    if isinstance(result, Exception):
        raise result
    return result


def _check_address(host: str, written: str) -> None:
    """Refuse an address at which a cloud serves the credentials of this machine. A name is not looked up here.

    Raises:
        FetchError: the address is forbidden.

    """
    address = forbidden_address(written)
    if address is not None:
        raise _refused(host, f"has the address {address}, which no step may connect to", "name another server")


# ---- errors -----------------------------------------------------------------------------------


def _failed(url: str, what: str, *, is_transient: bool = False) -> FetchError:
    hint = "check the address and the network; the next build resumes the download"
    return FetchError(Diagnostic("E451", f"{url}: {what}", hint=hint), is_transient=is_transient)


def timeout_error(url: str) -> FetchError:
    """Return the error of a stage whose time ended before it had its file."""
    hint = "raise `timeout`; the next build resumes the download"
    return FetchError(Diagnostic("E451", f"{url}: timed out", hint=hint), is_timeout=True)


def _refused(subject: str, what: str, hint: str) -> FetchError:
    return FetchError(Diagnostic("E454", f"{subject} {what}", hint=hint))


def _check_size(step: FetchStep, size: int) -> None:
    if size > step.max_bytes:
        message = f"{step.url} has {size:,} bytes or more, the limit is {step.max_bytes:,}"
        raise FetchError(Diagnostic("E453", message, hint="raise `fetch.max_size` if this size is correct"))


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, in pieces."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _digest(path: Path) -> str:
    found = sha256()
    for chunk in file_chunks(path):
        found.update(chunk)
    return found.hexdigest()
