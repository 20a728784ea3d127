"""Servers of batches on this machine, Anthropic's and OpenAI's: they keep batches, and end them when a test says so."""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_TIME = "2026-11-25T08:00:00Z"


@dataclass
class KeptBatch:
    """A batch as the server keeps it. `results` replaces the results of some requests."""

    id: str
    requests: Mapping[str, Any]
    created: str
    status: str = "in_progress"
    results: dict[str, Any] = field(default_factory=dict)


def succeeded(text: str, stop: str = "end_turn", model: str = "claude-haiku-4-5") -> dict[str, Any]:
    """Return the result of a request with this response: 100 tokens of input, 10 of output."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 100,
            "output_tokens": 10,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
    }
    return {"type": "succeeded", "message": message}


def errored(kind: str, message: str) -> dict[str, Any]:
    """Return the result of a request that the vendor refused."""
    return {"type": "errored", "error": {"type": "error", "error": {"type": kind, "message": message}}}


class BatchServer:
    """The server. `answer` returns the text for the parameters of a request.

    `on_submit` is called with a batch that is kept, before the reply; `broken` are replies in place of those to the
    next requests: a status, a body, and headers. `lost` are those to the next batches, which are kept. `refuses`
    returns the reply to a method and path, if it is to fail. `shown` replaces fields of all batches.
    """

    def __init__(self, answer: Callable[[Any], str] = lambda _params: "an answer", *, now: str = _TIME) -> None:
        self.answer = answer
        self.now = now
        self.batches: list[KeptBatch] = []
        self.lines: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.on_submit: Callable[[KeptBatch], None] = lambda _batch: None
        self.on_poll: Callable[[], None] = lambda: None
        self.broken: list[tuple[Any, ...]] = []
        self.lost: list[tuple[Any, ...]] = []
        self.refuses: Callable[[str], tuple[Any, ...] | None] = lambda _line: None
        self.elsewhere = ""
        self.shown: dict[str, Any] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed on purpose
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The `base_url` of a client."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def submitted(self) -> list[int]:
        """The number of requests of each batch."""
        return [len(one.requests) for one in self.batches]

    def end(self, **results: Any) -> None:
        """End all batches. `results` are those of requests whose prompt has this word."""
        for batch in self.batches:
            for name, params in batch.requests.items():
                content = params["messages"][0]["content"]
                said = content.split() if isinstance(content, str) else ()
                found = [result for word, result in results.items() if word in said]
                if batch.status != "ended" and found:
                    batch.results[name] = found[0]
            batch.status = "ended"

    def reply(self, method: str, path: str, body: Any) -> tuple[Any, ...]:
        """Return status, body and headers for a request; a text is sent as it is."""
        line = f"{method} {path.partition('?')[0]}"
        self.lines.append(line)
        failure = self.broken.pop(0) if self.broken else self.refuses(line)
        if failure is not None:
            return failure
        count = len(self.batches)
        found = self.found(method, path, body)
        return self.lost.pop(0) if len(self.batches) > count and self.lost else found

    def found(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body for a request that is not to fail."""
        parts = path.partition("?")[0].strip("/").split("/")[3:]
        if method == "POST" and not parts:
            requests = {one["custom_id"]: one["params"] for one in body["requests"]}
            assert len(requests) == len(body["requests"]), "each custom_id is unique"
            kept = KeptBatch(f"msgbatch_{len(self.batches) + 1}", requests, self.now)
            self.batches.append(kept)
            self.on_submit(kept)
            return 200, self._shown(kept)
        if not parts:
            data = [self._shown(one) for one in reversed(self.batches)]
            return 200, {"data": data, "has_more": False, "first_id": None, "last_id": None}
        batch = next((one for one in self.batches if one.id == parts[0]), None)
        if batch is None:
            return 404, {"type": "error", "error": {"type": "not_found_error", "message": "no such batch"}}
        if parts[1:] == ["cancel"]:
            if batch.status == "ended":
                return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "it has ended"}}
            batch.status = "ended"
            for name in batch.requests:
                batch.results.setdefault(name, {"type": "canceled"})
        if parts[1:] == ["results"]:
            lines = [
                json.dumps({"custom_id": name, "result": batch.results.get(name) or succeeded(self.answer(params))})
                for name, params in reversed(list(batch.requests.items()))
            ]
            return 200, "".join(f"{line}\n" for line in lines)
        self.on_poll()
        return 200, self._shown(batch)

    def _shown(self, batch: KeptBatch) -> dict[str, Any]:
        ended = batch.status == "ended"
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        for name in batch.requests:
            counts[batch.results.get(name, {"type": "succeeded"})["type"] if ended else "processing"] += 1
        place = f"{self.elsewhere or self.url}/v1/messages/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": batch.status,
            "request_counts": counts,
            "created_at": batch.created,
            "expires_at": "2026-11-26T08:00:00Z",
            "ended_at": batch.created if ended else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": place if ended else None,
            **self.shown,
        }


class OpenAIBatchServer(BatchServer):
    """OpenAI's files and batches. A result is a response body, or a line without `custom_id`."""

    def __init__(self, answer: Callable[[Any], str] = lambda _body: "an answer", *, created: int) -> None:
        super().__init__(answer)
        self.created = created
        self.files: dict[str, str] = {}
        self.labels: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """The `base_url` of a client."""
        return f"{super().url}/v1"

    def end(self, status: str = "completed", **results: Any) -> None:
        """End all batches. `results` are those of requests whose prompt has this word."""
        for batch in self.batches:
            if batch.status == "in_progress":
                for name, body in batch.requests.items():
                    said = body["input"][0]["content"].split()
                    found = [result for word, result in results.items() if word in said]
                    if found:
                        batch.results[name] = found[0]
                batch.status = status

    def found(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body for a request that is not to fail."""
        parts = path.partition("?")[0].strip("/").split("/")[1:]
        if parts == ["files"]:
            name = f"file-{len(self.files) + 1}"
            lines = re.findall(r'^{"custom_id".*}$', body.replace("\r", ""), re.MULTILINE)
            self.files[name] = "".join(f"{line}\n" for line in lines)
            return 200, {"id": name, "object": "file", "purpose": "batch", "bytes": len(body), "created_at": 1}
        if parts[0] == "files":
            return 200, self.files[parts[1]]
        if method == "POST" and parts == ["batches"]:
            sent = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
            assert {(one["method"], one["url"]) for one in sent} == {("POST", "/v1/responses")}
            assert (body["endpoint"], body["completion_window"]) == ("/v1/responses", "24h")
            kept = KeptBatch(f"batch_{len(self.batches) + 1}", {one["custom_id"]: one["body"] for one in sent}, "")
            self.batches.append(kept)
            self.labels[kept.id] = body["metadata"]
            self.on_submit(kept)
            return 200, self._shown(kept)
        if parts == ["batches"]:
            return 200, {
                "object": "list",
                "data": [self._shown(one) for one in reversed(self.batches)],
                "has_more": False,
            }
        batch = next(one for one in self.batches if one.id == parts[1])
        if parts[2:] == ["cancel"]:
            if batch.status != "in_progress":
                return 400, {"error": {"message": "it has ended", "type": "invalid_request_error"}}
            batch.status = "cancelled"
        else:
            self.on_poll()
        return 200, self._shown(batch)

    def _shown(self, batch: KeptBatch) -> dict[str, Any]:
        done: dict[str, str] = {}
        failed: dict[str, str] = {}
        for name, body in batch.requests.items() if batch.status != "in_progress" else ():
            default = said_by_openai(self.answer(body)) if batch.status == "completed" else None
            result = batch.results.get(name) or default
            if result is not None and "output" in result:
                line = {"custom_id": name, "response": {"status_code": 200, "body": result}, "error": None}
                done[name] = json.dumps(line)
            elif result is not None:
                failed[name] = json.dumps({"custom_id": name, **result})
        places = {}
        for key, lines in (("output_file_id", done), ("error_file_id", failed)):
            if lines:
                places[key] = f"{key}-{batch.id}"
                self.files[places[key]] = "".join(f"{line}\n" for line in reversed(list(lines.values())))
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/responses",
            "status": batch.status,
            "created_at": self.created,
            "metadata": self.labels.get(batch.id),
            "request_counts": {"total": len(batch.requests), "completed": len(done), "failed": len(failed)},
            "errors": None,
            **places,
            **self.shown,
        }


def said_by_openai(text: str, **more: Any) -> dict[str, Any]:
    """Return the body of a response with this text: 100 tokens of input, 10 of output."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": content}],
        "usage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110},
        "error": None,
        "incomplete_details": None,
        **more,
    }


def _handler(server: BatchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, body, *more = server.reply(self.command, self.path, self.read_body(data))
            sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/x-jsonl" if isinstance(body, str) else "application/json")
            self.send_header("content-length", str(len(sent)))
            for name, value in more[0].items() if more else ():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        def read_body(self, data: bytes) -> Any:
            if self.headers.get("content-type", "").startswith("multipart/"):
                return data.decode()
            return json.loads(data) if data else None

        def log_message(self, *_: object) -> None:
            return

    return Handler
