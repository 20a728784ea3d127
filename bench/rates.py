"""How near to the ideal a build comes that a server limits: `python -m bench rates`, about two and a half minutes.

A server on this machine refuses requests as a vendor does. Each case builds independent stages against it, in a process
of its own. `calls` is from the first request that arrives to the last response that is sent; the ideal is the same time
of a client that knows the token bucket of the server (`bench.ideal_rate`). All stages must be built, in at most 1.2
times the ideal. If not, the process exits with 1.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.ideal_rate import ideal_s
from bench.model_calls import chat_stream

GOAL = 1.2
_ROOT = Path(__file__).resolve().parents[1]
_ANSWER_S = 0.1
_JOBS = 8
_COLUMNS = {"exit": 4, "built": 5, "429s": 5, "ideal s": 8, "calls s": 8, "ratio": 6, "whole s": 8}
_PROGRAM = "from orch23.entry import run; run()"


@dataclass(frozen=True, slots=True)
class Case:
    """A number of stages, and the limit of the server.

    `down_s`: all requests are refused for so long from the first one on. `says_when`: a refusal has `retry-after`.
    """

    name: str
    stages: int
    size: int
    period_s: float
    down_s: float = 0.0
    says_when: bool = True
    rates: str = ""

    @property
    def ideal_s(self) -> float:
        """The seconds that the calls take at least."""
        return ideal_s(self.stages, _JOBS, _ANSWER_S, self.size, self.size / self.period_s, down_s=self.down_s)


CASES = (
    Case("20 stages, 10/min", 20, 10, 60.0),
    Case("20 stages, 10/min, in `rates`", 20, 10, 60.0, rates="10/min"),
    Case("300 calls, 20/s", 300, 20, 1.0),
    Case("300 calls, 20/s, no retry-after", 300, 20, 1.0, says_when=False),
    Case("429 for 8 s, retry-after: 1", 20, 10**6, 1.0, down_s=8.0),
    Case("429 for 8 s, no retry-after", 20, 10**6, 1.0, down_s=8.0, says_when=False),
)


@dataclass
class LimitedServer:
    """A server with a token bucket."""

    case: Case
    first: float = 0.0
    last: float = 0.0
    accepted: int = 0
    refused: int = 0
    _level: float = 0.0
    _at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self) -> float | None:
        """Return the seconds after which a request would be accepted; None if it is accepted now."""
        per_s = self.case.size / self.case.period_s
        with self._lock:
            now = time.perf_counter()
            if not self.first:
                self.first, self._level, self._at = now, self.case.size, now
            self._level = min(self.case.size, self._level + (now - self._at) * per_s)
            self._at = now
            is_down = now - self.first < self.case.down_s
            if is_down or self._level < 1:
                self.refused += 1
                return 1.0 if is_down else (1 - self._level) / per_s
            self._level -= 1
            self.accepted += 1
        return None

    def answered(self) -> None:
        """Note the time of a response."""
        self.last = time.perf_counter()


def _handler(server: LimitedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            wait_s = server.judge()
            if wait_s is None:
                time.sleep(_ANSWER_S)
                self._reply(200, "text/event-stream", chat_stream(), {})
                server.answered()
                return
            body = json.dumps({"error": {"message": f"Rate limit reached. Please try again in {wait_s:.2f}s."}})
            headers = {"retry-after-ms": f"{wait_s * 1000:.0f}"} if server.case.says_when else {}
            self._reply(429, "application/json", body.encode(), headers)

        def _reply(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    return Handler


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case took: exit code, calls, refusals, the time of the calls, and that of the process."""

    code: int
    accepted: int
    refused: int
    calls_s: float
    whole_s: float
    printed: str


def play(case: Case) -> Outcome:
    """Build once against a server with the limit of a case."""
    server = LimitedServer(case)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        project = Path(name) / "project"
        project.mkdir()
        _write(project, case, f"http://127.0.0.1:{http.server_port}/v1")
        environ = {"PATH": os.environ["PATH"], "HOME": name, "PYTHONPATH": str(_ROOT), "ORCH23_TRUST": "1"}
        argv = [sys.executable, "-c", _PROGRAM, "-C", str(project), "build", "-q", f"-j{_JOBS}"]
        began = time.perf_counter()
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        whole_s = time.perf_counter() - began
    http.shutdown()
    http.server_close()
    calls_s = server.last - server.first
    return Outcome(done.returncode, server.accepted, server.refused, calls_s, whole_s, done.stdout + done.stderr)


def _write(project: Path, case: Case, url: str) -> None:
    lines = ["version: 1", "name: rates"]
    lines += [f"rates: {{m: {{requests: {case.rates}}}}}"] if case.rates else []
    lines += [f"defaults: {{llm: {{provider: openai, model: m, base_url: '{url}', returns: text}}}}", "stages:"]
    for number in range(case.stages):
        lines += [f"  ask{number:03}: {{outputs: [out/{number:03}.md], llm: {{prompt: {number:03}.md.j2}}}}"]
        (project / f"{number:03}.md.j2").write_text(f"Question {number}.\n")
    (project / "pipeline.yaml").write_text("\n".join(lines) + "\n")


def main(cases: tuple[Case, ...] = CASES, say: Callable[[str], None] = print) -> int:
    """Play all cases and print them; return 0 if all goals are reached."""
    heads = "".join(f" {name:>{width}}" for name, width in _COLUMNS.items())
    say(f"{'case, -j8':34}{heads}")
    missed = 0
    for case in cases:
        found = play(case)
        ratio = found.calls_s / case.ideal_s
        is_good = found.code == 0 and found.accepted == case.stages and ratio <= GOAL
        missed += not is_good
        say(
            f"{case.name:34} {found.code:4} {found.accepted:5} {found.refused:5} {case.ideal_s:8.2f} "
            f"{found.calls_s:8.2f} {ratio:6.2f} {found.whole_s:8.2f}{'' if is_good else '   missed'}"
        )
        if found.code:
            say(found.printed)
    return int(missed > 0)
