"""Open the shared cache of a build or a plan, and report at the end what was done with it."""

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.consent import Consent, trust_command_line
from orch23.cli.console import Console
from orch23.cli.opening import cache_address
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, usual_executor
from orch23.decide.result_source import ResponseSource, ResultSource
from orch23.decide.shared_results import SharedResults
from orch23.engine.worker_threads import executor_of
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.model.action import NAMESPACES_TIER
from orch23.model.event import Event, Observer, Warned
from orch23.model.features import SHARED_CACHE, load_feature
from orch23.model.pipeline import CACHE_VARIABLE, LOCAL_EXECUTOR, DeclaredCache, Pipeline, Stage
from orch23.model.server_url import shown_url
from orch23.model.shared_cache import (
    HELPER_VARIABLE,
    TIERS,
    CacheOptions,
    CacheSettings,
    Tier,
    cache_grant,
    cache_settings,
    tier_of,
)
from orch23.model.step import Grant
from orch23.model.text import join_first
from orch23.report.diagnostics import visible
from orch23.report.shared_cache import shared_cache_text
from orch23.snapshot.store_registry import TRUST_VARIABLE
from orch23.text.secrets import Secrets, secrets_from

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


class OpenedSource(Struct, frozen=True, kw_only=True):
    """What the feature for shared caches has opened. `responses` are None if they are not shared.

    `unsigned` is why results are not stored that should be: the user has no key for them.
    """

    source: ResultSource
    responses: ResponseSource | None
    writes: bool
    unsigned: str


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
    opened: OpenedSource | None = load_feature(SHARED_CACHE["source"])(
        project, settings, executor, partial(_warn, events), is_option=write, downloads=downloads
    )
    if opened is None:
        return OpenedCache(None, events)
    responses = None
    if opened.responses is not None:
        from orch23.decide.shared_responses import SharedResponses  # noqa: PLC0415 - few pipelines share them

        responses = SharedResponses(opened.responses, secrets, writes=opened.writes and downloads)
        project.store.exchanges.use_cache(responses.find, responses.share)
    results = SharedResults(
        source=opened.source,
        contents=project.store.contents,
        observer=events,
        secrets=secrets,
        clock=monotonic,
        least_tier=partial(_least_tier, settings, project.pipeline, executor),
        writes=opened.writes,
        verifies=settings.verify == "always",
        responses=responses,
        unsigned=opened.unsigned,
    )
    return OpenedCache(results, events)


def granted_settings(
    declared: DeclaredCache, environ: Mapping[str, str], options: CacheOptions, consent: Consent
) -> tuple[CacheSettings, Grant | None]:
    """Return the settings of the cache, and the grant that the user has not given for the cache of the pipeline.

    Raises:
        ConfigurationError: the cache is named wrongly.
    """
    grant = cache_grant(declared, environ, options)
    is_trusted = grant is None or consent.is_granted(grant)
    settings = cache_settings(declared, environ, options, is_trusted=is_trusted)
    if grant is not None and consent.is_stored(grant):  # and not only ORCH23_TRUST=1, which shows no address
        settings = replace(settings, stranger="")
    return settings, None if is_trusted else grant


def _least_tier(settings: CacheSettings, pipeline: Pipeline, named: str | None, stage: Stage) -> Tier:
    if stage.min_tier == NAMESPACES_TIER or (
        settings.tier is None and executor_of(stage, pipeline, usual_executor(pipeline, named)) != LOCAL_EXECUTOR
    ):
        return TIERS[-1]
    return settings.tier or (tier_of([best_tier_once().tier]) if stage.sandbox else TIERS[0])


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


# Variables of options of `orch23 build`.
CACHE_OPTION: Final = "ORCH23_BUILD_CACHE"
WRITE_OPTION: Final = "ORCH23_BUILD_CACHE_WRITE"
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


class SharedSetup(Struct, frozen=True, kw_only=True):
    """What a build would share, as `doctor` is asked for it.

    `here` is the folder of a relative path in the environment. With `online`, each server gets one request.
    """

    here: Path
    root: Path
    pipeline: Pipeline | None
    environ: Mapping[str, str]
    trust_command: str
    online: bool

    @property
    def options(self) -> CacheOptions:
        """The options of a build, by their variables."""
        url = cache_address(self.here, self.environ.get(CACHE_OPTION))
        return CacheOptions(url=url, write=self.environ.get(WRITE_OPTION, "").lower() in _YES)

    def settings(self) -> tuple[CacheSettings, Grant | None]:
        """Return the settings of the cache, and the grant that the user has not given, as `granted_settings`."""
        declared = {} if self.pipeline is None else self.pipeline.cache
        return granted_settings(declared, self.environ, self.options, Consent.of(self.root, self.environ))
