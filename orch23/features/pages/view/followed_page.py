"""The page of a run that goes on: made again when its journal has grown, or when the next run has begun."""

import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from orch23.cli.console import Console
from orch23.cli.opening import select_run
from orch23.features.pages.html.compose import compose_page
from orch23.features.pages.html.page import RunPage
from orch23.features.pages.html.rendering import page_policy, render_page
from orch23.features.pages.html.run_facts import JournalFold
from orch23.features.pages.writing import former_run, page_sources
from orch23.model.event import Event
from orch23.model.paths import LOGS_FOLDER
from orch23.model.run_facts import RunFacts
from orch23.report.formats import event_redactor
from orch23.store.run_logs import run_ids, whole_line
from orch23.store.safe_files import open_stream

_NONCE_BYTES = 18


class FollowedPage:
    """The page of a run that goes on. Safe for calls from several threads."""

    def __init__(self, console: Console, root: Path, run: str | None) -> None:
        """Follow a run, or the newest if none is named.

        Raises:
            NotFoundError: there is no such run.
        """
        self._console, self._root, self._logs = console, root, root / LOGS_FOLDER
        self._follows_newest, self._run = run is None, select_run(run_ids(self._logs), run)
        self._redact = event_redactor(console.environ)
        self._sources, self._sources_of = page_sources(console, root, self._run), self._run
        self._page: RunPage | None = None
        self._version = ""
        self._lock = threading.Lock()

    def poll(self) -> str:
        """Return the run of the page and the size of its journal: the page has changed if they are others."""
        with self._lock:
            return self._poll()

    def _poll(self) -> str:
        if self._follows_newest and (known := run_ids(self._logs)):
            self._run = known[0]
        try:
            return f"{self._run} {self._journal.stat().st_size}"
        except OSError:  # it was removed: the page stays as it is
            return self._version

    @property
    def _journal(self) -> Path:
        return self._logs / f"{self._run}.jsonl"

    def render(self) -> tuple[str, str]:
        """Return the page, and its content security policy."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        with self._lock:
            version = self._poll()
            if self._page is None or version != self._version:
                self._page, self._version = self._compose(), version
            page = self._page
        return render_page(page, nonce=nonce), page_policy(nonce)

    def _compose(self) -> RunPage:
        facts = facts_so_far(self._journal, self._redact)
        if facts.run_id != self._sources_of:
            self._sources, self._sources_of = page_sources(self._console, self._root, facts.run_id), facts.run_id
        return compose_page(facts, self._sources, former_run(self._logs, facts, self._redact))


def facts_so_far(journal: Path, redact: Callable[[Event], Event]) -> RunFacts:
    """Return what the journal of a run says so far: without damaged lines, and without one that is being written."""
    fold = JournalFold(journal.stem, redact)
    with open_stream(journal) as stream:
        for line in filter(None, map(whole_line, stream)):
            fold.add_line(line)
    return fold.facts
