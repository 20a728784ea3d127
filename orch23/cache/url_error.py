"""The error for the URL of a shared cache that cannot be used."""

from orch23.cache.codes import E_CACHE_URL
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError


def url_error(why: str) -> ConfigurationError:
    """Return the error that the URL of a shared cache cannot be used. `why` must not contain it: it has a password."""
    hint = "see `orch23 help shared-cache` for the addresses of caches, and how to log in"
    return ConfigurationError(Diagnostic(E_CACHE_URL, f"the URL of the shared cache {why}", hint=hint))
