"""Connect to the server of a file: by a proxy, within a deadline, and never to a forbidden address.

A host name is looked up once, and the connection is made to the address that was checked: a second lookup could return
another address. With `--offline` no name is looked up, and no connection leaves this machine.
"""

import contextlib
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from queue import Empty, SimpleQueue
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from orch23.attempt.safeguards import NetworkAccess
from orch23.features.fetch.step.addresses import forbidden_address, is_address
from orch23.features.fetch.step.spec import barred_offline
from orch23.model.diagnostic import Diagnostic
from orch23.model.server_url import is_loopback
from orch23.providers.connections import CallSockets

_READ_S, _CONNECT_S = 30.0, 10.0
# The addresses of a name of this machine with `--offline`, where names are not looked up.
_LOOPBACK = ("127.0.0.1", "::1")


class FetchError(Exception):
    """A file could not be fetched. `is_transient`: another try may succeed. `is_timeout`: the deadline has passed."""

    def __init__(self, diagnostic: Diagnostic, *, is_transient: bool = False, is_timeout: bool = False) -> None:
        """Create an error with a diagnostic."""
        super().__init__(diagnostic.message)
        self.diagnostic, self.is_transient, self.is_timeout = diagnostic, is_transient, is_timeout


def download_error(url: str, what: str, *, is_transient: bool = False) -> FetchError:
    """Return the error of a download that did not succeed."""
    hint = "check the address and the network; the next build resumes the download"
    return FetchError(Diagnostic("E451", f"{url}: {what}", hint=hint), is_transient=is_transient)


def download_timeout_error(url: str) -> FetchError:
    """Return the error of a stage whose time ended before it had its file."""
    hint = "raise `timeout`; the next build resumes the download"
    return FetchError(Diagnostic("E451", f"{url}: timed out", hint=hint), is_timeout=True)


def wrong_digest_error(name: str, found: str, expected: str) -> FetchError:
    """Return the error of a file that is not the one that the step names."""
    hint = "check the file; if the change is intended, write this digest into `fetch.sha256`"
    return FetchError(Diagnostic("E452", f"{name} has the SHA-256 {found}, not {expected}", hint=hint))


def refused_address_error(subject: str, what: str, hint: str) -> FetchError:
    """Return the error of an address that is not connected to."""
    return FetchError(Diagnostic("E454", f"{subject} {what}", hint=hint))


class DownloadWatch:
    """Ends one download at its deadline, or when the build is stopped.

    The timeout of a socket starts again with each byte, so that a slow server could send forever. Therefore another
    thread shuts the connection down.
    """

    def __init__(self, url: str, outside: NetworkAccess, timeout_s: float) -> None:
        """Create a watch for a download of `timeout_s` seconds from now on. `url` is for its errors."""
        self.outside, self.sockets = outside, CallSockets()
        self._url, self._deadline = url, time.monotonic() + timeout_s

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch the download in the body of the `with` statement."""
        with self.sockets.shut_down_after(max(0.0, self.left_s)), self.outside.cancellable(self.sockets.shut_down):
            yield

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
            raise download_error(self._url, "the build was interrupted")
        if self.sockets.is_shut_down or self.left_s <= 0:
            raise download_timeout_error(self._url)


def route_to(url: str, watch: DownloadWatch) -> tuple[HTTPConnection, str, Mapping[str, str]]:
    """Return a connection, not made yet, to the server of a URL or to a proxy of the environment.

    With it come the target to request from it, and headers for the proxy.
    """
    parts, environ = urlsplit(url), watch.outside.environ
    is_https, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (443 if is_https else 80)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    # A proxy would look up the name itself, so at least an address that is written in the URL is checked here.
    _check_address(host, host)
    proxy = _proxy(url, f"{host}:{port}", environ, offline=watch.outside.offline)
    where = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
    timeout_s = min(_READ_S, max(0.1, watch.left_s))
    connection = (
        HTTPSConnection(*where, timeout=timeout_s, context=_trusted(url, environ))
        if is_https
        else HTTPConnection(*where, timeout=timeout_s)
    )
    # http.client has had this attribute since Python 2.7. It is the only place where an address can be checked between
    # its lookup and the connection.
    watched = partial(_connect, watch, is_proxy=proxy is not None)
    connection._create_connection = watched  # type: ignore[attr-defined]  # noqa: SLF001 - no public name
    if proxy is None:
        return connection, target, {}
    named = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    login = {"Proxy-Authorization": f"Basic {b64encode(named.encode()).decode()}"} if proxy.username else {}
    if is_https:
        connection.set_tunnel(host, port, headers=login)
        return connection, target, {}
    return connection, f"http://{parts.netloc}{target}", login


def _trusted(url: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    path = environ.get("SSL_CERT_FILE") or None
    try:
        # OpenSSL would take the variable from the process: these settings may name another file.
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise download_error(url, f"the certificates in {path} cannot be read: {error}") from None


def _proxy(url: str, server: str, environ: Mapping[str, str], *, offline: bool) -> SplitResult | None:
    """Return the proxy of the environment for a URL, or None; offline, only a proxy on this machine."""
    scheme = urlsplit(url).scheme
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next(filter(environ.get, names), None)
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if name is None or proxy_bypass_environment(server, {"no": excluded}):
        return None
    named = environ[name] if "://" in environ[name] else f"http://{environ[name]}"
    # A proxy on another machine would see what an offline build fetches.
    if offline and not is_loopback(named):
        return None
    try:
        proxy = urlsplit(named)
        _ = proxy.port
    except ValueError:
        raise download_error(url, f"the proxy in {name} is not a valid URL") from None
    return proxy


def _connect(
    watch: DownloadWatch,
    where: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
    *,
    is_proxy: bool,
) -> socket.socket:
    """Connect to a server at one of the addresses of its name, of which none may be forbidden."""
    # The address of a proxy is not checked: the user has chosen it in the environment.
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
            watch.sockets.add(connection)
            return connection
    raise error or OSError(f"{host} has no address")


def _offline_addresses(host: str) -> tuple[str, ...]:
    """Return the loopback addresses of a host, without a lookup. Any other machine is refused."""
    if not is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}"):
        raise FetchError(barred_offline(host))
    return (host.rstrip("."),) if is_address(host) else _LOOPBACK


def _look_up(host: str, port: int, watch: DownloadWatch) -> tuple[str, ...]:
    """Return the addresses of a name. It raises OSError without one, after the deadline, and if the build stops."""
    # A thread calls the resolver: its own timeouts can be longer than the time that is left.
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
        raise timeout from None
    if isinstance(result, Exception):
        raise result
    return result


def _check_address(host: str, written: str) -> None:
    """Refuse an address at which a cloud serves the credentials of this machine. A name is not looked up here."""
    if (address := forbidden_address(written)) is not None:
        what = f"has the address {address}, which no step may connect to"
        raise refused_address_error(host, what, "name another server")
