"""Open a shared cache by its URL."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.ports import SharedCache
from orch23.model.server_url import is_loopback

if TYPE_CHECKING:
    from typing import TypeAlias

    from orch23.features.cache.client_certificate import ClientCertificate

    Credentials: TypeAlias = Callable[[str], Mapping[str, str]]
    Opener: TypeAlias = Callable[..., SharedCache]

# The scheme of the URL -> the function that opens it, and the library of an extra that it imports. A scheme ends in `s`
# if its connection is encrypted.
_OPENERS = {
    "file": ("orch23.features.cache.disk.open_disk", ""),
    **dict.fromkeys(("http", "https"), ("orch23.features.cache.http_cache.open_http", "")),
    **dict.fromkeys(("grpc", "grpcs"), ("orch23.features.cache.grpc_cache.open_grpc", "grpcio")),
    **dict.fromkeys(("s3", "gs", "az"), ("orch23.features.cache.object_store.open_object_store", "obstore")),
}
_PLAIN = frozenset({"http", "grpc"})
_SERVERS = _PLAIN | {"https", "grpcs"}
_FIRST_PRINTABLE = 0x21


def no_credentials(_url: str) -> Mapping[str, str]:
    """Return no headers."""
    return {}


def open_shared_cache(
    url: str, credentials: "Credentials" = no_credentials, certificate: "ClientCertificate | None" = None
) -> SharedCache:
    """Return the shared cache of a URL or of the path of a directory. It is not called yet.

    `credentials` gets the URL without its user name and password, and returns headers that log in to it; it is called
    before each request, and has priority over the name and password of the URL. A server with grpcs gets the
    `certificate`, whose files are read here.

    Raises:
        CacheFault: the certificate has expired.
        ConfigurationError: the URL cannot be used, or the library of an extra is not installed.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        return _open("file", url, credentials)
    if (why := _url_fault(scheme, url)) is not None:
        raise url_error(why)
    if scheme == "file":
        return _open(scheme, unquote(f"/{rest.partition('/')[2]}"), credentials)
    if scheme not in _SERVERS:
        return _open(scheme, url, credentials)
    clean, login = _without_login(url)
    # A password is not sent where others can read it.
    is_readable = scheme in _PLAIN and not is_loopback(clean)

    def headers(address: str) -> Mapping[str, str]:
        found = {**login, **credentials(address)}
        if found and is_readable:
            message = f"has {scheme} to another machine, where a password can be read"
            raise url_error(message)
        return found

    headers(clean)
    return _open(scheme, clean, headers, certificate if scheme == "grpcs" else None)


def _without_login(url: str) -> tuple[str, Mapping[str, str]]:
    """Return a URL without its user name and password and a slash at its end, and the header with these."""
    parts = urlsplit(url)
    user, at, address = parts.netloc.rpartition("@")
    clean = urlunsplit(parts._replace(netloc=address, path=parts.path.rstrip("/")))
    if not at:
        return clean, {}
    name, _, password = user.partition(":")
    login = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return clean, {"Authorization": f"Basic {login}"}


def _url_fault(scheme: str, url: str) -> str | None:
    """Return why a URL cannot be used. The text never contains the URL: the wrong part may be a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has a host or a port that cannot be read"
    is_file, is_server = scheme == "file", scheme in _SERVERS
    rules = (
        (scheme not in _OPENERS, f"has to begin with one of {', '.join(f'{name}://' for name in _OPENERS)}"),
        (any(ord(character) < _FIRST_PRINTABLE for character in url), "has a blank or a control character"),
        (is_file and parts.netloc not in {"", "localhost"}, "needs an absolute path: file:///path"),
        (not is_file and not parts.hostname, "has no host" if is_server else "has no bucket"),
        (port == 0, "has the port 0"),
        (is_server and bool(parts.query), "has a query"),
        (bool(parts.fragment), "has a fragment"),
        (not is_server and "@" in parts.netloc, "has a user name or a password: set the variables of its vendor"),
    )
    return next((why for is_broken, why in rules if is_broken), None)


def url_error(why: str) -> ConfigurationError:
    """Return the error that the URL of a shared cache cannot be used. `why` must not contain it: it has a password."""
    hint = "see `orch23 help shared-cache` for the addresses of caches, and how to log in"
    return ConfigurationError(Diagnostic("E721", f"the URL of the shared cache {why}", hint=hint))


def _open(
    scheme: str, url: str, credentials: "Credentials", certificate: "ClientCertificate | None" = None
) -> SharedCache:
    name, library = _OPENERS[scheme]
    module, _, function = name.rpartition(".")
    try:
        opener: Opener = getattr(import_module(module), function)
        return opener(url, credentials) if certificate is None else opener(url, credentials, certificate)
    except ModuleNotFoundError as error:
        if not library or (error.name or "").startswith("orch23."):
            raise
        from orch23.providers.installation import install_command  # noqa: PLC0415 - likewise

        message = f"the shared cache needs the library `{library}`, which is not installed"
        raise ConfigurationError(Diagnostic("E413", message, hint=install_command(library))) from None
