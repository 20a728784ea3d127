"""Open the shared cache that a build or a plan names: its server, its keys, and the environments of its results."""

import os
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from msgspec.structs import replace

from orch23.checks.registry import available_checks
from orch23.cli.consent import trust_command_line
from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, hidden_paths, usual_executor
from orch23.decide.shared_results import OpenedCache
from orch23.engine.worker_threads import executor_of
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.features.cache.claims import TIERS, tier_of
from orch23.features.cache.client import CacheClient
from orch23.features.cache.environment import EnvironmentIdentity, Environments
from orch23.features.cache.results import CacheResults
from orch23.features.cache.server_login import cache_opener
from orch23.features.cache.signatures import KEY_NAME, LIBRARY, KeyPair, PublicKey, Signatures
from orch23.features.cache.source import CacheResponses, CacheSource, IdentityOf
from orch23.model.action import NAMESPACES_TIER
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CacheFault, ConfigurationError, UsageError
from orch23.model.event import Event, Observer, Warned
from orch23.model.pipeline import CACHE_VARIABLE, LOCAL_EXECUTOR, Pipeline, Stage
from orch23.model.server_url import shown_url
from orch23.model.shared_cache import HELPER_VARIABLE, CacheSettings, Tier
from orch23.model.step import Grant
from orch23.model.text import visible
from orch23.providers.installation import install_command
from orch23.resolve.resolution import ResolvedStage
from orch23.snapshot.store_registry import TRUST_VARIABLE
from orch23.store.grants import user_folder
from orch23.store.safe_files import (
    NEW_FILE_FLAGS,
    PRIVATE_FOLDER_MODE,
    closing,
    make_folder,
    open_own,
    read_own,
    sync_folder,
    try_unlink,
    write_all,
)
from orch23.text.secrets import Secrets, secrets_from

NamedCache: TypeAlias = tuple[CacheSettings, Grant | None]
"""The settings of a cache, and a grant for it that the user has not given."""


class HeldEvents:
    """An observer that holds events until the run has a journal."""

    def __init__(self) -> None:
        """Hold no event yet."""
        self.held: list[Event] = []
        self._observer: Observer | None = None
        self._lock = threading.Lock()

    def notice(self, event: Event) -> None:
        """Hold an event, or pass it on. Any thread may call it."""
        with self._lock:
            if self._observer is None:
                self.held.append(event)
                return
        self._observer.notice(event)

    def warn(self, text: str, *, of_steps: bool = False) -> None:
        """Warn of the cache; with `of_steps` only in a build with something to do: others need no cache."""
        self.notice(Event(Warned(of_steps=of_steps), text, level="warning"))

    def pass_to(self, observer: Observer) -> None:
        """Pass all events to an observer, also later ones."""
        with self._lock:
            self._observer = observer
        for event in self.held:
            observer.notice(event)
        self.held.clear()


def open_for_build(project: Project, cache: NamedCache, secrets: Secrets, args: PipelineArguments) -> OpenedCache:
    """Return the results of a build in the shared cache. It is not called yet.

    Raises:
        ConfigurationError: something that it needs is missing.
    """
    events = HeldEvents()
    return OpenedCache(_open(project, cache, secrets, args, events, downloads=True), events.pass_to)


def open_for_plan(
    console: Console, project: Project, cache: NamedCache, args: PipelineArguments
) -> CacheResults | None:
    """Return the results in the shared cache for a plan, which downloads none; None if the cache is not used.

    They are closed, and the warnings about them are written, when the command ends.

    Raises:
        ConfigurationError: something that it needs is missing.
    """
    events = HeldEvents()
    results = _open(project, cache, secrets_from(project.settings.environ), args, events, downloads=False)

    def end() -> None:
        if results is not None:
            results.warn_of_tiers()
            results.close()
        for event in events.held:
            console.write_err(f"warning: {visible(event.message)}\n")

    console.resources.callback(end)
    return results


def _open(
    project: Project,
    cache: NamedCache,
    secrets: Secrets,
    args: PipelineArguments,
    events: HeldEvents,
    *,
    downloads: bool,
) -> CacheResults | None:
    """Return the results in the shared cache, or None after a warning. `args` are of the command line."""
    settings, grant = cache
    is_refused = settings.reads and args.offline and settings.directory is None
    for text in _warnings(project, settings, grant, is_refused=is_refused):
        events.warn(text, of_steps=True)
    if is_refused or not settings.reads:
        return None
    settings, signatures, unsigned = _signing(project, settings, is_option=args.cache_write)
    writes = settings.writes and signatures.can_sign
    try:
        backend = cache_opener(project.settings.root, project.settings.environ, settings.stranger)(settings.url)
    except CacheFault as fault:
        events.warn(f"the shared cache {settings.url} is not used: {fault.message}")
        return None
    client = CacheClient(backend, events.warn, name=settings.url)
    responses = None
    if settings.responses:
        responses = CacheResponses(client, signatures, secrets, writes=writes and downloads)
        project.store.exchanges.use_cache(responses.find, responses.share)
    source = CacheSource(
        client,
        project.store.contents,
        is_on_disk=project.store.workspace.has,
        identity=_identities(settings.platform, project, args.executor),
        downloads=downloads,
        signatures=signatures,
    )
    return CacheResults(
        source=source,
        contents=project.store.contents,
        observer=events,
        secrets=secrets,
        clock=monotonic,
        least_tier=partial(_least_tier, settings, project.pipeline, args.executor),
        writes=writes,
        verifies=settings.verify == "always",
        responses=responses,
        unsigned=unsigned,
    )


def _warnings(project: Project, settings: CacheSettings, grant: Grant | None, *, is_refused: bool) -> Iterator[str]:
    """Give why the cache is not used, or gets no credentials."""
    command = partial(trust_command_line, project.settings)
    if grant is not None:
        yield f"the shared cache {grant.name} is not used: `{command()}` allows it"
    if settings.stranger and settings.directory is None and project.settings.environ.get(HELPER_VARIABLE):
        text = f"the shared cache {shown_url(settings.url)} gets no credentials, since only the pipeline names it"
        yield f"{text}; name it in {CACHE_VARIABLE}, or run `{command()}` without {TRUST_VARIABLE}"
    if is_refused:
        yield f"the shared cache {shown_url(settings.url)} is not used because of `--offline`"


def _least_tier(settings: CacheSettings, pipeline: Pipeline, named: str | None, stage: Stage) -> Tier:
    if stage.min_tier == NAMESPACES_TIER or (
        settings.tier is None and executor_of(stage, pipeline, usual_executor(pipeline, named)) != LOCAL_EXECUTOR
    ):
        return TIERS[-1]
    return settings.tier or (tier_of([best_tier_once().tier]) if stage.sandbox else TIERS[0])


def _signing(project: Project, settings: CacheSettings, *, is_option: bool) -> tuple[CacheSettings, Signatures, str]:
    """Return the keys whose signatures count, and why results are not stored that should be: the user has no key.

    `is_option`: `--cache-write` was given. The settings are only to read if no key can be used.
    """
    root, environ = project.settings.root, project.settings.environ
    try:
        signatures = signatures_of(settings, root, environ)
    except ConfigurationError as error:
        problem = error.diagnostics[0]
        if problem.code != "E732":
            raise
        # No build fails because of its cache: it is read, as by those who have none of the keys.
        settings = replace(settings, mode="read")
        unsigned = f"results are not stored in the shared cache: {problem.message}; {problem.hint}"
        return settings, signatures_of(settings, root, environ), unsigned
    mode = project.pipeline.cache.get("mode")
    # A directory that can be written does not show that the user wants to write to it.
    if signatures.can_sign or not (is_option or (settings.writes and mode == "read-write")):
        return settings, signatures, ""
    only = "without `--cache-write`, results are" if is_option else "with `mode: read` in `cache`, they are"
    unsigned = "results are not stored in the shared cache: you have none of the keys in `cache.signed_by`; "
    return settings, signatures, f"{unsigned}`orch23 cache key new NAME` creates one, and {only} only read"


def _identities(platform: str | None, project: Project, named: str | None) -> IdentityOf:
    pipeline = project.pipeline
    of_stage = partial(executor_of, pipeline=pipeline, usual=usual_executor(pipeline, named))
    checks = available_checks(pipeline.plugins)
    environments = Environments(platform=platform, checks=checks, executor_of=of_stage, closed=hidden_paths(project))

    def identity(resolved: ResolvedStage) -> EnvironmentIdentity:
        stage, interpreter = resolved.stage, Path(resolved.facts.interpreter)
        far = project.facts.tools_of((tool.digest for tool in stage.tools), interpreter, stage.cwd)
        # The key has the digest of the program, and not of the libraries that it loads.
        if platform is None and far:
            return EnvironmentIdentity(faults=(f"its tool {far[0].program} is not in a system directory",))
        return environments.of(stage, interpreter)

    return identity


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


_MAX_BYTES = 16_384
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def key_file(name: str, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of a private key: below `$XDG_CONFIG_HOME`, else `~/.config`.

    Raises:
        ConfigurationError: there is no such directory, or it is in the project at `root`.
    """
    config = user_folder(environ, "XDG_CONFIG_HOME", ".config")
    hint = "set HOME or XDG_CONFIG_HOME to a directory outside of the project"
    if config is None:
        raise ConfigurationError(Diagnostic("E732", "there is no directory for private keys", hint=hint))
    if config.resolve().is_relative_to(root.resolve()):
        message = f"the directory for private keys, {config}, is in the project"
        raise ConfigurationError(Diagnostic("E732", message, hint=hint))
    return config / "orch23" / "keys" / name


def create_key_file(path: Path, data: bytes) -> None:
    """Create the file of a private key, durably. An existing file is never replaced.

    Raises:
        ConfigurationError: the file exists.
        OSError: it cannot be written.
    """
    # The folder of the user may be a link.
    make_folder(path.parent.resolve(), PRIVATE_FOLDER_MODE)
    try:
        descriptor = open_own(path, NEW_FILE_FLAGS)
    except FileExistsError:
        message = f"the private key {path} exists"
        hint = "choose another name: results that it signed need its public key"
        raise ConfigurationError(Diagnostic("E732", message, hint=hint)) from None
    try:
        with closing(descriptor):
            write_all(descriptor, data)
            os.fsync(descriptor)
    except BaseException:
        try_unlink(path)
        raise
    sync_folder(path.parent)


def read_key_file(path: Path) -> bytes:
    """Return the bytes of a private key.

    Raises:
        ConfigurationError: the file does not exist, is not a regular file of this user, or others may read it.
    """
    if not os.path.lexists(path):
        hint = "create a key with `orch23 cache key new NAME`"
        raise ConfigurationError(Diagnostic("E732", f"the private key {path} does not exist", hint=hint))
    if (data := read_own(path, _OTHERS, _MAX_BYTES)) is not None:
        return data
    message = f"the private key {path} is not a file that only you can read"
    raise ConfigurationError(Diagnostic("E732", message, hint=f"make it yours, and run `chmod 600 {path}`"))


def create_signing_key(console: Console, *, name: str) -> None:
    """Create a private key outside of the project, and write the line of its public key."""
    if KEY_NAME.fullmatch(name) is None:
        hint = "use letters, digits and . _ @ -, at most 64, such as `ci`"
        raise UsageError(Diagnostic("E641", f"`{visible(name)}` cannot be the name of a key", hint=hint))
    path = key_file(name, project_root(console), console.environ)
    try:
        pair = KeyPair.generate(name)
    except ModuleNotFoundError as error:
        message = f"`orch23 cache key` needs the library `{LIBRARY}`, which is not installed"
        raise ConfigurationError(Diagnostic("E669", message, hint=install_command(LIBRARY))) from error
    create_key_file(path, pair.to_pem())
    console.write_out(f"{pair.public}\n")
    console.write_err(f"wrote the private key to {visible(str(path))}; add the line above to `cache.signed_by`\n")
