"""Open the shared cache of a build or a plan, and report at the end what was done with it."""

import threading
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from orch23.cache.client import CacheClient
from orch23.cache.registry import shown_url
from orch23.checks.registry import available_checks
from orch23.cli.consent import Consent, trust_command_line
from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, hidden_paths, usual_executor
from orch23.decide.secrets import Secrets, secrets_from
from orch23.engine.cache_source import CacheSource, IdentityOf
from orch23.engine.shared_results import SharedResults
from orch23.engine.shared_signatures import Signatures
from orch23.engine.worker_threads import executor_of
from orch23.execute.environment import Environments
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.server_login import cache_opener
from orch23.model.action import NAMESPACES_TIER
from orch23.model.diagnostic import Diagnostic
from orch23.model.environment import TIERS, Tier, tier_of
from orch23.model.errors import CacheFault, ConfigurationError
from orch23.model.event import Event, Observer, Warned
from orch23.model.pipeline import CACHE_VARIABLE, LOCAL_EXECUTOR, DeclaredCache, Pipeline, Stage
from orch23.model.shared_cache import HELPER_VARIABLE, CacheOptions, CacheSettings, cache_grant, cache_settings
from orch23.model.step import Grant
from orch23.model.text import join_first
from orch23.providers.installation import install_command
from orch23.report.diagnostics import visible
from orch23.report.shared_cache import shared_cache_text
from orch23.signing.keys import LIBRARY, KeyPair, PublicKey
from orch23.snapshot.store_registry import TRUST_VARIABLE
from orch23.store.key_files import key_file, read_key_file

_FLUSH_S = 300.0
"""How long a build waits for its uploads. A cache that does not respond is switched off much earlier."""
_MOST_NAMES = 5


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

    def pass_to(self, observer: Observer) -> None:
        """Pass all events to an observer, also later ones."""
        with self._lock:
            self._observer = observer
        for event in self.held:
            observer.notice(event)
        self.held.clear()


class OpenedCache(Struct, frozen=True):
    """The results in the shared cache, None if it is not used, and the events about it so far."""

    results: SharedResults | None
    events: HeldEvents


def open_cache(
    project: Project,
    *,
    url: str | None,
    write: bool,
    consent: Consent,
    secrets: Secrets,
    executor: str | None,
    offline: bool = False,
    downloads: bool = True,
) -> OpenedCache:
    """Return the shared cache that the user or the pipeline names. It is not called yet.

    `url`, `write` and `executor` are options of the command line. A plan has `downloads=False`.
    `offline` allows only a directory.

    Raises:
        ConfigurationError: the cache is named wrongly, or something that it needs is missing.

    """
    events = HeldEvents()
    options = CacheOptions(url=url, write=write)
    settings, grant = granted_settings(project.pipeline.cache, project.settings.environ, options, consent)
    if grant is not None:
        text = f"the shared cache {grant.name} is not used: `{trust_command_line(project.settings)}` allows it"
        _warn(events, text, of_steps=True)
    if settings.stranger and settings.directory is None and project.settings.environ.get(HELPER_VARIABLE):
        text = f"the shared cache {shown_url(settings.url)} gets no credentials, since only the pipeline names it"
        hint = f"name it in {CACHE_VARIABLE}, or run `{trust_command_line(project.settings)}` without {TRUST_VARIABLE}"
        _warn(events, f"{text}; {hint}", of_steps=True)
    is_refused = settings.reads and offline and settings.directory is None
    if is_refused:
        _warn(events, f"the shared cache {shown_url(settings.url)} is not used because of `--offline`", of_steps=True)
    if is_refused or not settings.reads:
        return OpenedCache(None, events)
    unsigned = ""
    try:
        signatures = signatures_of(settings, project.settings.root, project.settings.environ)
        mode = project.pipeline.cache.get("mode")
        # A directory that can be written does not show that the user wants to write to it.
        if not signatures.can_sign and (write or (settings.writes and mode == "read-write")):
            only = "without `--cache-write`, results are" if write else "with `mode: read` in `cache`, they are"
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
        _warn(events, f"the shared cache {settings.url} is not used: {fault.message}")
        return OpenedCache(None, events)
    client = CacheClient(backend, partial(_warn, events), name=settings.url)
    responses = None
    if settings.responses:
        from orch23.engine.shared_responses import SharedResponses  # noqa: PLC0415 - few pipelines share them

        responses = SharedResponses(client, secrets, signatures, writes=writes and downloads)
        project.store.exchanges.use_cache(responses.find, responses.share)
    source = CacheSource(
        client,
        project.store.contents,
        is_on_disk=project.store.workspace.has,
        identity_of=_identities(settings.platform, project, executor),
        downloads=downloads,
        signatures=signatures,
        responses=responses,
    )
    results = SharedResults(
        source,
        project.store.contents,
        events,
        secrets=secrets,
        clock=monotonic,
        least_tier=partial(_least_tier, settings, project.pipeline, executor),
        writes=writes,
        verifies=settings.verify == "always",
        unsigned=unsigned,
    )
    return OpenedCache(results, events)


def granted_settings(
    declared: DeclaredCache, environ: Mapping[str, str], options: CacheOptions, consent: Consent
) -> tuple[CacheSettings, Grant | None]:
    """Return the settings of the cache, and the grant that the user has not given for that of the pipeline.

    Raises:
        ConfigurationError: the cache is named wrongly.

    """
    grant = cache_grant(declared, environ, options)
    is_trusted = grant is None or consent.is_granted(grant)
    settings = cache_settings(declared, environ, options, is_trusted=is_trusted)
    if grant is not None and consent.is_stored(grant):  # and not only ORCH23_TRUST=1, which shows no address
        settings = replace(settings, stranger="")
    return settings, None if is_trusted else grant


def _identities(platform: str | None, project: Project, named: str | None) -> IdentityOf:
    """Return what finds the environment in which a stage runs: that of the executor of its pools."""
    pipeline = project.pipeline
    of_stage = partial(executor_of, pipeline=pipeline, usual=usual_executor(pipeline, named))
    checks = available_checks(pipeline.plugins)
    environments = Environments(platform=platform, checks=checks, executor_of=of_stage, closed=hidden_paths(project))
    return lambda resolved: environments.of(resolved.stage, Path(resolved.facts.interpreter))


def _least_tier(settings: CacheSettings, pipeline: Pipeline, named: str | None, stage: Stage) -> Tier:
    """Return the lowest tier of the sandbox whose results count for a stage with processes."""
    if stage.min_tier == NAMESPACES_TIER or (
        settings.tier is None and executor_of(stage, pipeline, usual_executor(pipeline, named)) != LOCAL_EXECUTOR
    ):
        return TIERS[-1]
    return settings.tier or (tier_of([best_tier_once().tier]) if stage.sandbox else TIERS[0])


def signatures_of(settings: CacheSettings, root: Path, environ: Mapping[str, str]) -> Signatures:
    """Return the keys whose signatures count, and that of the user among them.

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


def open_cache_for_plan(console: Console, project: Project, args: PipelineArguments) -> SharedResults | None:
    """Return the results in the shared cache for a plan, which downloads none; None if the cache is not used.

    They are closed, and the warnings about them are written, when the command ends.
    """
    environ = project.settings.environ
    opened = open_cache(
        project,
        url=cache_address(console.here, args.cache),
        write=args.cache_write,
        consent=Consent.of(project.settings.root, environ),
        secrets=secrets_from(environ),
        executor=args.executor,
        offline=args.offline,
        downloads=False,
    )

    def end() -> None:
        if opened.results is not None:
            opened.results.warn_of_tiers()
            opened.results.close()
        for event in opened.events.held:
            console.write_err(f"warning: {visible(event.message)}\n")

    console.resources.callback(end)
    return opened.results


def _warn(observer: Observer, text: str, *, of_steps: bool = False) -> None:
    """Warn of the cache; with `of_steps` only in a build with something to do: others need no cache."""
    observer.notice(Event(Warned(of_steps=of_steps), text, level="warning"))


def finish_uploads(shared: SharedResults, observer: Observer) -> None:
    """Wait for the uploads of a build, and report what it did with the shared cache."""
    lesser = shared.warn_of_tiers()
    unsent = shared.flush(_FLUSH_S)
    names = join_first(unsent, _MOST_NAMES)
    # A cache that was switched off has been reported, with the reason.
    if unsent and shared.refusal is not None:
        why = f" ({shared.refusal})" if shared.refusal else ""
        _warn(observer, f"results are not stored in the shared cache, and stay on this machine: {names}{why}")
    used = shared.report(unsent)
    if used is not None:
        observer.notice(Event(used, f"shared cache: {shared_cache_text(used, names)}{lesser}"))
