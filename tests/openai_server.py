"""A server of OpenAI's interfaces on this machine: it answers as it is told, reply by reply, and notes each request."""

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeAlias

JSON = "application/json"
STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is sent back: parts of a body, then an end.

    `cut` breaks off in the middle, `stall` leaves it open, `silent` closes the connection without a reply.
    """

    status: int = 200
    type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[bytes] = ()
    end: Literal["end", "cut", "stall", "silent"] = "end"


Rule: TypeAlias = Callable[[Asked], Reply]


class _Quiet(ThreadingHTTPServer):
    """It prints no traceback about clients that were killed: those are what the tests are about."""

    daemon_threads = True
    connections = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()

    def handle_error(self, *_: object) -> None:
        return


class OpenAIServer:
    """The server. Replies are taken in order, `rule` gives those after the last; a request without one is a 599."""

    def __init__(self, *replies: Reply, rule: Rule | None = None) -> None:
        self.replies = list(replies)
        self.rule = rule
        self.asked: list[Asked] = []
        self.released = threading.Event()
        self.came = threading.Condition()
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Give the `base_url` of a client."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def connections(self) -> int:
        """Give the number of connections that clients opened so far."""
        return self._server.connections

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, asked: Asked) -> Reply:
        """Note a request and return what is sent back."""
        with self.came:
            self.asked.append(asked)
            self.came.notify_all()
            if self.replies:
                return self.replies.pop(0)
        return self.rule(asked) if self.rule is not None else Reply(status=599)

    def lines(self) -> list[str]:
        """Return method and path of all requests so far."""
        with self.came:
            return [f"{one.method} {one.path}" for one in self.asked]

    def await_line(self, line: str, timeout_s: float = 20.0) -> None:
        """Wait until a request has come."""
        with self.came:
            there = self.came.wait_for(lambda: line in [f"{a.method} {a.path}" for a in self.asked], timeout_s)
        assert there, f"{line} never came; what came: {self.lines()}"


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = server.take(Asked(self.command, self.path, headers, json.loads(data) if data else None))
            self.close_connection = reply.end != "end"
            if reply.end != "silent":
                self.close_connection |= not _send(self, reply, server.released)

        def log_message(self, *_: object) -> None:
            return

    return Handler


def _send(handler: BaseHTTPRequestHandler, reply: Reply, released: threading.Event) -> bool:
    """Send a reply; return False if the client closed the connection meanwhile."""
    handler.send_response(reply.status)
    handler.send_header("content-type", reply.type)
    handler.send_header("transfer-encoding", "chunked")
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    try:
        for part in reply.parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if reply.end == "stall":
            released.wait()
        if reply.end == "end":
            handler.wfile.write(b"0\r\n\r\n")
    except OSError:
        return False
    return True


# ---- replies --------------------------------------------------------------------------------------


def reported(value: object, status: int = 200, **headers: str) -> Reply:
    """Return a reply of JSON."""
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status=status, headers=names, parts=(json.dumps(value).encode(),))


def error(status: int, message: str, **more: str) -> Reply:
    """Return an error as the vendor words it; `code` and `type` go into the body, the rest are headers."""
    body = {"message": message} | {name: more.pop(name) for name in ("code", "type") if name in more}
    return reported({"error": body}, status, **more)


def page(status: int = 200) -> Reply:
    """Return a web page, as of a gateway that wants somebody to log in."""
    return Reply(status=status, type="text/html", parts=(b"<html><body>Please log in.</body></html>",))


def response(text: str = "", *, status: str = "completed", response_id: str = "resp_1", **more: object) -> Reply:
    """Return a response of the Responses API."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }
    ended = status in {"completed", "incomplete"}
    return reported(
        {
            "id": response_id,
            "object": "response",
            "status": status,
            "model": "gpt-test-2026",
            "output": [{"type": "reasoning", "summary": []}, message(content)] if ended else [],
            "usage": usage if ended else None,
            "error": None,
            "incomplete_details": None,
            **more,
        }
    )


def message(content: Sequence[Mapping[str, object]], **more: str) -> dict[str, object]:
    """Return a message in the output of a response."""
    return {"type": "message", "role": "assistant", "status": "completed", "content": list(content), **more}


def chunk(text: str | None = None, *, finish: str | None = None, **delta: object) -> bytes:
    """Return one event of a stream of Chat Completions."""
    said: dict[str, object] = {**({} if text is None else {"content": text}), **delta}
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "gpt-test-2026", "choices": [choice]})


def usage_chunk() -> bytes:
    """Return the event that tells the tokens, after the last word."""
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    return event(
        {"id": "c", "object": "chat.completion.chunk", "model": "gpt-test-2026", "choices": [], "usage": usage}
    )


def event(value: object) -> bytes:
    """Return one event of any stream."""
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def stream(*parts: bytes, end: Literal["end", "cut", "stall"] = "end") -> Reply:
    """Return a stream of events."""
    return Reply(type=STREAM, parts=parts, end=end)


def chat(text: str, finish: str = "stop") -> Reply:
    """Return a whole answer of Chat Completions, in two parts."""
    half = len(text) // 2
    return stream(chunk(text[:half], role="assistant"), chunk(text[half:]), chunk(finish=finish), usage_chunk(), DONE)
