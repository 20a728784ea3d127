"""Check for `doctor` the executors of builds on other machines, and what `orch23 worker` would use."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from orch23.cli.doctor_finding import DoctorFinding, SharedSetup, caught
from orch23.cli.opening import cache_address
from orch23.features.cache.doctor import certificate_findings, helper_findings
from orch23.features.cache.server_login import cache_opener
from orch23.features.remote.engine import EngineFault
from orch23.model.pipeline import LOCAL_EXECUTOR
from orch23.model.server_url import shown_url
from orch23.report.values import pluralize

# Variables of options of `orch23 build` and `orch23 worker`.
_EXECUTOR_OPTION: Final = "ORCH23_BUILD_EXECUTOR"
_SCHEDULER_OPTION: Final = "ORCH23_BUILD_SCHEDULER"
_WORKER_SCHEDULER: Final = "ORCH23_WORKER_SCHEDULER"
_WORKER_CACHE: Final = "ORCH23_WORKER_CACHE"


def executor_findings(setup: SharedSetup) -> Iterator[DoctorFinding]:
    """Give what a build would use of executors elsewhere, and what a worker on this machine would use."""
    yield from caught("executor", lambda: _executors(setup))
    yield from caught("worker", lambda: _worker(setup.here, setup.environ))


def _executors(setup: SharedSetup) -> Iterator[DoctorFinding]:
    pipeline = setup.pipeline
    own, of_pools = (LOCAL_EXECUTOR, ()) if pipeline is None else (pipeline.executor, pipeline.pool_executors.values())
    for name in dict.fromkeys((setup.environ.get(_EXECUTOR_OPTION) or own, *of_pools)):
        if name == "reapi":
            yield from _server(setup.root, setup.environ, online=setup.online)
        elif name == "dask":
            yield from _dask(setup)
        elif name != LOCAL_EXECUTOR:
            yield DoctorFinding("executor", f"`{name}`, of a plugin")


def _dask(setup: SharedSetup) -> Iterator[DoctorFinding]:
    from orch23.features.remote.dask_engine import DaskEngine  # noqa: PLC0415 - few builds run elsewhere
    from orch23.features.remote.dask_scheduler import check_scheduler, security_of  # noqa: PLC0415 - likewise

    environ = setup.environ
    address = environ.get(_SCHEDULER_OPTION, "")
    check_scheduler(address)
    if address.startswith("tls://"):
        security_of(address, "client")
    settings, _ = setup.settings()
    if not settings.reads:
        value = "`dask` needs a shared cache, through which workers get files, and none is used"
        yield DoctorFinding("executor cache", value, ok=False, hint="add `--cache URL`, which workers can use too")
    if not setup.online:
        yield DoctorFinding("executor", f"`dask`, with the scheduler {address}, which was not asked (`--online`)")
        return
    try:
        with closing(DaskEngine(address)) as engine:
            slots = engine.slots()
    except EngineFault as fault:
        hint = "check its address, its certificates, and that it runs"
        yield DoctorFinding("executor", fault.reason, ok=False, hint=hint)
        return
    value = f"`dask`, with the scheduler {address}, whose workers have {pluralize(slots, 'slot')}"
    hint = "" if slots else "start `orch23 worker` on a machine of the cluster"
    yield DoctorFinding("executor", value, ok=bool(slots), hint=hint)


def _worker(here: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    address = environ.get(_WORKER_SCHEDULER, "")
    if not address:
        return
    from orch23.features.remote.dask_scheduler import check_scheduler, security_of  # noqa: PLC0415 - few machines

    check_scheduler(address)
    if address.startswith("tls://"):
        security_of(address, "worker")
    yield DoctorFinding("worker", f"with the scheduler {address}, which was not asked")
    url = cache_address(here, environ.get(_WORKER_CACHE)) or ""
    yield from caught("worker credential helper", lambda: helper_findings(url, here, environ, "worker "))
    yield from caught("worker certificate", lambda: certificate_findings("worker certificate", url, environ))


def _server(root: Path, environ: Mapping[str, str], *, online: bool) -> Iterator[DoctorFinding]:
    from orch23.features.remote.reapi_address import reapi_address  # noqa: PLC0415 - likewise
    from orch23.features.remote.reapi_engine import check_server  # noqa: PLC0415 - likewise
    from orch23.store.content_store import DiskContentStore  # noqa: PLC0415 - likewise
    from orch23.store.project_store import STORE_NAME  # noqa: PLC0415 - likewise

    address = environ.get(_SCHEDULER_OPTION, "")
    url = shown_url(reapi_address(address).url)
    of_certificate = [
        *caught("executor certificate", lambda: certificate_findings("executor certificate", url, environ))
    ]
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
