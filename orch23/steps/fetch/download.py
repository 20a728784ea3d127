"""Download one file: resumed where an earlier attempt ended, limited, and from no address that is link-local.

http.client of the standard library, of which each connection is made to an address that was looked at before: a name
that is looked up twice may lead to two addresses.
"""

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import BinaryIO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from msgspec import Struct

from orch23 import __version__
from orch23.engine.outside import Outside
from orch23.model.address import origin
from orch23.model.diagnostic import Diagnostic
from orch23.steps.fetch.language import url_fault
from orch23.steps.fetch.spec import FetchStep

_CHUNK = 1 << 16
_QUIET_S, _CONNECT_S = 30.0, 10.0
_PAUSES_S = (0.2, 1.0)
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK, _PARTIAL, _NOT_SATISFIABLE = 200, 206, 416
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
"""Addresses that are not link-local, at which clouds answer with keys of the machine all the same."""


class FetchError(Exception):
    """A file could not be fetched. `is_passing` says that another try may succeed, `is_late` that time was up."""

    def __init__(self, diagnostic: Diagnostic, *, is_passing: bool = False, is_late: bool = False) -> None:
        """Keep what is wrong."""
        super().__init__(diagnostic.message)
        self.diagnostic, self.is_passing, self.is_late = diagnostic, is_passing, is_late


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


def download(step: FetchStep, outside: Outside, timeout_s: float) -> Path:
    """Return a file whose bytes have the digest of a step; whoever takes them removes it.

    Raises:
        FetchError: there is none.

    """
    deadline = time.monotonic() + timeout_s
    outside.partial.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = outside.partial / f"{step.sha256}.part"
    for pause_s in (*_PAUSES_S, None):
        try:
            return _whole(step, part, outside, deadline)
        except FetchError as error:
            if pause_s is None or not error.is_passing or outside.is_closed or time.monotonic() + pause_s > deadline:
                raise
            time.sleep(pause_s)
    message = "BUG: no try was the last"
    raise RuntimeError(message)


def _whole(step: FetchStep, part: Path, outside: Outside, deadline: float) -> Path:
    """Fetch what is missing of a file. What has another digest is discarded, once it was fetched at one go."""
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            had = file.seek(0, os.SEEK_END)
            is_there = had > 0 and _digest(part) == step.sha256
            began = 0 if is_there else _transfer(step, file, had, outside, deadline)
        found = _digest(part)
        if found == step.sha256:
            return part
        part.unlink(missing_ok=True)
        if began == 0:
            hint = "look at the file: if it was changed on purpose, write this digest into `fetch.sha256`"
            raise FetchError(Diagnostic("E452", f"{step.url} has the SHA-256 {found}, not {step.sha256}", hint=hint))


def _transfer(step: FetchStep, file: BinaryIO, had: int, outside: Outside, deadline: float) -> int:
    """Append to an open file what is missing of it; return where the server began to send."""
    with _answer(step, had, outside, deadline) as response:
        match = _RANGE.fullmatch(response.getheader("Content-Range", ""))
        began = int(match[1]) if response.status == _PARTIAL and match is not None else 0
        if began != had:  # it sends the file from its beginning, or from elsewhere: that is asked for by the next try
            began = 0 if response.status == _OK else -1
        file.truncate(max(began, 0))
        if began < 0:
            raise _failed(step.url, "the server sends a part that was not asked for", is_passing=True)
        size = file.seek(0, os.SEEK_END)
        length = response.getheader("Content-Length", "")
        _check_size(step, size + int(length) if length.isdigit() else size)
        while chunk := _read(step, response, deadline, outside):
            size += len(chunk)
            _check_size(step, size)
            file.write(chunk)
        if response.length:
            raise _failed(step.url, f"it broke off after {size:,} bytes", is_passing=True)
    return began


def _read(step: FetchStep, response: HTTPResponse, deadline: float, outside: Outside) -> bytes:
    if outside.is_closed:
        raise _failed(step.url, "the build was asked to stop")
    if time.monotonic() > deadline:
        late = Diagnostic("E451", f"{step.url}: time was up", hint="raise `timeout`; the next build goes on from there")
        raise FetchError(late, is_late=True)
    try:
        return response.read1(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _failed(step.url, f"it broke off: {_text(error)}", is_passing=True) from None


@contextlib.contextmanager
def _answer(step: FetchStep, had: int, outside: Outside, deadline: float) -> Iterator[HTTPResponse]:
    """Give the answer that has the file, after all redirects."""
    address = _Address(step.url)
    allowed = {grant.name for grant in step.grants}
    headers = {"User-Agent": f"orch23/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
    if had:
        headers["Range"] = f"bytes={had}-"
    for _ in range(_MOST_REDIRECTS + 1):
        way = _way(address, outside.environ, min(_QUIET_S, max(0.1, deadline - time.monotonic())))
        connection = way.connection
        with contextlib.closing(connection), outside.breakable(partial(_cut, connection)):
            try:
                connection.request("GET", way.target, headers={**headers, **way.headers})
                response = connection.getresponse()
            except (OSError, HTTPException, ValueError) as error:
                is_passing = not isinstance(error, ssl.SSLCertVerificationError)
                raise _failed(address.url, _text(error), is_passing=is_passing) from None
            if response.status in _REDIRECTS:
                address = _redirected(address, response.getheader("Location", ""), allowed)
                continue
            if response.status == _NOT_SATISFIABLE and had:
                del headers["Range"]
                had = 0
                continue
            if response.status not in (_OK, _PARTIAL):
                what = f"the server says {response.status} {response.reason}".rstrip()
                raise _failed(address.url, what, is_passing=response.status in _PASSING)
            yield response
            return
    raise _failed(step.url, f"more than {_MOST_REDIRECTS} redirects")


def _redirected(before: _Address, location: str, allowed: set[str]) -> _Address:
    url = urljoin(before.url, location).partition("#")[0]
    fault = url_fault(url)
    if fault is not None:
        raise _refused(before.url, f"redirects to an address that {fault}", "name the file's own address")
    after = _Address(url)
    if before.is_safe and not after.is_safe:
        raise _refused(before.url, f"redirects from https to {origin(url)}", "name an address that stays with https")
    if origin(url) not in allowed:
        hint = f"if it is meant, write `redirects: [{origin(url)}]` into the step"
        raise _refused(before.url, f"redirects to {origin(url)}, which the pipeline does not name", hint)
    return after


# ---- connections ------------------------------------------------------------------------------


class _Way(Struct, frozen=True):
    """How a server is asked: by a connection, not made yet, to it or to a proxy, for a target."""

    connection: HTTPConnection
    target: str
    headers: Mapping[str, str] = {}


def _way(address: _Address, environ: Mapping[str, str], timeout_s: float) -> _Way:
    """Return how to ask the server of an address, with the proxy of the environment."""
    host = address.parts.hostname or ""
    proxy = _proxy(address, environ)
    where = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else address.parts
    port = where.port or (address.port if not proxy else 80)
    made: HTTPConnection
    if address.is_safe:
        made = HTTPSConnection(where.hostname or "", port, timeout=timeout_s, context=ssl.create_default_context())
    else:
        made = HTTPConnection(where.hostname or "", port, timeout=timeout_s)
    if not proxy:
        made._create_connection = _connect  # type: ignore[attr-defined]  # noqa: SLF001 - of all versions since 2.7
        return _Way(made, address.target)
    with contextlib.suppress(ValueError):  # a name is looked up by the proxy
        _check_address(host, host)
    login = {"Proxy-Authorization": f"Basic {_login(where)}"} if where.username else {}
    if address.is_safe:
        made.set_tunnel(host, address.port, headers=login)
        return _Way(made, address.target)
    return _Way(made, f"http://{address.parts.netloc}{address.target}", login)


def _proxy(address: _Address, environ: Mapping[str, str]) -> str:
    """Return the proxy of the environment for an address, empty where there is none."""
    scheme, host = address.parts.scheme.lower(), address.parts.hostname or ""
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    proxy = next((environ[name] for name in names if environ.get(name)), "")
    none = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return "" if proxy and proxy_bypass_environment(f"{host}:{address.port}", {"no": none}) else proxy


def _login(proxy: SplitResult) -> str:
    return b64encode(f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()).decode("ascii")


def _connect(
    where: tuple[str, int], timeout: float | None = None, source_address: tuple[str, int] | None = None
) -> socket.socket:
    """Connect to a server at one of the addresses that its name leads to, of which none may be forbidden."""
    host, port = where
    with contextlib.suppress(ValueError):  # a name
        _check_address(host, host)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, place in found:
        _check_address(host, str(place[0]))
    error: OSError | None = None
    for *_, place in found:
        try:
            seconds = min(timeout or _CONNECT_S, _CONNECT_S)
            made = socket.create_connection((str(place[0]), port), seconds, source_address)
        except OSError as refused:
            error = refused
        else:
            made.settimeout(timeout)
            return made
    raise error or OSError(f"{host} has no address")


def _check_address(host: str, written: str) -> None:
    """Refuse an address at which clouds answer with keys of this machine.

    Raises:
        FetchError: it is one.
        ValueError: it is no address, but a name.

    """
    address = ipaddress.ip_address(written.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_link_local or address in _METADATA or address.is_multicast or address.is_unspecified:
        raise _refused(host, f"leads to {address}, which no step may reach", "name another server")


def _cut(connection: HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


# ---- what goes wrong --------------------------------------------------------------------------


def _failed(url: str, what: str, *, is_passing: bool = False) -> FetchError:
    hint = "check the address and the network; what came is kept, and the next build goes on from there"
    return FetchError(Diagnostic("E451", f"{url}: {what}", hint=hint), is_passing=is_passing)


def _refused(who: str, what: str, hint: str) -> FetchError:
    return FetchError(Diagnostic("E454", f"{who} {what}", hint=hint))


def _check_size(step: FetchStep, size: int) -> None:
    if size > step.max_bytes:
        message = f"{step.url} has {size:,} bytes or more, the limit is {step.max_bytes:,}"
        raise FetchError(Diagnostic("E453", message, hint="raise `fetch.max_size` if it is meant to be so large"))


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, in pieces."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _digest(path: Path) -> str:
    found = sha256()
    for chunk in chunks_of(path):
        found.update(chunk)
    return found.hexdigest()
