"""Send spans to a collector by OTLP over HTTP, as the standard environment variables configure it.

The SDK reads these variables by itself: endpoint, headers, timeout, compression, certificates, resource, sampler,
limits, batches. A thread sends spans while the build runs. Only the end waits for it, for a limited time.
"""

import logging
import threading
from collections.abc import Mapping, Sequence

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from orch23.features.otel.conventions import SCHEMA_URL

_LIBRARY = "opentelemetry"
_SERVICE = "orch23"
_MAX_REASONS = 100
_NO_SERVICE = "unknown_service"
# The default of the SDK is 2,048: it drops spans of a build that restores more stages than that in a few seconds.
_QUEUE_SIZE = 65_536


class Loss(Struct, frozen=True):
    """How many of all spans did not arrive, and why."""

    lost: int
    total: int
    reason: str


class SpanExport:
    """Gives a tracer whose spans are sent. `end` must be called once no span is open any more.

    `ignored` says which values of environment variables the library does not use, and why.
    """

    def __init__(self, version: str, *, has_queue_size: bool) -> None:
        """Read the environment variables; nothing is sent yet.

        `version` is the version of orch23. With `has_queue_size` the environment has the size of the queue.

        Raises:
            ValueError, RuntimeError, OSError: a variable has a value that cannot be used.
        """
        self._log = _Messages()
        logger = logging.getLogger(_LIBRARY)
        # Errors of the library are reported once, at the end; without a handler Python prints each of them.
        logger.propagate = False
        logger.handlers = [self._log]
        self._exporter = _CountingExporter(OTLPSpanExporter())
        self._processor = _CountingProcessor(self._exporter, None if has_queue_size else _QUEUE_SIZE)
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._version = version
        self.ignored = tuple(self._log.reasons)
        self._log.reasons.clear()

    @property
    def tracer(self) -> Tracer:
        """The tracer. If OTEL_SDK_DISABLED is true, it makes no spans."""
        tracer: Tracer = self._provider.get_tracer("orch23", self._version, schema_url=SCHEMA_URL)
        return tracer

    @property
    def ended(self) -> int:
        """How many spans have ended, and were or will be sent."""
        return self._processor.ended

    def end(self, wait_s: float) -> Loss | None:
        """Send what is left, for at most `wait_s` seconds; return what did not arrive, or None if all did."""
        # The shutdown of the SDK waits longer than its time limit if a request hangs.
        closing = threading.Thread(target=self._processor.shutdown, name="orch23-spans", daemon=True)
        closing.start()
        closing.join(wait_s)
        late = f"no reply within {wait_s:g} s" if closing.is_alive() else "the queue was full"
        reason = next(iter(self._log.reasons), late)
        loss = Loss(self._processor.ended - self._exporter.delivered, self._processor.ended, reason)
        if closing.is_alive():
            self._exporter.shutdown()  # no further try
        return loss if loss.lost else None


def _resource(version: str) -> Resource:
    """Return what produces the spans: what the environment says, else orch23."""
    found = Resource({SERVICE_VERSION: version}).merge(Resource.create())
    is_named = not str(found.attributes.get(SERVICE_NAME, "")).startswith(_NO_SERVICE)
    return found if is_named else found.merge(Resource({SERVICE_NAME: _SERVICE}))


def parent_context(environ: Mapping[str, str]) -> Context:
    """Return the context that TRACEPARENT and TRACESTATE name; an empty one without a valid TRACEPARENT."""
    carrier = {name: environ[name.upper()] for name in ("traceparent", "tracestate") if name.upper() in environ}
    return TraceContextTextMapPropagator().extract(carrier, Context())


class _CountingProcessor(BatchSpanProcessor):
    def __init__(self, exporter: SpanExporter, queue_size: int | None) -> None:
        super().__init__(exporter, queue_size)
        self.ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.ended += bool(span.context and span.context.trace_flags.sampled)
        super().on_end(span)


class _CountingExporter(SpanExporter):
    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.delivered = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class _Messages(logging.Handler):
    """Keeps what the library logs, in place of printing it: the reasons why spans could not be sent."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.reasons) < _MAX_REASONS:
            given = record.args if isinstance(record.args, tuple) else ()
            faults = [one for one in given if isinstance(one, BaseException)]
            self.reasons.append(_root_cause(faults[0]) if faults else record.getMessage())


def _root_cause(fault: BaseException) -> str:
    """Return why a connection failed: the innermost error, which `requests` and `urllib3` wrap several times."""
    seen: list[BaseException] = []
    current: BaseException | None = fault
    while current is not None and current not in seen:
        seen.append(current)
        inner = [one for one in (getattr(current, "reason", None), *current.args) if isinstance(one, BaseException)]
        current = inner[0] if inner else current.__cause__ or current.__context__
    found = seen[-1]
    return (found.strerror if isinstance(found, OSError) else "") or f"{type(found).__name__}: {found}"
