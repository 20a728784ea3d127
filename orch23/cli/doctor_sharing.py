"""Check for `doctor` what builds share: the shared cache, its keys and credentials, and an executor elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from orch23.cache.bounds import guarded
from orch23.cache.client_certificate import client_certificate, validity_fault
from orch23.cache.daemon_threads import DaemonThreads
from orch23.cache.registry import no_credentials, open_shared_cache, shown_url
from orch23.cli.consent import Consent
from orch23.cli.doctor_finding import DoctorFinding
from orch23.cli.opening import cache_address
from orch23.cli.shared_cache import granted_settings, signatures_of
from orch23.decide.secrets import secrets_from
from orch23.execute.credential_helper import credential_helper
from orch23.execute.server_login import cache_opener, credentials_of
from orch23.model.digest import digest_bytes
from orch23.model.errors import CacheFault, ConfigurationError
from orch23.model.pipeline import CACHE_VARIABLE, LOCAL_EXECUTOR, DeclaredCache, Pipeline
from orch23.model.ports import SharedCache
from orch23.model.shared_cache import HELPER_VARIABLE, CacheOptions, CacheSettings
from orch23.report.values import pluralize

_NO_ENTRY: Final = digest_bytes(b"orch23 doctor asks for an entry that no cache has\n")
_REPLY_S = 10.0
"""How long a shared cache may take to reply."""
# Variables of options of `orch23 build`.
_CACHE_OPTION: Final = "ORCH23_BUILD_CACHE"
_EXECUTOR_OPTION: Final = "ORCH23_BUILD_EXECUTOR"
_WRITE_OPTION: Final = "ORCH23_BUILD_CACHE_WRITE"
_SCHEDULER_OPTION: Final = "ORCH23_BUILD_SCHEDULER"
_WORKER_SCHEDULER: Final = "ORCH23_WORKER_SCHEDULER"
_WORKER_CACHE: Final = "ORCH23_WORKER_CACHE"
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


def sharing_findings(
    here: Path, root: Path, pipeline: Pipeline | None, environ: Mapping[str, str], trust_command: str, *, online: bool
) -> Iterator[DoctorFinding]:
    """Give what a build would use of a shared cache and of an executor elsewhere, without secrets.

    `online` sends one request to each of them. `here` is the folder of a relative path in the environment.
    """
    options = CacheOptions(
        url=cache_address(here, environ.get(_CACHE_OPTION)), write=environ.get(_WRITE_OPTION, "").lower() in _YES
    )
    declared = {} if pipeline is None else pipeline.cache
    redact = secrets_from(environ).redact
    for found in (
        *_caught("shared cache", lambda: _cache(declared, options, root, environ, trust_command, online=online)),
        *_caught("executor", lambda: _executor(pipeline, declared, options, root, environ, online=online)),
        *_caught("worker", lambda: _worker(here, environ)),
    ):
        yield replace(found, value=redact(found.value), hint=redact(found.hint))


def _caught(name: str, check: Callable[[], Iterator[DoctorFinding]]) -> Iterator[DoctorFinding]:
    """Give the findings of a check, and why it cannot go on."""
    try:
        yield from check()
    except ConfigurationError as error:
        first = error.diagnostics[0]
        yield DoctorFinding(name, first.message, ok=False, hint=first.hint or "")


# ---- the shared cache -------------------------------------------------------------------------------


def _cache(
    declared: DeclaredCache,
    options: CacheOptions,
    root: Path,
    environ: Mapping[str, str],
    trust_command: str,
    *,
    online: bool,
) -> Iterator[DoctorFinding]:
    settings, grant = granted_settings(declared, environ, options, Consent.of(root, environ))
    if grant is not None:
        value = f"{shown_url(grant.name)} of the pipeline is not used: you have not allowed it"
        yield DoctorFinding("shared cache", value, ok=False, hint=f"`{trust_command}` allows it")
        return
    if not settings.reads:
        if options.url or environ.get(CACHE_VARIABLE) or declared.get("url") or declared.get("mode"):
            yield DoctorFinding("shared cache", "off")
        return
    address = shown_url(settings.url)
    yield DoctorFinding("shared cache", f"{address}{_source(options, environ)}: {_mode(settings, options)}")
    yield from _caught("cache keys", lambda: _keys(settings, root, environ))
    own_url = "" if settings.stranger else settings.url
    logins = [
        *_caught("credential helper", lambda: _helper(own_url, root, environ)),
        *_caught("client certificate", lambda: _certificate("client certificate", own_url, environ)),
    ]
    yield from logins
    if not all(one.ok for one in logins):
        return
    yield from _caught("cache access", lambda: _access(settings, root, environ, online=online))


def _source(options: CacheOptions, environ: Mapping[str, str]) -> str:
    name = _CACHE_OPTION if options.url else CACHE_VARIABLE if environ.get(CACHE_VARIABLE) else ""
    return f" of {name}" if name else " of the pipeline, which you have allowed"


def _mode(settings: CacheSettings, options: CacheOptions) -> str:
    if settings.writes:
        of_kind = "it is a directory" if settings.directory is not None else "the pipeline has `mode: read-write`"
        why = f"{_WRITE_OPTION} is set" if options.write else of_kind
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


def _helper(url: str, root: Path, environ: Mapping[str, str], name: str = "") -> Iterator[DoctorFinding]:
    helper = credential_helper(url, root, environ)
    if helper is not None:
        yield DoctorFinding(f"{name}credential helper", f"{helper.program}, named in {HELPER_VARIABLE}")


def _certificate(name: str, url: str, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Give the certificate that a server with grpcs gets."""
    certificate = client_certificate(environ) if url.lower().startswith("grpcs://") else None
    if certificate is None:
        return
    files = certificate.read()
    if (fault := validity_fault(certificate.certificate, files)) is not None:
        yield DoctorFinding(name, fault, ok=False, hint="renew it")
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
    """Return why a cache does not reply to one request within some seconds; None if it does."""
    threads = DaemonThreads(1, "doctor-cache")
    reply = threads.submit(lambda: guarded(lambda: backend.entry(_NO_ENTRY)))
    threads.stop()
    try:
        reply.result(_REPLY_S)
    except TimeoutError:
        return f"no reply within {_REPLY_S:g} s"
    except CacheFault as fault:
        backend.close()
        return fault.message
    backend.close()
    return None


# ---- the executor -----------------------------------------------------------------------------------


def _executor(
    pipeline: Pipeline | None,
    declared: DeclaredCache,
    options: CacheOptions,
    root: Path,
    environ: Mapping[str, str],
    *,
    online: bool,
) -> Iterator[DoctorFinding]:
    own, of_pools = (LOCAL_EXECUTOR, ()) if pipeline is None else (pipeline.executor, pipeline.pool_executors.values())
    for name in dict.fromkeys((environ.get(_EXECUTOR_OPTION) or own, *of_pools)):
        if name != LOCAL_EXECUTOR:
            yield from _one_executor(name, declared, options, root, environ, online=online)


def _one_executor(
    name: str,
    declared: DeclaredCache,
    options: CacheOptions,
    root: Path,
    environ: Mapping[str, str],
    *,
    online: bool,
) -> Iterator[DoctorFinding]:
    if name == "reapi":
        yield from _server(root, environ, online=online)
        return
    if name != "dask":
        yield DoctorFinding("executor", f"`{name}`, of a plugin")
        return
    from orch23.execute.remote.dask_engine import count_slots  # noqa: PLC0415 - few builds run elsewhere
    from orch23.execute.remote.dask_scheduler import check_scheduler, security_of  # noqa: PLC0415 - likewise
    from orch23.execute.remote.engine import EngineFault  # noqa: PLC0415 - likewise

    address = environ.get(_SCHEDULER_OPTION, "")
    check_scheduler(address)
    if address.startswith("tls://"):
        security_of(address, "client")
    settings, _ = granted_settings(declared, environ, options, Consent.of(root, environ))
    if not settings.reads:
        value = f"`{name}` needs a shared cache, through which workers get files, and none is used"
        yield DoctorFinding("executor cache", value, ok=False, hint="add `--cache URL`, which workers can use too")
    if not online:
        yield DoctorFinding("executor", f"`{name}`, with the scheduler {address}, which was not asked (`--online`)")
        return
    try:
        slots = count_slots(address)
    except EngineFault as fault:
        hint = "check its address, its certificates, and that it runs"
        yield DoctorFinding("executor", fault.reason, ok=False, hint=hint)
        return
    value = f"`{name}`, with the scheduler {address}, whose workers have {pluralize(slots, 'slot')}"
    hint = "" if slots else "start `orch23 worker` on a machine of the cluster"
    yield DoctorFinding("executor", value, ok=bool(slots), hint=hint)


def _worker(here: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Give what `orch23 worker` would use, if variables name its scheduler."""
    address = environ.get(_WORKER_SCHEDULER, "")
    if not address:
        return
    from orch23.execute.remote.dask_scheduler import check_scheduler, security_of  # noqa: PLC0415 - few machines

    check_scheduler(address)
    if address.startswith("tls://"):
        security_of(address, "worker")
    yield DoctorFinding("worker", f"with the scheduler {address}, which was not asked")
    url = cache_address(here, environ.get(_WORKER_CACHE)) or ""
    yield from _caught("worker credential helper", lambda: _helper(url, here, environ, "worker "))
    yield from _caught("worker certificate", lambda: _certificate("worker certificate", url, environ))


def _server(root: Path, environ: Mapping[str, str], *, online: bool) -> Iterator[DoctorFinding]:
    """Give whether a server of the Remote Execution API is named, and with `online` whether it runs actions."""
    from orch23.execute.remote.engine import EngineFault  # noqa: PLC0415 - few builds run elsewhere
    from orch23.execute.remote.reapi_address import reapi_address  # noqa: PLC0415 - likewise
    from orch23.execute.remote.reapi_engine import check_server  # noqa: PLC0415 - likewise
    from orch23.store.content_store import DiskContentStore  # noqa: PLC0415 - likewise
    from orch23.store.project_store import STORE_NAME  # noqa: PLC0415 - likewise

    address = environ.get(_SCHEDULER_OPTION, "")
    url = shown_url(reapi_address(address).url)
    of_certificate = [*_caught("executor certificate", lambda: _certificate("executor certificate", url, environ))]
    yield from of_certificate
    if not all(one.ok for one in of_certificate):
        return
    if not online:
        yield DoctorFinding("executor", f"`reapi`, with the server {url}, which was not asked (`--online`)")
        return
    try:
        check_server(address, DiskContentStore(root / STORE_NAME / "cas"), cache_opener(root, environ))
    except EngineFault as fault:
        hint = "check its address, its instance, and that it runs"
        yield DoctorFinding("executor", fault.reason, ok=False, hint=hint)
        return
    yield DoctorFinding("executor", f"`reapi`, with the server {url}, which runs actions")
