"""Validate, normalize and compare URLs of servers."""

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

_USUAL_PORTS = {"http": 80, "https": 443}
_FIRST_PRINTABLE = 0x21
_DELETE = 0x7F
# A build has few servers, and looks at their URLs several times a call.
_SERVERS = 256


@lru_cache(maxsize=_SERVERS)
def normalize_url(url: str) -> str:
    """Return a valid URL as it is hashed and called: host in lower case, no default port, no slash at the end.

    The path keeps its case: for a server another case may be another path.
    """
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower().rstrip(".")
    name = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _USUAL_PORTS.get(scheme)} else f":{parts.port}"
    return f"{scheme}://{name}{port}{parts.path.rstrip('/')}"


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return host and port of an http(s) URL; None if a text is not one, such as a command."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port or _USUAL_PORTS.get(url.scheme)
    except ValueError:
        return None
    return (host, port) if host and port and url.scheme in _USUAL_PORTS else None


def without_login(url: str) -> str:
    """Return a URL without user and password."""
    login, sign, _ = urlsplit(url).netloc.rpartition("@")
    return url.replace(f"{login}{sign}", "", 1)


def url_origin(url: str) -> str:
    """Return scheme, host and port of a valid URL, normalized."""
    return "/".join(normalize_url(url).split("/", 3)[:3])


@lru_cache(maxsize=_SERVERS)
def is_loopback(url: str) -> bool:
    """Return whether a URL is of this machine, by its host only; no name is resolved."""
    try:
        host = (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Older Pythons return False for `is_loopback` of ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(mapped.is_loopback if mapped is not None else address.is_loopback)


@lru_cache(maxsize=_SERVERS)
def url_fault(url: str) -> str | None:
    """Return what is wrong with the URL of a server, such as `has no host`; None if it can be called.

    The text never contains the URL: the wrong part may be a password.
    """
    if any(ord(character) < _FIRST_PRINTABLE or ord(character) == _DELETE for character in url):
        return "has a blank or a control character"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "has a host or a port that cannot be read"
    scheme = parts.scheme.lower()
    rules = (
        (scheme not in _USUAL_PORTS, "has to begin with http:// or https://"),
        (
            scheme == "http" and bool(parts.hostname) and not is_loopback(url),
            "has plain http to another machine, where key and prompts can be read on the way: use https",
        ),
        ("@" in parts.netloc, "has a user name or a password, and an address is written into recordings"),
        (not parts.hostname, "has no host"),
        (port == 0, "has the port 0"),
        ("?" in url, "has a query"),
        ("#" in url, "has a fragment"),
    )
    return next((why for broken, why in rules if broken), None)


def recordable_model(name: str) -> str:
    """Return the name of a model for records: printable, and without the folder if it is the path of a file.

    A server of local models may name its model by a path of its machine.
    """
    printable = "".join(character for character in name if character.isprintable())
    return printable.rpartition("/")[2] if printable.startswith("/") else printable


def shown_url(url: str) -> str:
    """Return the URL of a shared cache or a server for messages: without a user name, a password or options."""
    scheme, separator, rest = url.partition("://")
    address, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}{separator}{address.rpartition('@')[2]}{slash}{path}" if separator else url
