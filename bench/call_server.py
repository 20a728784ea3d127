"""The server of `bench.call_cost`: it answers at once, as its vendor streams. It prints its address."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.model_calls import chat_stream, messages_stream


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = messages_stream() if self.path.endswith("/messages") else chat_stream()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
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
