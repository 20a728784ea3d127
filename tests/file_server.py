"""A server of files on loopback that honours ranges, and can be told to misbehave. It notes what it was asked."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-")


class FileServer(ThreadingHTTPServer):
    """Serves `files` by their paths. `redirects` are paths that lead elsewhere.

    `cuts` holds after how many bytes each coming answer breaks off; `hides_length` leaves Content-Length out,
    `ignores_ranges` sends files whole, `statuses` are those of the coming answers.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.hides_length = self.ignores_ranges = False
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.sent = 0

    @property
    def url(self) -> str:
        """Give its origin."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ranges(self) -> list[str]:
        """Return the ranges it was asked for, empty for a whole file."""
        return [headers.get("range", "") for _, headers in self.asked]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the user who asked may be gone."""


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server for a while."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server that hands each connection to a function, for a while; give its port. Connections may break.

    At the end it shuts its connections down: a send to a client that is gone can block for a minute.
    """

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            answer(connection)
            connection.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(listener.accept()[0])
                threads.append(threading.Thread(target=serve, args=(connections[-1],)))
                threads[-1].start()

    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for connection in connections:
                connection.close()


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        server = self.server
        server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        path = re.sub(r"^http://[^/]*", "", self.path).partition("?")[0]  # a proxy is asked for a whole address
        if path in server.redirects:
            self.send_response(302)
            self.send_header("Location", server.redirects[path])
            self.end_headers()
            return
        status = server.statuses.pop(0) if server.statuses else 200
        data = server.files.get(path)
        if status != 200 or data is None:
            self.send_error(status if status != 200 else 404)
            return
        self._send(data)

    def _send(self, data: bytes) -> None:
        server = self.server
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(match[1]) if match is not None and not server.ignores_ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if data.startswith(b"<!DOCTYPE html>"):
            self.send_header("Content-Type", "text/html")
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if not server.hides_length:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if server.cuts:
            rest = rest[: server.cuts.pop(0)]
        self.wfile.write(rest)
        server.sent += len(rest)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
