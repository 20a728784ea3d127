"""Check for `doctor` the shared cache of builds, its keys and credentials."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from orch23.cli.doctor_finding import CACHE_OPTION, WRITE_OPTION, DoctorFinding, SharedSetup, caught
from orch23.execute.credential_helper import credential_helper
from orch23.features.cache.bounds import guarded
from orch23.features.cache.client_certificate import client_certificate
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.features.cache.opening import signatures_of
from orch23.features.cache.registry import no_credentials, open_shared_cache
from orch23.features.cache.server_login import credentials_of
from orch23.model.digest import digest_bytes
from orch23.model.errors import CacheFault
from orch23.model.pipeline import CACHE_VARIABLE
from orch23.model.ports import SharedCache
from orch23.model.server_url import shown_url
from orch23.model.shared_cache import HELPER_VARIABLE, CacheOptions, CacheSettings
from orch23.report.values import pluralize

_NO_ENTRY: Final = digest_bytes(b"orch23 doctor asks for an entry that no cache has\n")
_REPLY_S = 10.0
"""How long a shared cache may take to reply."""


def cache_findings(setup: SharedSetup) -> Iterator[DoctorFinding]:
    """Give what a build would use of a shared cache."""
    yield from caught("shared cache", lambda: _cache(setup))


def _cache(setup: SharedSetup) -> Iterator[DoctorFinding]:
    options, root, environ = setup.options, setup.root, setup.environ
    settings, grant = setup.settings()
    if grant is not None:
        value = f"{shown_url(grant.name)} of the pipeline is not used: you have not allowed it"
        yield DoctorFinding("shared cache", value, ok=False, hint=f"`{setup.trust_command}` allows it")
        return
    if not settings.reads:
        declared = {} if setup.pipeline is None else setup.pipeline.cache
        if options.url or environ.get(CACHE_VARIABLE) or declared.get("url") or declared.get("mode"):
            yield DoctorFinding("shared cache", "off")
        return
    address = shown_url(settings.url)
    yield DoctorFinding("shared cache", f"{address}{_source(options, environ)}: {_mode(settings, options)}")
    yield from caught("cache keys", lambda: _keys(settings, root, environ))
    own_url = "" if settings.stranger else settings.url
    logins = [
        *caught("credential helper", lambda: helper_findings(own_url, root, environ)),
        *caught("client certificate", lambda: certificate_findings("client certificate", own_url, environ)),
    ]
    yield from logins
    if not all(one.ok for one in logins):
        return
    yield from caught("cache access", lambda: _access(settings, root, environ, online=setup.online))


def _source(options: CacheOptions, environ: Mapping[str, str]) -> str:
    name = CACHE_OPTION if options.url else CACHE_VARIABLE if environ.get(CACHE_VARIABLE) else ""
    return f" of {name}" if name else " of the pipeline, which you have allowed"


def _mode(settings: CacheSettings, options: CacheOptions) -> str:
    if settings.writes:
        of_kind = "it is a directory" if settings.directory is not None else "the pipeline has `mode: read-write`"
        why = f"{WRITE_OPTION} is set" if options.write else of_kind
        return f"read and written, since {why}"
    if settings.directory is None:
        return "only read, since it is a server; `--cache-write` stores results there"
    return "only read, since the pipeline has `mode: read`; `--cache-write` stores results there"


def _keys(settings: CacheSettings, root: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    if not settings.signed_by:
        return
    signatures = signatures_of(settings, root, environ)
    listed = f"results count if one of {pluralize(len(settings.signed_by), 'key')} in `cache.signed_by` signed them"
    if not settings.writes:
        yield DoctorFinding("cache keys", listed)
    elif signatures.pair is not None:
        yield DoctorFinding("cache keys", f"{listed}; you have `{signatures.pair.public.name}`")
    else:
        hint = "`orch23 cache key new NAME` creates one; or let only CI store results"
        yield DoctorFinding("cache keys", f"{listed}; you have none, so nothing is stored", ok=False, hint=hint)


def helper_findings(url: str, root: Path, environ: Mapping[str, str], name: str = "") -> Iterator[DoctorFinding]:
    """Give the program with the credentials of a server."""
    helper = credential_helper(url, root, environ)
    if helper is not None:
        yield DoctorFinding(f"{name}credential helper", f"{helper.program}, named in {HELPER_VARIABLE}")


def certificate_findings(name: str, url: str, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Give the certificate that a server with grpcs gets."""
    certificate = client_certificate(environ) if url.lower().startswith("grpcs://") else None
    if certificate is None:
        return
    files = certificate.read()
    if files.fault:
        yield DoctorFinding(name, files.fault, ok=False, hint="renew it")
    else:
        yield DoctorFinding(name, f"{certificate.certificate}, valid until {files.ends:%Y-%m-%d}")


def _access(
    settings: CacheSettings, root: Path, environ: Mapping[str, str], *, online: bool
) -> Iterator[DoctorFinding]:
    """Open the cache, which needs its library, and with `online` look up an entry that does not exist."""
    # The helper is a program that calls a server: only with `online`.
    credentials = credentials_of(settings.url, root, environ) if online and not settings.stranger else no_credentials
    try:
        backend = open_shared_cache(settings.url, credentials)
    except CacheFault as fault:
        yield DoctorFinding("cache access", fault.message, ok=False, hint="check its address and your credentials")
        return
    if not online:
        backend.close()
        yield DoctorFinding("cache access", "not tried; `--online` asks it")
        return
    why = _fault(backend)
    if why is not None:
        hint = "builds go on without it; check its address, your network and your credentials"
        yield DoctorFinding("cache access", f"it cannot be used: {why}", ok=False, hint=hint)
    elif settings.directory is not None and not Path(settings.directory).is_dir():
        yield DoctorFinding("cache access", "the directory does not exist; a build that writes to it creates it")
    else:
        yield DoctorFinding("cache access", "it replies")


def _fault(backend: SharedCache) -> str | None:
    threads = DaemonThreads(1, "doctor-cache")
    reply = threads.submit(lambda: guarded(lambda: backend.entry(_NO_ENTRY)))
    threads.stop()
    why = None
    try:
        reply.result(_REPLY_S)
    except TimeoutError:
        return f"no reply within {_REPLY_S:g} s"
    except CacheFault as fault:
        why = fault.message
    backend.close()
    return why
