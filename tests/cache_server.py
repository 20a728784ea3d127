"""A cache server on loopback with the rules of bazel-remote, and with faults that a test sets.

It verifies the digest of each blob, and refuses an entry that its `validate` refuses, or whose blobs it does not have.
"""

import contextlib
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, TypeAlias

from backports import zstd

from orch23.model.digest import Digest

_PATH = re.compile(r"/base/(ac|cas)/([0-9a-f]{64})")
_BLOB = re.compile(r"([0-9a-f]{64})/([0-9]+)")

Fault: TypeAlias = Literal[
    "", "500", "503", "403", "404", "302", "truncate", "drip", "hang", "reset", "wrong", "gzip", "zstd", "bomb"
]


def named_blobs(entry: bytes) -> Iterable[Digest]:
    """Return the blobs that an entry of `cache_conformance.make_entry` names.

    Raises:
        ValueError: it is not such an entry.
    """
    _, *lines = entry.decode().split("\n")
    if not all(_BLOB.fullmatch(line) for line in lines):
        raise ValueError(entry)
    return [Digest(line.partition("/")[0], int(line.partition("/")[2])) for line in lines]


class CacheServer(ThreadingHTTPServer):
    """The server. `fault` returns what is wrong with the reply to a request, by its method and path."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.entries: dict[str, bytes] = {}
        self.validate: Callable[[bytes], Iterable[Digest]] = named_blobs
        self.fault: Callable[[str, str], Fault] = lambda _method, _path: ""
        self.accepted: set[str] = set()
        """The headers that log in; if there are none, everyone may."""
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.closed = threading.Event()

    @property
    def url(self) -> str:
        """Return the URL of the cache."""
        return f"http://127.0.0.1:{self.server_address[1]}/base"

    def methods(self) -> list[str]:
        """Return the methods and kinds of the requests so far."""
        return [f"{method} {path.split('/')[2]}" for method, path in self.asked]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client may be gone."""


@contextlib.contextmanager
def serving_cache() -> Iterator[CacheServer]:
    """Run a server for a while."""
    with CacheServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closed.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: CacheServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        fault = self._begin()
        kind, sha256 = self._place()
        found = (self.server.entries if kind == "ac" else self.server.blobs).get(sha256)
        if self._failed(fault):
            return
        if found is None:
            self._reply(404)
            return
        if fault == "wrong":
            found = bytes(len(found))
        # As bazel-remote does: only blobs, and only for a client that accepts it.
        is_compressed = "zstd" in self.headers.get("Accept-Encoding", "") and kind == "cas"
        if is_compressed and fault in {"zstd", "bomb"}:
            found = zstd.compress(found) if fault == "zstd" else zstd.compress(bytes(64 << 20)) * 64
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        if fault == "gzip" or (is_compressed and fault in {"zstd", "bomb"}):
            self.send_header("Content-Encoding", "gzip" if fault == "gzip" else "zstd")
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "truncate":
            self.wfile.write(found[: len(found) // 2])
            self.close_connection = True
        elif fault == "drip":
            self._drip(found)
        else:
            self.wfile.write(found)

    do_HEAD = do_GET  # noqa: N815 - as the library names it

    def do_PUT(self) -> None:
        fault = self._begin()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        kind, sha256 = self._place()
        if self._failed(fault):
            return
        if kind == "cas":
            is_valid = hashlib.sha256(data).hexdigest() == sha256 and len(data) == int(self.headers["Content-Length"])
            if is_valid:
                self.server.blobs[sha256] = data
        else:
            is_valid = self._is_valid(data)
            if is_valid:
                self.server.entries[sha256] = data
        self._reply(200 if is_valid else 400)

    def _is_valid(self, entry: bytes) -> bool:
        try:
            blobs = list(self.server.validate(entry))
        except ValueError:
            return False
        found = [(self.server.blobs.get(blob.sha256), blob.size_bytes) for blob in blobs]
        return all(data is not None and len(data) == size_bytes for data, size_bytes in found)

    def _begin(self) -> Fault:
        self.server.asked.append((self.command, self.path))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.server.accepted and self.headers["Authorization"] not in self.server.accepted:
            return "403"
        return self.server.fault(self.command, self.path)

    def _place(self) -> tuple[str, str]:
        match = _PATH.fullmatch(self.path)
        return (match[1], match[2]) if match is not None else ("", "")

    def _failed(self, fault: Fault) -> bool:
        """Send the reply of a fault without bytes, and return whether it is one."""
        if fault.isdigit():
            self._reply(int(fault))
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        elif fault == "hang":
            self.server.closed.wait(60)
            self.close_connection = True
        else:
            return False
        return True

    def _drip(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            for number in range(len(data)):
                self.wfile.write(data[number : number + 1])
                self.wfile.flush()
                if self.server.closed.wait(0.01):
                    break
        self.close_connection = True

    def _reply(self, status: int) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
