"""`orch23 view`: a real server on loopback, which follows a journal, and answers only its own address."""

import http.client
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orch23.model.event import (
    AttemptStarted,
    LlmRequest,
    LlmResponse,
    Planned,
    RunFinished,
    RunStarted,
    StageFinished,
    StageStarted,
)
from orch23.model.event_data import StageStatus
from tests.chromium import Browser, Page, needs_chromium, running_chromium
from tests.project import Project
from tests.run_journals import RunWriter, write_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"


class Server:
    """A running `orch23 view`."""

    def __init__(self, root: Path, *argv: str) -> None:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(root.parent / "home")}
        run = "from orch23.entry import run; run()"
        command = [sys.executable, "-P", "-c", run, "-C", str(root), "view", *argv]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "no address"
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.stderr and self.process.stderr.read()
        parts = urlsplit(self.address)
        self.host, self.port, self.path = parts.hostname or "", parts.port or 0, parts.path

    def ask(self, path: str | None = None, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        """Send one request; `Host` may be another, and of None none is sent."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            connection.putrequest(method, self.path if path is None else path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {name.lower(): text for name, text in answer.getheaders()}
        finally:
            connection.close()

    def end(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code and stderr."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err


@pytest.fixture
def server(project: Project) -> Iterator[Server]:
    write_run(project.root / "logs", 3)
    one = Server(project.root)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def test_the_page_is_that_of_the_report_with_one_script(server: Server) -> None:
    status, html, headers = server.ask()
    assert status == 200
    assert html.count('<tbody id="stage-') == 3
    assert html.count("<script") == 1
    policy = headers["content-security-policy"]
    nonce = html.partition('<script nonce="')[2].partition('"')[0]
    assert "default-src 'none'; style-src 'sha256-" in policy
    assert f"script-src 'nonce-{nonce}'; connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert nonce not in server.ask()[1]


def test_it_listens_on_loopback_alone_and_ends_with_ctrl_c(server: Server) -> None:
    assert server.host == "127.0.0.1"
    # Also while someone reads the stream of events.
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    connection.request("GET", f"{server.path}events")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    assert answer.readline().startswith(b"data: ")
    code, err = server.end()
    connection.close()
    assert code == 0
    assert err == "open this address in a browser of this machine; Ctrl-C ends it\n"


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:{port}.evil.example"}, 421),
        ({"Host": "127.0.0.1:{port}", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1:{port}", "Origin": "null"}, 403),
        ({"Host": "127.0.0.1:{port}", "Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Host": "localhost:{port}", "Origin": "http://127.0.0.1:{port}"}, 403),
        ({"Host": "LOCALHOST:{port}", "Origin": "http://localhost:{port}"}, 200),
        ({"Host": "127.0.0.1:{port}", "Origin": "http://127.0.0.1:{port}"}, 200),
    ],
)
def test_hosts_and_origins(server: Server, headers: dict[str, str], status: int) -> None:
    filled = {name: value.replace("{port}", str(server.port)) for name, value in headers.items()}
    found, text, answered = server.ask(**filled)
    assert found == status
    assert status == 200 or "stage" not in text
    assert not [name for name in answered if name.startswith("access-control")]


def test_without_the_token_there_is_nothing(server: Server) -> None:
    token = server.path.strip("/")
    assert len(token) >= 32
    paths = ["/", "//", f"/{token[:-1]}/", f"/{token}x/", f"/x/{token}/", "/events", "/%00/", "/logs/", "/é/"]
    for path in paths:
        status, text, _ = server.ask(path.encode("ascii", "xmlcharrefreplace").decode())
        assert status == 404, path
        assert "stage" not in text
    for path in (f"/{token}/../logs", f"/{token}/pipeline.yaml", f"/{token}/%2e%2e/pipeline.yaml"):
        assert server.ask(path)[0] == 404, path


@pytest.mark.stride(3)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(server: Server, method: str) -> None:
    assert server.ask(method=method)[0] == 405


def test_wrong_runs_and_ports(project: Project, server: Server) -> None:
    assert project.run("view", "2000").code == 66
    used = project.run("view", "--port", str(server.port))
    assert used.code == 64
    assert f"cannot listen on port {server.port}" in used.err


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as one:
        yield one


def wait_until(page: Page, expression: str) -> None:
    until = time.monotonic() + 20
    while not page.run(expression):
        assert time.monotonic() < until, expression
        page.run("new Promise(done => setTimeout(done, 100))")


@needs_chromium
def test_the_page_follows_a_build(browser: Browser, project: Project) -> None:
    writer = RunWriter(logs=project.root / "logs")
    writer.write(RunStarted(pipeline="pipeline.yaml", name="live", stages=2, jobs=2))
    writer.write(Planned(stages={"a": "llm", "b": "shell"}, needs={"b": ("a",)}))
    writer.write(StageStarted(), "started", "a")
    writer.write(AttemptStarted(), "attempt 1 of 1", "a")
    writer.write(LlmRequest(fingerprint="f", model="m", provider="p"), "calling", "a")
    server = Server(project.root)
    try:
        with browser.page(server.address) as page:
            wait_until(page, "document.getElementById('live').textContent.startsWith('Live')")
            assert page.run("document.querySelector('h1 .badge').textContent") == "▸running"
            assert page.run("document.querySelector('#stage-a .badge').textContent") == "▸running"
            page.run("document.querySelector('#stage-a details').open = true")
            writer.keep("a", 1, "response.txt", HOSTILE)
            writer.write(LlmResponse(fingerprint="f", input_tokens=5, output_tokens=7), "response", "a")
            writer.write(StageFinished(status=StageStatus.BUILT, duration_s=1.0, attempts=1), "built", "a")
            wait_until(page, "document.querySelector('#stage-a .badge').textContent === '✔built'")
            # What was open stays open, and the text of a model is text.
            assert page.run("document.querySelector('#stage-a details').open")
            assert "document.title = 'owned'" in page.run("document.querySelector('#stage-a').textContent")
            writer.write(StageFinished(status=StageStatus.FAILED, failure=HOSTILE), HOSTILE, "b")
            writer.write(RunFinished(status="failed", exit_code=1), "failed")
            wait_until(page, "document.querySelector('h1 .badge').textContent === '✘failed'")
            assert page.run("document.title") == "live: failed"
            assert page.run("document.querySelectorAll('main script, main img').length") == 0
            own = (f"request {server.address}", f"request {server.address}events")
            assert [one for one in page.happened() if one not in own] == []
            # The next build takes the page over.
            write_run(project.root / "logs", 4, run="20261126T130000Z-00000002")
            wait_until(page, "document.querySelectorAll('svg.graph a').length === 4")
            server.end()
            wait_until(page, "document.getElementById('live').textContent.startsWith('Not live')")
    finally:
        server.process.kill()
        server.process.communicate()


@needs_chromium
def test_a_page_of_another_origin_gets_nothing(browser: Browser, server: Server, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><title>other</title>")
    with browser.page(other.as_uri()) as page:
        asked = f"fetch('{server.address}').then(one => one.text(), () => 'refused')"
        assert page.run(asked) == "refused"
        framed = (
            "new Promise(done => { const frame = document.createElement('iframe');"
            f" frame.src = '{server.address}'; frame.onload = () => done(frame.contentDocument === null);"
            " document.body.append(frame) })"
        )
        assert page.run(framed)  # an error page of the browser, which this page cannot read
        assert [one for one in page.happened() if "frame-ancestors" in one]
