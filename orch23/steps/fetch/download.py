"""Download one file over HTTP: resume, limit its size, refuse link-local addresses.

http.client of the standard library, of which each connection is made to an address that was looked at before: a name
that is looked up twice may lead to two addresses. With `--offline` no name is looked up, and no connection leaves this
machine.
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
_QUIET_S, _CONNECT_S = 30.0, 10.0
_PAUSES_S = (0.2, 1.0)
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK, _PARTIAL, _NOT_SATISFIABLE = 200, 206, 416
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_LOOPBACK = ("127.0.0.1", "::1")
"""What a name of this machine stands for with `--offline`, where nothing is looked up."""


class FetchError(Exception):
    """A file could not be fetched. `is_transient` says that another try may succeed, `is_timeout` that time was up."""

    def __init__(self, diagnostic: Diagnostic, *, is_transient: bool = False, is_timeout: bool = False) -> None:
        """Keep what is wrong."""
        super().__init__(diagnostic.message)
        self.diagnostic, self.is_transient, self.is_timeout = diagnostic, is_transient, is_timeout


class _Address(Struct, frozen=True):
    """One address of a chain of redirects, as its server is asked."""

    url: str

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def is_safe(self) -> bool:
        return self.parts.scheme.lower() == "https"

    @property
    def port(self) -> int:
        return self.parts.port or (443 if self.is_safe else 80)

    @property
    def target(self) -> str:
        path = self.parts.path or "/"
        return f"{path}?{self.parts.query}" if self.parts.query else path


class _Watch:
    """Holds one download to its deadline, and ends it when the build is asked to stop.

    A timeout of a socket begins again with each byte. So the connection itself is shut down, by another thread.
    """

    def __init__(self, url: str, outside: NetworkAccess, timeout_s: float) -> None:
        """Take the address that failures name, and how many seconds there are from now on."""
        self.outside = outside
        self._url, self._deadline = url, time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._held: socket.socket | None = None
        self._is_cut = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the download that takes place within."""
        timer = threading.Timer(max(0.0, self.left_s), self._cut)
        timer.daemon = True
        timer.start()
        try:
            with self.outside.cancellable(self._cut):
                yield
        finally:
            timer.cancel()

    @property
    def left_s(self) -> float:
        """Give the seconds until the deadline, which may be negative."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Do nothing while the download may go on.

        Raises:
            FetchError: the build was asked to stop, or the deadline has passed.

        """
        if self.outside.is_closed:
            raise _failed(self._url, "the build was asked to stop")
        if self._is_cut or self.left_s <= 0:
            raise timeout_error(self._url)

    def hold(self, connection: socket.socket) -> None:
        """Watch a connection. Its duplicate can be shut down whoever owns the descriptor: TLS, or the response."""
        with self._lock:
            self._held = connection.dup()
            if self._is_cut:
                _shut_down(self._held)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._held is not None:
                self._held.close()
            self._held = None

    def _cut(self) -> None:
        with self._lock:
            self._is_cut = True
            if self._held is not None:
                _shut_down(self._held)


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def download(step: FetchStep, outside: NetworkAccess, timeout_s: float) -> Path:
    """Return a file whose bytes have the digest of a step; whoever takes them removes it.

    Raises:
        FetchError: there is none.

    """
    watch = _Watch(step.url, outside, timeout_s)
    outside.partial_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = outside.partial_dir / f"{step.sha256}.part"
    with watch.running():
        for pause_s in (*_PAUSES_S, None):
            try:
                return _whole(step, part, watch)
            except FetchError as error:
                if pause_s is None or not error.is_transient or outside.is_closed or pause_s > watch.left_s:
                    _remove_empty(part)
                    raise
                time.sleep(pause_s)
    message = "BUG: no try was the last"
    raise RuntimeError(message)


def _remove_empty(part: Path) -> None:
    """Remove a file of which nothing came."""
    with contextlib.suppress(FileNotFoundError):
        if part.stat().st_size == 0:
            part.unlink()


def _whole(step: FetchStep, part: Path, watch: _Watch) -> Path:
    """Fetch what is missing of a file. What has another digest is discarded, once it was fetched at one go."""
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            had = file.seek(0, os.SEEK_END)
            is_there = had > 0 and _digest(part) == step.sha256
            began = 0 if is_there else _transfer(step, file, had, watch)
        found = _digest(part)
        if found == step.sha256:
            return part
        part.unlink(missing_ok=True)
        if began == 0:
            hint = "look at the file: if it was changed on purpose, write this digest into `fetch.sha256`"
            raise FetchError(Diagnostic("E452", f"{step.url} has the SHA-256 {found}, not {step.sha256}", hint=hint))


def _transfer(step: FetchStep, file: BinaryIO, had: int, watch: _Watch) -> int:
    """Append to an open file what is missing of it; return where the server began to send."""
    with _answer(step, had, watch) as response:
        match = _RANGE.fullmatch(response.getheader("Content-Range", ""))
        began = int(match[1]) if response.status == _PARTIAL and match is not None else 0
        if began != had:  # it sends the file from its beginning, or from elsewhere: that is asked for by the next try
            began = 0 if response.status == _OK else -1
        file.truncate(max(began, 0))
        if began < 0:
            raise _failed(step.url, "the server sends a part that was not asked for", is_transient=True)
        size = file.seek(0, os.SEEK_END)
        length = response.getheader("Content-Length", "")
        _check_size(step, size + int(length) if length.isdigit() else size)
        while chunk := _read(step, response, watch):
            size += len(chunk)
            _check_size(step, size)
            file.write(chunk)
        if response.length != 0:  # None: the end of the connection is the end of the file, unless it was cut here
            watch.check()
        if response.length:
            raise _failed(step.url, f"it broke off after {size:,} bytes", is_transient=True)
    return began


def _read(step: FetchStep, response: HTTPResponse, watch: _Watch) -> bytes:
    watch.check()
    try:
        return response.read1(_CHUNK)
    except (OSError, HTTPException) as error:
        watch.check()
        raise _failed(step.url, f"it broke off: {_text(error)}", is_transient=True) from None


@contextlib.contextmanager
def _answer(step: FetchStep, had: int, watch: _Watch) -> Iterator[HTTPResponse]:
    """Give the answer that has the file, after all redirects."""
    address = _Address(step.url)
    allowed = {grant.name for grant in step.grants}
    headers = {"User-Agent": f"orch23/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    if had:
        headers["Range"] = f"bytes={had}-"
    for _ in range(_MOST_REDIRECTS + 1):
        watch.check()
        way = _way(address, watch)
        connection = way.connection
        with contextlib.closing(watch), contextlib.closing(connection):
            try:
                connection.request("GET", way.target, headers={**headers, **way.headers})
                response = connection.getresponse()
            except (OSError, HTTPException, ValueError) as error:
                watch.check()
                is_transient = not isinstance(error, ssl.SSLCertVerificationError)
                raise _failed(address.url, _text(error), is_transient=is_transient) from None
            with response:
                if response.status in _REDIRECTS:
                    is_offline = watch.outside.offline
                    address = _redirected(address, response.getheader("Location", ""), allowed, is_offline=is_offline)
                    continue
                if response.status == _NOT_SATISFIABLE and had:
                    del headers["Range"]
                    had = 0
                    continue
                if response.status not in (_OK, _PARTIAL):
                    what = f"the server says {response.status} {response.reason}".rstrip()
                    raise _failed(address.url, what, is_transient=response.status in _PASSING)
                yield response
                return
    raise _failed(step.url, f"more than {_MOST_REDIRECTS} redirects")


def _redirected(before: _Address, location: str, allowed: set[str], *, is_offline: bool) -> _Address:
    url = urljoin(before.url, location).partition("#")[0]
    fault = fetch_url_fault(url)
    if fault is not None:
        raise _refused(before.url, f"redirects to an address that {fault}", "name the file's own address")
    after = _Address(url)
    if before.is_safe and not after.is_safe:
        raise _refused(
            before.url, f"redirects from https to {url_origin(url)}", "name an address that stays with https"
        )
    if url_origin(url) not in allowed:
        hint = f"if it is meant, write `redirects: [{url_origin(url)}]` into the step"
        raise _refused(before.url, f"redirects to {url_origin(url)}, which the pipeline does not name", hint)
    if is_offline and not is_loopback(url):
        raise FetchError(barred_offline(f"{before.url} redirects to {url_origin(url)}, which"))
    return after


# ---- connections ------------------------------------------------------------------------------


class _Way(Struct, frozen=True):
    """How a server is asked: by a connection, not made yet, to it or to a proxy, for a target."""

    connection: HTTPConnection
    target: str
    headers: Mapping[str, str] = {}


def _way(address: _Address, watch: _Watch) -> _Way:
    """Return how to ask the server of an address, with the proxy of the environment."""
    host = address.parts.hostname or ""
    _check_address(host, host)
    offline = watch.outside.offline
    proxy = _proxy(address, watch.outside.environ, offline=offline)
    where = proxy or address.parts
    port = address.port if proxy is None else proxy.port or 80
    timeout_s = min(_QUIET_S, max(0.1, watch.left_s))
    made: HTTPConnection
    if address.is_safe:
        made = HTTPSConnection(where.hostname or "", port, timeout=timeout_s, context=ssl.create_default_context())
    else:
        made = HTTPConnection(where.hostname or "", port, timeout=timeout_s)
    # An attribute of all versions since 2.7.
    made._create_connection = partial(_connect, watch, is_proxy=proxy is not None)  # type: ignore[attr-defined]  # noqa: SLF001
    if proxy is None:
        return _Way(made, address.target)
    login = {"Proxy-Authorization": f"Basic {_login(proxy)}"} if proxy.username else {}
    if address.is_safe:
        made.set_tunnel(host, address.port, headers=login)
        return _Way(made, address.target)
    return _Way(made, f"http://{address.parts.netloc}{address.target}", login)


def _proxy(address: _Address, environ: Mapping[str, str], *, offline: bool) -> SplitResult | None:
    """Return the proxy of the environment for an address, None where there is none; offline, one of this machine.

    Raises:
        FetchError: it cannot be read.

    """
    scheme, host = address.parts.scheme.lower(), address.parts.hostname or ""
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if environ.get(name)), None)
    none = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if name is None or proxy_bypass_environment(f"{host}:{address.port}", {"no": none}):
        return None
    url = environ[name] if "://" in environ[name] else f"http://{environ[name]}"
    if offline and not is_loopback(url):
        return None
    try:
        proxy = urlsplit(url)
        _ = proxy.port
    except ValueError:
        raise _failed(address.url, f"the proxy that {name} names cannot be read") from None
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
    """Connect to a server at one of the addresses that its name leads to, of which none may be forbidden.

    A proxy is the user's choice: its address may be any.
    """
    host, port = where
    found = _offline_places(host) if watch.outside.offline else _look_up(host, port, watch)
    if not is_proxy:
        for place in (host, *found):
            _check_address(host, place)
    error: OSError | None = None
    for place in found:
        watch.check()
        try:
            seconds = min(timeout or _CONNECT_S, _CONNECT_S, max(0.1, watch.left_s))
            made = socket.create_connection((place, port), seconds, source_address)
        except OSError as refused:
            error = refused
        else:
            made.settimeout(timeout)
            watch.hold(made)
            return made
    raise error or OSError(f"{host} has no address")


def _offline_places(host: str) -> tuple[str, ...]:
    """Return the addresses of a host of this machine, without looking its name up.

    Raises:
        FetchError: it is not one: no connection is made.

    """
    if not is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}"):
        raise FetchError(barred_offline(host))
    return (host.rstrip("."),) if is_address(host) else _LOOPBACK


def _look_up(host: str, port: int, watch: _Watch) -> tuple[str, ...]:
    """Return the addresses that a name leads to.

    The resolver has timeouts of its own, which can be longer than what is left. So a thread waits for it.

    Raises:
        OSError: the name leads to nothing, or the deadline has passed, or the build was asked to stop.

    """
    found: SimpleQueue[tuple[str, ...] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(tuple(str(place[0]) for *_, place in places))
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            found.put(error)

    threading.Thread(target=ask, daemon=True).start()
    unknown = OSError(f"{host} was not looked up in time")
    try:
        with watch.outside.cancellable(lambda: found.put(unknown)):
            answer = found.get(timeout=max(0.0, watch.left_s))
    except Empty:
        answer = unknown
    if isinstance(answer, Exception):
        raise answer
    return answer


def _check_address(host: str, written: str) -> None:
    """Refuse an address at which clouds answer with keys of this machine; a name is looked up elsewhere.

    Raises:
        FetchError: it is one.

    """
    address = forbidden_address(written)
    if address is not None:
        raise _refused(host, f"leads to {address}, which no step may reach", "name another server")


# ---- what goes wrong --------------------------------------------------------------------------


def _failed(url: str, what: str, *, is_transient: bool = False) -> FetchError:
    hint = "check the address and the network; what came is kept, and the next build goes on from there"
    return FetchError(Diagnostic("E451", f"{url}: {what}", hint=hint), is_transient=is_transient)


def timeout_error(url: str) -> FetchError:
    """Return that the time of a stage was up before it had its file."""
    hint = "raise `timeout`; the next build goes on from there"
    return FetchError(Diagnostic("E451", f"{url}: time was up", hint=hint), is_timeout=True)


def _refused(who: str, what: str, hint: str) -> FetchError:
    return FetchError(Diagnostic("E454", f"{who} {what}", hint=hint))


def _check_size(step: FetchStep, size: int) -> None:
    if size > step.max_bytes:
        message = f"{step.url} has {size:,} bytes or more, the limit is {step.max_bytes:,}"
        raise FetchError(Diagnostic("E453", message, hint="raise `fetch.max_size` if it is meant to be so large"))


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
