"""A collector of OpenTelemetry on this machine: it decodes the spans that come in, and can be slow or refuse them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came in; ids are hexadecimal, times in ns since 1970. `events` have name, time and attributes."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, int, Mapping[str, Any]], ...]
    is_error: bool
    schema_url: str
    resource: Mapping[str, Any]


class Collector:
    """The collector. With `status` other than 200 it refuses spans, with `is_silent` it does not reply at all."""

    def __init__(self, *, status: int = 200, is_silent: bool = False) -> None:
        self.spans: list[ReceivedSpan] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.released = threading.Event()
        self.arrived = threading.Event()
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, status, is_silent=is_silent))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Give the endpoint for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        """Give the variables with which a build finds the collector."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Note what came in."""
        self.paths.append(path)
        self.headers.append(headers)
        self.bodies.append(body)
        with self._changed:
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            self._changed.notify_all()
        self.arrived.set()

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans with a name, in the order of their start."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)

    def only(self, name: str) -> ReceivedSpan:
        """Return the one span with a name."""
        (span,) = self.named(name)
        return span

    def wait_for(self, name: str, count: int) -> None:
        """Wait until so many spans with a name have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.named(name)) >= count, 30), f"{count} {name} never came"

    def text(self) -> str:
        """Return everything that came in, to search it."""
        return b"".join(self.bodies).decode("utf-8", "replace")


def _handler(collector: Collector, status: int, *, is_silent: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            if is_silent:
                collector.released.wait()
                return
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    return Handler


def _spans(request: Any) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=_attributes(span.attributes),
            events=tuple((one.name, one.time_unix_nano, _attributes(one.attributes)) for one in span.events),
            is_error=span.status.code == span.status.STATUS_CODE_ERROR,
            schema_url=scope.schema_url,
            resource=_attributes(of_resource.resource.attributes),
        )
        for of_resource in request.resource_spans
        for scope in of_resource.scope_spans
        for span in scope.spans
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
