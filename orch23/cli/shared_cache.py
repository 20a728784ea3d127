"""Open the shared cache of a build or a plan, and report at the end what was done with it."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from orch23.cache.client import CacheClient
from orch23.cache.disk import DiskCache
from orch23.cli.consent import Consent, trust_command_line
from orch23.cli.project_loading import Project
from orch23.decide.secrets import Secrets
from orch23.engine.shared_results import SharedResults
from orch23.model.event import Event, Observer, SharedCacheUsed, Warned
from orch23.model.ports import SharedCache
from orch23.model.shared_cache import CacheOptions, CacheSettings, cache_grant, cache_settings
from orch23.model.text import join_first
from orch23.providers.prices import decimal_text
from orch23.report.values import format_bytes, pluralize

_FLUSH_S = 300.0
"""How long a build waits for its uploads. A cache that does not respond is switched off much earlier."""
_MOST_NAMES = 5


def open_shared_results(
    project: Project,
    *,
    url: str | None,
    write: bool,
    consent: Consent,
    secrets: Secrets,
    offline: bool = False,
    downloads: bool = True,
) -> SharedResults | None:
    """Return the results in the shared cache that the user or the pipeline names; None if none is used.

    A plan has `downloads=False`. `offline` allows only a directory.

    Raises:
        ConfigurationError: the cache is named wrongly, or something that it needs is missing.

    """
    environ, declared = project.settings.environ, project.pipeline.cache
    options = CacheOptions(url=url, write=write)
    grant = cache_grant(declared, environ, options)
    is_trusted = grant is None or consent.is_granted(grant)
    settings = cache_settings(declared, environ, options, is_trusted=is_trusted)
    results = SharedResults(
        None if offline and settings.directory is None else _client_of(settings),
        project.store.contents,
        identity_of=_identity_of(project, settings),
        secrets=secrets,
        clock=monotonic,
        downloads=downloads,
        writes=settings.writes,
        verifies=settings.verify == "always",
    )
    if grant is not None and not is_trusted:
        text = f"the shared cache {grant.name} of the pipeline is not used: `{trust_command_line(project.settings)}`"
        results.notice(Event(Warned(of_steps=True), f"{text} allows it", level="warning"))
    return results
