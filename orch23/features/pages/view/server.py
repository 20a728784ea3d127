"""Serve the live page of a run on loopback: one page and one stream of events, for a reader who has the address."""

import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer

import click

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.features.pages.html.compose import compose_page
from orch23.features.pages.html.page import RunPage
from orch23.features.pages.writing import JournalFold, former_run, page_policy, page_sources, render_page
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


LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
_INTERVAL_S = 0.3
_SILENCE = 50  # intervals after which a comment shows that the connection is alive
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve_page(page: FollowedPage, port: int, ready: Callable[[str], None]) -> None:
    """Serve a page until the process is interrupted; call `ready` with its address once it can be opened.

    Port 0 is a free one.

    Raises:
        OSError: the port is in use.
    """
    with _PageServer(page, port) as server:
        ready(f"http://{LOOPBACK}:{server.port}/{server.token}/")
        try:
            server.serve_forever()
        finally:
            server.is_ending.set()


class _PageServer(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, page: FollowedPage, port: int) -> None:
        self.page, self.token, self.is_ending = page, secrets.token_urlsafe(_TOKEN_BYTES), threading.Event()
        super().__init__((LOOPBACK, port), _Handler)
        self.port: int = self.socket.getsockname()[1]

    def handle_error(self, *_: object) -> None:
        """Print nothing: the reader has closed the connection, or sent no whole request."""


class _Handler(BaseHTTPRequestHandler):
    """Answers only its own address on loopback, with the token, and only GET and HEAD.

    A page of another site can make a browser send requests, and have its own name resolved to 127.0.0.1: then the
    header `Host` has that name.
    """

    server: _PageServer
    server_version, sys_version = "orch23", ""
    timeout = 10.0  # of a connection on which nothing comes or goes

    def _answer(self) -> None:
        refused = self._refusal()
        place = self.path.partition("?")[0].removeprefix(f"/{self.server.token}/")
        if refused is not None:
            self._send(*refused)
        elif place == "":
            html, policy = self.server.page.render()
            self._send(200, html, "text/html", {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"})
        elif place == "events":
            self._follow()
        else:
            self._send(404, "Not Found")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815 - names of the library

    def _refusal(self) -> tuple[int, str] | None:
        hosts = [value.lower() for value in self.headers.get_all("Host", [])]
        if len(hosts) != 1 or hosts[0] not in (f"{LOOPBACK}:{self.server.port}", f"localhost:{self.server.port}"):
            return 421, "this server does not have that name\n"
        if any(origin != f"http://{hosts[0]}" for origin in self.headers.get_all("Origin", [])):
            return 403, "a page of another origin may not ask\n"
        first = self.path.split("/")[1:2]
        if not hmac.compare_digest(self.server.token.encode(), "".join(first).encode("utf-8", "replace")):
            return 404, "there is nothing here: use the whole address that `orch23 view` wrote\n"
        if self.command not in ("GET", "HEAD"):
            return 405, "only GET and HEAD\n"
        return None

    def _send(self, status: int, text: str, kind: str = "text/plain", more: Mapping[str, str] | None = None) -> None:
        body = text.encode()
        self._send_head(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_head(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", **_HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _follow(self) -> None:
        self._send_head(200, "text/event-stream", {})
        shown, silent = "", 0
        while self.command != "HEAD":
            version = self.server.page.poll()
            if version != shown or silent == _SILENCE:
                self.wfile.write(f"data: {version}\n\n".encode() if version != shown else b":\n\n")
                shown, silent = version, 0
            silent += 1
            if self.server.is_ending.wait(_INTERVAL_S):
                return

    def log_message(self, *_: object) -> None:
        """Print nothing: each refresh of the page would be a line."""


def view_run(console: Console, *, run: str | None, port: int) -> None:
    """Serve the page of a run until the process is interrupted."""
    page = FollowedPage(console, project_root(console), run)

    def ready(address: str) -> None:
        console.write_out(f"{address}\n")
        console.write_err("open this address in a browser of this machine; Ctrl-C ends it\n")

    try:
        serve_page(page, port, ready)
    except KeyboardInterrupt:
        return
    except OSError as error:
        message = f"cannot listen on port {port}: {error.strerror}"
        raise click.UsageError(message) from error
