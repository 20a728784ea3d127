"""Open a server that the user names, with the credentials and the certificate that the environment names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from orch23.execute.credential_helper import credential_helper
from orch23.features.cache.client_certificate import client_certificate
from orch23.features.cache.registry import open_shared_cache
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CacheFault, ConfigurationError
from orch23.model.ports import SharedCache
from orch23.model.server_url import shown_url


def cache_opener(root: Path, environ: Mapping[str, str], stranger: str = "") -> Callable[[str], SharedCache]:
    """Return a function that opens the shared cache of a URL with the credentials of the user.

    Only a URL that the user has named or allowed may be opened with it. It raises as `open_shared_cache`, and
    CacheFault if the program that has the credentials fails. `root` is the folder whose programs do not count.
    `stranger` is a URL that gets no credentials.
    """

    def opened(url: str) -> SharedCache:
        if url == stranger:
            return _without_login(url)
        certificate = client_certificate(environ) if url.lower().startswith("grpcs://") else None
        return open_shared_cache(url, credentials_of(url, root, environ), certificate)

    return opened


def engine_opener(root: Path, environ: Mapping[str, str], stranger: str = "") -> Callable[[str], SharedCache]:
    """Return `cache_opener` for an executor, which cannot go on without the server.

    Its function raises a ConfigurationError in place of each CacheFault.
    """
    opener = cache_opener(root, environ, stranger)

    def opened(url: str) -> SharedCache:
        try:
            return opener(url)
        except CacheFault as fault:
            message = f"the server {shown_url(url)} cannot be used: {fault.message}"
            hint = "check its address and your credentials (`orch23 help remote`)"
            raise ConfigurationError(Diagnostic("E488", message, hint=hint)) from fault

    return opened


def worker_cache_opener(own_url: str, folder: Path, environ: Mapping[str, str]) -> Callable[[str], SharedCache]:
    """Return a function that opens caches for a worker: the one of its command line with the user's credentials.

    The cache of a build is opened without them, since its user could name a server that stores them. `own_url` is empty
    if the command line has none. Steps write in `folder`.
    """
    with_login = cache_opener(folder, environ)

    return lambda url: with_login(url) if own_url and url == own_url else _without_login(url)


def _without_login(url: str) -> SharedCache:
    if "endpoint" in parse_qs(urlsplit(url).query):
        # The library would log in there by the variables of its vendor.
        message = "it is the server of a bucket, which is used only if you name it, such as by `--cache`"
        raise CacheFault(message)
    return open_shared_cache(url)


def credentials_of(url: str, root: Path, environ: Mapping[str, str]) -> Callable[[str], Mapping[str, str]]:
    """Return a function that returns the headers of a request, from the program that the user names.

    It raises CacheFault if the program fails.

    Raises:
        ConfigurationError: there is no such program.
    """
    helper = credential_helper(url, root, environ)

    def headers(address: str) -> Mapping[str, str]:
        try:
            return {} if helper is None else dict(helper.headers_for(address))
        except ConfigurationError as error:
            raise CacheFault(error.diagnostics[0].message) from None

    return headers
