"""A server on the loopback that replies as it was told: what a vendor's server, or whatever stands there, may send."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.catalogue.provoking import shown
from tests.project import Project, scripted

STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    status: int = 200
    kind: str = STREAM
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Reply(_Fields):
    """One reply. `is_cut` ends the connection before all that was announced has been sent."""

    body: str


def chat(text: str, *, finish: str = "stop", refusal: str = "", tokens: tuple[int, int] | None = None) -> str:
    """Return a stream of Chat Completions that says a text, and how many tokens went in and out."""
    delta = {"role": "assistant", "content": text, **({"refusal": refusal} if refusal else {})}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    chunks = [chunk]
    if tokens is not None:
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
        chunks.append({**chunk, "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"


def document(value: Mapping[str, Any], status: int = 200, **headers: str) -> Reply:
    """Return a reply that is one JSON document."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(json.dumps(value), status=status, kind="application/json", headers=named)


def error(status: int, **headers: str) -> Reply:
    """Return the reply of a server that refuses."""
    return document({"error": {"message": "no", "type": "refused"}}, status, **headers)


@dataclass(frozen=True, slots=True)
class Replying:
    """A server that is up, by its address."""

    url: str

    def pipeline(self, **llm: Any) -> dict[str, str]:
        """Return the files of a pipeline whose one stage, `code`, asks this server."""
        asked = {"provider": "openai", "model": "m", "base_url": self.url, "prompt": "p.j2", "returns": "code", **llm}
        stages = {"code": {"outputs": ["app.py"], "llm": asked}}
        return {**scripted(stages, {}, defaults={}), "p.j2": "write app.py\n"}

    def built(self, project: Project, **llm: Any) -> set[str]:
        """Build a stage that asks this server; return the codes that are told."""
        return shown(project.write(self.pipeline(**llm)).build(env={"OPENAI_API_KEY": "a-key-for-tests"}))


@contextlib.contextmanager
def replying(*replies: Reply) -> Iterator[Replying]:
    """Have a server that gives these replies in their order, the last one again and again."""
    waiting = list(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._reply()

        def do_GET(self) -> None:
            self._reply()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            body = reply.body.encode()
            self.send_response(reply.status)
            self.send_header("content-type", reply.kind)
            self.send_header("content-length", str(len(body) + 100 * reply.is_cut))
            self.send_header("connection", "close")
            for name, text in reply.headers.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Replying(f"http://127.0.0.1:{server.server_address[1]}/v1")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
