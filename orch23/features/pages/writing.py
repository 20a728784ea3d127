"""Run `report`: write a run as HTML, from its journal, the files of its attempts and the records of the store."""

import base64
import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from importlib import resources
from itertools import groupby, islice
from pathlib import Path

import jinja2
from msgspec.structs import replace

from orch23 import __version__
from orch23.cli.console import Console
from orch23.cli.named_files import write_named_file
from orch23.cli.opening import project_root, select_run
from orch23.cli.project_loading import read_yaml
from orch23.features.metrics.states import RunMetrics, runs_with_metrics, stored_metrics
from orch23.features.metrics.values import MetricsError, MetricValues, read_metrics
from orch23.features.pages.html.attempts import ChangeReader
from orch23.features.pages.html.compose import PageSources, compose_page
from orch23.features.pages.html.metrics import MetricsHistory
from orch23.features.pages.html.page import Row, RunPage, StageGroup
from orch23.features.pages.html.texts import LongText
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import CorruptStateError, NotFoundError, Orch23Error
from orch23.model.event import Event
from orch23.model.paths import LOGS_FOLDER
from orch23.model.patterns import lazy_pattern
from orch23.model.run_facts import RunFacts, RunFold
from orch23.model.text import visible
from orch23.report.formats import event_redactor
from orch23.store.access import foreign_store_warning
from orch23.store.project_store import ProjectStore, open_store
from orch23.store.run_logs import AttemptFiles, JournalLine, journal_pipeline, pipeline_journals, read_journal, run_ids

STDOUT = "-"
# The name of a file of an attempt is in the journal, which may come from anywhere: it must not lead out of the folder.
_PLAIN_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_CHARACTER_BYTES = 4
_MAX_RUNS_WITH_METRICS = 200
_MAX_METRICS_LINES = 20_000


def write_report(console: Console, *, run: str | None, out: str) -> None:
    """Write the page of a run to a file, or to stdout for `-`.

    Raises:
        NotFoundError: there is no such run, or its journal has no event.
        CorruptStateError: its journal is damaged before its end.
    """
    root = project_root(console)
    logs = root / LOGS_FOLDER
    chosen = select_run(run_ids(logs), run)
    lines = read_journal(logs / f"{chosen}.jsonl")
    if not lines:
        message = f"the journal of {chosen} has no events"
        raise NotFoundError(Diagnostic("E709", message, hint="`orch23 runs` lists the runs"))
    redact = event_redactor(console.environ)
    facts = read_run(chosen, lines, redact)
    sources = page_sources(console, root, chosen)
    notes = (*sources.notes, *_gone(facts, logs / chosen))
    text = render_page(compose_page(facts, replace(sources, notes=notes), former_run(logs, facts, redact)))
    if out == STDOUT:
        console.write_out(text)
        return
    write_named_file(console, out, text)
    console.write_err(f"wrote {visible(out)}\n")


def page_sources(console: Console, root: Path, run: str) -> PageSources:
    """Return what the page of a run needs besides its journal."""
    without_store = PageSources(
        read=partial(read_kept, root, run),
        redact=console.redact,
        generated=(Row("Page written by", f"orch23 {__version__}, Python {platform.python_version()}"),),
    )
    try:
        store = open_store(root)
    except Orch23Error as error:
        first = error.diagnostics[0].message if error.diagnostics else str(error)
        return replace(without_store, notes=(f"Changed files are not shown: {console.redact(first)}.",))
    console.resources.callback(store.index.close)
    if store.is_foreign:
        warning = foreign_store_warning(store.folder)
        return replace(without_store, notes=(f"Changed files are not shown: {warning.message}; {warning.hint}.",))
    changes = ChangeReader(store.records, store.contents).changes
    return replace(without_store, changes=changes, metrics=_metrics(store, run))


def read_kept(root: Path, run: str, stage: str, attempt: int, name: str, limit: int) -> LongText | None:
    """Return at least `limit` characters of a file of an attempt; None if there is none."""
    if _PLAIN_NAME.fullmatch(name) is None:
        return None
    files = AttemptFiles(root / LOGS_FOLDER / run)
    found = files.read(stage, attempt, name, _MAX_CHARACTER_BYTES * limit)
    if found is None:
        return None
    data, size = found
    text = data.decode("utf-8", errors="replace")
    # For a longer file only the bytes are counted: reading it to count its characters would take too long.
    whole = len(text) if size <= len(data) else size
    path = str((files.attempt_folder(stage, attempt) / name).relative_to(root))
    return LongText(text=text, size=whole, path=path)


def _metrics(store: ProjectStore, run: str) -> MetricsHistory:
    @cache
    def values(path: str, sha256: str) -> MetricValues | None:
        try:
            return read_metrics(stored_metrics(store.contents, sha256), path, read_yaml)
        except MetricsError as error:
            if error.is_lost:
                return None
            raise

    runs = runs_with_metrics(store.logs, journal_pipeline(store.logs / f"{run}.jsonl"), run)
    earlier: list[RunMetrics] = []
    # Reading 20,000 lines of journals takes less than a second.
    left = _MAX_METRICS_LINES
    for one in (one for one in runs if one.run_id != run):
        earlier.append(one)
        left -= len(one.files)
        if left <= 0 or len(earlier) == _MAX_RUNS_WITH_METRICS:
            break
    return MetricsHistory(tuple(earlier), values)


def _gone(facts: RunFacts, files: Path) -> Iterator[str]:
    called = any(attempt.calls for stage in facts.stages.values() for attempt in stage.attempts.values())
    if called and not files.is_dir():
        yield f"Prompts and responses are not shown: {LOGS_FOLDER}/{files.name}/ was deleted."


def former_run(logs: Path, run: RunFacts, redact: Callable[[Event], Event]) -> RunFacts | None:
    """Return the facts of the newest run of the same pipeline before this one; a damaged journal is skipped."""
    for path in islice(pipeline_journals(logs, run.began.pipeline, run.run_id), 1, None):
        with suppress(CorruptStateError):
            if lines := read_journal(path):
                return read_run(path.stem, lines, redact)
    return None


class JournalFold(RunFold):
    """Computes the facts of a run, line by line of its journal."""

    def __init__(self, run_id: str, redact: Callable[[Event], Event]) -> None:
        """Begin before the first line. `redact` removes secrets from an event."""
        super().__init__(run_id)
        self._redact = redact
        self._began: datetime | None = None

    def add_line(self, line: JournalLine) -> None:
        """Add the next line."""
        self.facts.started_at = self.facts.started_at or line.ts
        self.add(self._redact(line.event), self._seconds(line.ts))

    def _seconds(self, timestamp: str) -> float:
        try:
            moment = datetime.fromisoformat(timestamp)
            self._began = self._began or moment
            return max(0.0, (moment - self._began).total_seconds())
        except (ValueError, TypeError):  # a forged time, or one without a zone beside one with a zone
            return self.facts.last_s


def read_run(run_id: str, lines: Iterable[JournalLine], redact: Callable[[Event], Event]) -> RunFacts:
    """Return what the journal of a run says, without secrets. A run that was killed has no `ended`."""
    fold = JournalFold(run_id, redact)
    for line in lines:
        fold.add_line(line)
    facts = fold.facts
    facts.is_over = True
    for stage in facts.stages.values():
        stage.is_over = True
    return facts


_TEMPLATE = "page.html.j2"
_STYLES = "page.css"
_SCRIPT = "live.js"


def render_page(page: RunPage, *, nonce: str = "") -> str:
    """Return the page as one HTML document: no requests, all texts escaped.

    With a `nonce` it has one script, which replaces it when the run has gone on; else it has none.
    """
    template = _environment().get_template(_TEMPLATE)
    return template.render(
        page=page,
        styles=_file(_STYLES),
        policy=page_policy(nonce),
        is_group=lambda one: isinstance(one, StageGroup),
        nonce=nonce,
        script=_file(_SCRIPT) if nonce else "",
    )


def page_policy(nonce: str = "") -> str:
    """Return the content security policy of a page."""
    # It allows the styles by their hash, and nothing else: a text of a model that got through as HTML could neither
    # run a script nor send a request.
    digest = base64.b64encode(hashlib.sha256(_file(_STYLES).encode()).digest()).decode("ascii")
    live = f"; script-src 'nonce-{nonce}'; connect-src 'self'" if nonce else ""
    return f"default-src 'none'; style-src 'sha256-{digest}'{live}; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["diff_lines"] = _diff_lines
    return environment


@cache
def _file(name: str) -> str:
    return resources.files("orch23.features.pages.html").joinpath(name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Return a value for the page: hidden characters of a text, such as those that reverse it, as escapes."""
    return visible(value) if type(value) is str else value


def _diff_lines(diff: str) -> list[tuple[str, str]]:
    """Return the lines of a diff, consecutive ones of one kind together: its class, and the text."""
    return [(kind, "\n".join(lines)) for kind, lines in groupby(diff.split("\n"), _kind)]


def _kind(line: str) -> str:
    if line.startswith(("---", "+++", "@@")):
        return "at"
    return {"+": "add", "-": "del"}.get(line[:1], "same")
