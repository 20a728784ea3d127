"""The server of `bench.call_cost`: it answers at once, as its vendor does, streamed or not. It prints its address."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.model_calls import chat_stream, messages_stream

_MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "slow-1",
    "content": [{"type": "text", "text": "done"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 2},
}
_COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "slow-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_message = self.path.endswith("/messages")
        if asked.get("stream"):
            kind, body = "text/event-stream", messages_stream() if is_message else chat_stream()
        else:
            kind, body = "application/json", json.dumps(_MESSAGE if is_message else _COMPLETION).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    with _Server(("127.0.0.1", 0), _Handler) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
