"""Open the shared cache that a build or a plan names: its server, its keys, and the environments of its results."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace

from orch23.checks.registry import available_checks
from orch23.cli.project_loading import Project, hidden_paths, usual_executor
from orch23.cli.shared_cache import OpenedSource
from orch23.engine.worker_threads import executor_of
from orch23.features.cache.client import CacheClient
from orch23.features.cache.environment import Environments
from orch23.features.cache.key_files import key_file, read_key_file
from orch23.features.cache.server_login import cache_opener
from orch23.features.cache.signatures import Signatures
from orch23.features.cache.signing.keys import LIBRARY, KeyPair, PublicKey
from orch23.features.cache.source import CacheResponses, CacheSource, IdentityOf
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CacheFault, ConfigurationError
from orch23.model.shared_cache import CacheSettings
from orch23.providers.installation import install_command


def open_source(
    project: Project,
    settings: CacheSettings,
    executor: str | None,
    warn: Callable[[str], None],
    *,
    is_option: bool,
    downloads: bool,
) -> OpenedSource | None:
    """Return the results in the shared cache of some settings, or None after a warning. It is not called yet.

    `executor` and `is_option`, that of `--cache-write`, are of the command line. A plan has `downloads=False`.

    Raises:
        ConfigurationError: the cache is named wrongly, or something that it needs is missing.
    """
    unsigned = ""
    try:
        signatures = signatures_of(settings, project.settings.root, project.settings.environ)
        mode = project.pipeline.cache.get("mode")
        # A directory that can be written does not show that the user wants to write to it.
        if not signatures.can_sign and (is_option or (settings.writes and mode == "read-write")):
            only = "without `--cache-write`, results are" if is_option else "with `mode: read` in `cache`, they are"
            unsigned = "results are not stored in the shared cache: you have none of the keys in `cache.signed_by`; "
            unsigned += f"`orch23 cache key new NAME` creates one, and {only} only read"
    except ConfigurationError as error:
        problem = error.diagnostics[0]
        if problem.code != "E732":
            raise
        # No build fails because of its cache: it is read, as by those who have none of the keys.
        unsigned = f"results are not stored in the shared cache: {problem.message}; {problem.hint}"
        settings = replace(settings, mode="read")
        signatures = signatures_of(settings, project.settings.root, project.settings.environ)
    writes = settings.writes and signatures.can_sign
    try:
        backend = cache_opener(project.settings.root, project.settings.environ, settings.stranger)(settings.url)
    except CacheFault as fault:
        warn(f"the shared cache {settings.url} is not used: {fault.message}")
        return None
    client = CacheClient(backend, warn, name=settings.url)
    source = CacheSource(
        client,
        project.store.contents,
        is_on_disk=project.store.workspace.has,
        identity=_identities(settings.platform, project, executor),
        downloads=downloads,
        signatures=signatures,
    )
    responses = CacheResponses(client, signatures) if settings.responses else None
    return OpenedSource(source=source, responses=responses, writes=writes, unsigned=unsigned)


def _identities(platform: str | None, project: Project, named: str | None) -> IdentityOf:
    pipeline = project.pipeline
    of_stage = partial(executor_of, pipeline=pipeline, usual=usual_executor(pipeline, named))
    checks = available_checks(pipeline.plugins)
    environments = Environments(platform=platform, checks=checks, executor_of=of_stage, closed=hidden_paths(project))
    return lambda resolved: environments.of(resolved.stage, Path(resolved.facts.interpreter))


def signatures_of(settings: CacheSettings, root: Path, environ: Mapping[str, str]) -> Signatures:
    """Return the keys whose signatures count, and the user's key among them.

    Raises:
        ConfigurationError: all private keys that there are cannot be used, or the library is missing.
    """
    if not settings.signed_by:
        return Signatures()
    known = [PublicKey.parse(line) for line in settings.signed_by]
    faults: list[ConfigurationError] = []
    try:
        for key in known if settings.writes else ():
            try:
                # A line without a name has no file.
                place = key_file(key.name, root, environ) if key.name else None
                if place is not None and place.exists():
                    pair = KeyPair.from_pem(read_key_file(place), key.name)
                    if pair.public == key:
                        return Signatures(known, pair)
            except ConfigurationError as error:
                faults.append(error)
        import_module("cryptography")
    except ModuleNotFoundError as error:
        message = f"`cache.signed_by` needs the library `{LIBRARY}`, which is not installed"
        raise ConfigurationError(Diagnostic("E413", message, hint=install_command(LIBRARY))) from error
    if faults:
        raise faults[0]
    return Signatures(known)
