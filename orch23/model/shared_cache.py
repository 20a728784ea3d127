"""Settings of the shared cache, merged from pipeline, environment and command line.

Only a build that uses a shared cache imports this module.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct, convert

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.pipeline import CACHE_VARIABLE, NO_CACHE, DeclaredCache
from orch23.model.server_url import is_loopback, normalize_url, url_fault
from orch23.model.step import Grant

Tier: TypeAlias = Literal["none", "B", "A"]
"""How much the sandbox isolated the processes of a result, the least first (ADR 14)."""
PLATFORM_HINT = "state what all machines that share results have in common: `cache: {platform: NAME}`"
"""A hint for a stage whose environment has no identity."""
CacheMode: TypeAlias = Literal["off", "read", "read-write"]
HELPER_VARIABLE: Final = "ORCH23_CACHE_CREDENTIAL_HELPER"
"""The environment variable that names the program with the credentials of the server."""
_SERVERS = ("http", "https")
_OTHERS = ("grpc", "grpcs", "s3", "gs", "az")
"""Schemes of other servers and of buckets. `cache.registry` opens all of these."""
_MAX_ADDRESS = 4096


class _Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    responses: bool = False
    verify: Literal["always", "never"] = "never"
    platform: str | None = None
    signed_by: tuple[str, ...] = ()
    tier: Tier | None = None


class CacheSettings(_Terms, frozen=True, kw_only=True):
    """How a build uses the shared cache.

    `url` is the absolute path of a directory, or the normal URL of a server; empty with the mode `off`. With
    `responses` it has recorded responses of models too. `verify: always` runs the verification of a stage again before
    a result of the cache is used. `platform` replaces the identity of the environment of all stages. A result counts
    only if one of the public keys `signed_by` signed it; if there are none, signatures are not looked at. `tier` is the
    lowest tier of the sandbox whose results count, None that of this machine. `stranger` is
    the URL if it gets no credentials, since only a pipeline names it.
    """

    url: str = ""
    mode: CacheMode = "off"
    stranger: str = ""

    @property
    def reads(self) -> bool:
        """Return whether the build looks up results in the cache."""
        return self.mode != "off"

    @property
    def writes(self) -> bool:
        """Return whether the build stores its results in the cache."""
        return self.mode == "read-write"

    @property
    def directory(self) -> str | None:
        """Return the absolute path of the cache, if it is a directory; None for a server."""
        return self.url if self.url.startswith("/") else None


class CacheOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line: `--cache URL` and `--cache-write`.

    The caller makes the path of a directory absolute, by the working directory.
    """

    url: str | None = None
    write: bool = False


NO_OPTIONS: Final = CacheOptions()
"""A command line without options of the cache."""


class _Declared(_Terms, frozen=True, kw_only=True):
    url: str | None = None
    mode: CacheMode | None = None


def cache_grant(
    declared: DeclaredCache, environ: Mapping[str, str], options: CacheOptions = NO_OPTIONS
) -> Grant | None:
    """Return the consent that the build needs for the address of the pipeline; None if it does not use this address.

    Raises:
        ConfigurationError: as `cache_settings`.
    """
    own = convert(dict(declared), _Declared)
    if own.url is None or own.mode == "off" or _of_user(environ, options) is not None:
        return None
    url = _normal(own.url)
    # The user should know that credentials are sent to a server that a pipeline names.
    has_credentials = bool(environ.get(HELPER_VARIABLE)) and not url.startswith("/")
    # A build sends nothing to a server that the user has allowed it to read.
    is_written = own.mode == "read-write" and not url.startswith("/")
    keys = (HELPER_VARIABLE,) if has_credentials else ()
    return Grant(kind="cache-write" if is_written else "cache", name=url, keys=keys)


def cache_settings(
    declared: DeclaredCache,
    environ: Mapping[str, str],
    options: CacheOptions = NO_OPTIONS,
    *,
    is_trusted: bool = False,
) -> CacheSettings:
    """Return the settings of a build: the address of the command line, else of the environment, else of the pipeline.

    That of the pipeline counts only with `is_trusted`: the user has given the grant of `cache_grant`. The result may be
    `off`, with the other settings of the pipeline.

    A directory is read and written. A server is only read: writing needs the option `write`, or `mode: read-write`
    beside its address in the pipeline. `mode: read` makes a directory read-only, unless the option is given.
    `mode: off` turns off every cache that the command line does not name, and has no effect on one that it names.

    Raises:
        ConfigurationError: an address of the environment or the command line cannot be used, or `write` has no cache.
    """
    own = convert(dict(declared), _Declared)
    named = _of_user(environ, options)
    is_own = named is None and is_trusted and own.url is not None
    if is_own:
        named = _normal(own.url or "")
    if own.mode == "off" and not options.url:
        named = NO_CACHE
    mode: CacheMode = "off"
    if named not in {None, NO_CACHE}:
        is_written = own.mode != "read" and (str(named).startswith("/") or (is_own and own.mode == "read-write"))
        mode = "read-write" if options.write or is_written else "read"
    elif options.write:
        message = "`--cache-write` has no shared cache to write to"
        hint = "name one with `--cache URL`, or allow that of the pipeline with `orch23 trust`"
        raise ConfigurationError(Diagnostic("E730", message, hint=hint))
    return CacheSettings(
        url="" if mode == "off" else str(named),
        mode=mode,
        stranger=str(named) if is_own and mode != "off" else "",
        **{name: getattr(own, name) for name in _Terms.__struct_fields__},
    )


def _of_user(environ: Mapping[str, str], options: CacheOptions) -> str | None:
    """Return the address that the user names, or NO_CACHE; None if the user names none. An empty one counts as none."""
    for text, source in ((options.url, "--cache"), (environ.get(CACHE_VARIABLE), CACHE_VARIABLE)):
        if not text:
            continue
        if text == NO_CACHE:
            return NO_CACHE
        if (fault := cache_url_fault(text)) is not None:
            # Without the address: it may have a password.
            message = f"the address of the shared cache in {source} {fault}"
            raise ConfigurationError(Diagnostic("E730", message, hint=ADDRESS_FORMS))
        return _normal(text)
    return None


ADDRESS_FORMS: Final = "write the absolute path of a directory, or a URL with file://, https://, grpcs:// or s3://"
"""A hint about the addresses that a cache can have."""


def cache_url_fault(text: str) -> str | None:
    """Return what is wrong with the address of a cache, such as `has no host`; None if it can be used.

    The text never contains the address: the wrong part may be a password.
    """
    if len(text) > _MAX_ADDRESS:
        return f"is longer than {_MAX_ADDRESS} characters"
    if not text.isprintable():
        return "has a control character"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "has a host that cannot be read"
    if parts.scheme.lower() in _SERVERS:
        return url_fault(text)
    if parts.scheme.lower() in _OTHERS:
        unusual = (
            (not parts.netloc, "has no host and no bucket"),
            ("@" in parts.netloc, "contains a user name or a password"),
            (bool(parts.fragment), "has a fragment"),
            (parts.scheme.lower() == "grpc" and not is_loopback(text), "has grpc, which anyone on the way can read"),
        )
        return next((why for broken, why in unusual if broken), None)
    path = _path(text)
    rules = (
        (path is None, "is neither an absolute path nor a URL of a directory, a server or a bucket"),
        (path is not None and "\0" in path, "has a null character"),
        (path is not None and ".." in path.split("/"), "contains `..`"),
        (path is not None and not path.strip("/."), "is the root directory"),
    )
    return next((why for broken, why in rules if broken), None)


def _path(text: str) -> str | None:
    if text.startswith("/"):
        return text
    parts = urlsplit(text)
    if parts.scheme.lower() != "file" or parts.netloc.lower() not in {"", "localhost"} or parts.query or parts.fragment:
        return None
    path = unquote(parts.path)
    return path if path.startswith("/") else None


def _normal(text: str) -> str:
    path = _path(text)
    scheme, _, rest = text.partition("://")
    if path is None and scheme.lower() in _OTHERS:
        return f"{scheme.lower()}://{rest.rstrip('/')}"
    if path is None:
        return normalize_url(text)
    return "/" + "/".join(name for name in path.split("/") if name not in {"", "."})
