"""The page of a run that goes on, made again when its journal has new lines."""

import secrets
import threading
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import select_run
from orch23.features.pages.html.compose import compose_page
from orch23.features.pages.html.page import RunPage
from orch23.features.pages.html.rendering import page_policy, render_page
from orch23.features.pages.view.followed_run import FollowedRun
from orch23.features.pages.writing import former_run, page_sources
from orch23.model.paths import LOGS_FOLDER
from orch23.report.observers import event_redactor
from orch23.store.run_list import run_ids

_NONCE_BYTES = 18


class FollowedPage:
    """The page of a run that goes on. Safe for calls from several threads."""

    def __init__(self, console: Console, root: Path, run: str | None) -> None:
        """Follow a run, or the newest if none is named.

        Raises:
            NotFoundError: there is no such run.
        """
        self._console, self._root, self._logs = console, root, root / LOGS_FOLDER
        newest = select_run(run_ids(self._logs), run)
        self._redact = event_redactor(console.environ)
        self._run = FollowedRun(self._logs, None if run is None else newest, newest, self._redact)
        self._sources = page_sources(console, root, newest)
        self._sources_of = newest
        self._page: RunPage | None = None
        self._version = 0
        self._lock = threading.Lock()

    def poll(self) -> int:
        """Read what was written since the last call, and return a number that is higher if something was."""
        with self._lock:
            return self._run.poll()

    def render(self) -> tuple[str, str]:
        """Return the page, and its content security policy."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        with self._lock:
            version = self._run.poll()
            if self._page is None or version != self._version:
                self._page, self._version = self._compose(), version
            page = self._page
        return render_page(page, nonce=nonce), page_policy(nonce)

    def _compose(self) -> RunPage:
        facts = self._run.facts
        if facts.run_id != self._sources_of:
            self._sources, self._sources_of = page_sources(self._console, self._root, facts.run_id), facts.run_id
        former = former_run(self._logs, facts, self._redact)
        return compose_page(facts, self._sources, former)
