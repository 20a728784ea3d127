"""Send spans to a collector of OpenTelemetry: while a build runs (`build --otel`), or of its journal (`log --otel`)."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

from orch23 import __version__
from orch23.cli.console import Console
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ConfigurationError, ExitCode
from orch23.model.event import Event
from orch23.model.server_url import without_login
from orch23.model.sink import Sink
from orch23.providers.installation import install_command
from orch23.report.formats import Document, Guarded, View
from orch23.report.values import pluralize
from orch23.store.run_logs import AttemptFiles, read_journal
from orch23.text.secrets import redaction_mark

if TYPE_CHECKING:
    from orch23.features.otel.build_spans import BuildSpans, ReadMessages
    from orch23.features.otel.span_export import Loss, SpanExport

_LIBRARIES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
_PROTOCOL = "http/protobuf"
_WAIT_S = 5.0
_DEFAULT_ENDPOINT = "http://localhost:4318"
_PATH = "v1/traces"
_CORRECT = "correct the environment variables that begin with OTEL_"
# The values of the variable with which prompts and responses are attributes of spans; `true` was the first one.
_WITH_CONTENT = frozenset({"true", "span_only", "span_and_event"})


def open_spans(console: Console) -> Document | None:
    """Return what makes the sink of a build; None if the environment switches spans off.

    When the command ends, the spans that are left are sent.

    Raises:
        ConfigurationError: a library is not installed, or an environment variable has a value that cannot be used.
    """
    export = _start_export(console)
    if export is None:
        return None
    # The first callback runs last: the spans of each build are closed before.
    console.resources.callback(_end_export, console, export)
    return partial(_sink, console, export)


def send_run(console: Console, journal: Path, redact: Callable[[Event], Event]) -> int:
    """Send the spans of a run that has ended, from its journal; return the exit code. `redact` removes secrets.

    Raises:
        ConfigurationError: as `open_spans`.
        NotFoundError, CorruptStateError: the journal cannot be read.
    """
    lines = read_journal(journal)
    export = _start_export(console)
    if export is None:
        console.write_err("nothing is sent: OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER switches spans off\n")
        return ExitCode.OK
    # The clock of the machine may have been set back during the run.
    times_ms = (round(datetime.fromisoformat(line.ts).timestamp() * 1000) for line in lines)
    times = [time * 1_000_000 for time in accumulate(times_ms, max)] or [0]
    now = [times[0]]
    spans = _build_spans(console, export, journal.parent, lambda: now[0], times[0])
    for line, now[0] in zip(lines, times, strict=False):
        spans.notice(redact(line.event))
    spans.close()
    loss = _end_export(console, export)
    if loss is None:
        console.write_out(f"sent {pluralize(export.ended, 'span')} of {journal.stem} to {_endpoint(console.environ)}\n")
    return ExitCode.OK if loss is None else ExitCode.FAILED


def _start_export(console: Console) -> "SpanExport | None":
    environ = console.environ
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporters == {"none"}:
        return None
    if exporters and "otlp" not in exporters:
        names = ",".join(sorted(exporters))
        hint = "set it to otlp, or remove it"
        raise ConfigurationError(Diagnostic("E686", f"OTEL_TRACES_EXPORTER is `{names}`, not `otlp`", hint=hint))
    export = _open_export(environ)
    for text in export.ignored:
        _warn(console, f"OpenTelemetry: {_without_headers(text, environ)}", _CORRECT)
    return export


def _open_export(environ: Mapping[str, str]) -> "SpanExport":
    name, protocol = _variable(environ, "PROTOCOL")
    if protocol not in ("", _PROTOCOL):
        hint = f"set it to {_PROTOCOL}, and the endpoint to the HTTP port of the collector, by default 4318"
        raise ConfigurationError(Diagnostic("E686", f"{name} is `{protocol}`, which is not supported", hint=hint))
    try:
        from orch23.features.otel.span_export import SpanExport  # noqa: PLC0415 - the libraries of an extra
    except ModuleNotFoundError as error:
        missing = _LIBRARIES[(error.name or "").startswith("opentelemetry.exporter")]
        message = f"`--otel` needs the library `{missing}`, which is not installed"
        raise ConfigurationError(Diagnostic("E669", message, hint=install_command(missing))) from error
    try:
        return SpanExport(__version__, has_queue_size="OTEL_BSP_MAX_QUEUE_SIZE" in environ)
    except (ValueError, RuntimeError, OSError) as error:
        message = f"spans cannot be sent: {_without_headers(str(error), environ)}"
        raise ConfigurationError(Diagnostic("E686", message, hint=_CORRECT)) from error


def _sink(console: Console, export: "SpanExport", view: View) -> Sink:
    # A clock that does not go back if the time of the machine is set during the build.
    offset_ns = time_ns() - monotonic_ns()
    spans = _build_spans(console, export, view.logs, lambda: monotonic_ns() + offset_ns, console.began_ns)
    guarded = Guarded(spans)
    console.resources.callback(_close, console, spans, guarded)
    return guarded


def _build_spans(
    console: Console, export: "SpanExport", logs: Path, clock_ns: Callable[[], int], began_ns: int
) -> "BuildSpans":
    from orch23.features.otel.build_spans import BuildSpans  # noqa: PLC0415 - the libraries of an extra
    from orch23.features.otel.span_export import parent_context  # noqa: PLC0415 - as above

    content = console.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower()
    return BuildSpans(
        tracer=export.tracer,
        parent=parent_context(console.environ),
        clock_ns=clock_ns,
        began_ns=began_ns,
        read_messages=_read_messages(logs, console.redact) if content in _WITH_CONTENT else None,
    )


def _read_messages(logs: Path, redact: Callable[[str], str]) -> "ReadMessages":
    def read(run_id: str, stage: str, attempt: int) -> tuple[str, str]:
        files = AttemptFiles(logs / run_id)
        found = (files.read(stage, attempt, name) for name in ("prompt.txt", "response.txt"))
        # A file may have been removed meanwhile.
        prompt, response = ("" if one is None else one[0].decode("utf-8", "replace") for one in found)
        return redact(prompt), redact(response)

    return read


def _close(console: Console, spans: "BuildSpans", guarded: Guarded) -> None:
    """End the spans of a build that was stopped. An error in spans does not stop a build."""
    try:
        spans.close()
    except Exception as error:  # noqa: BLE001 - it is reported as a warning
        guarded.fault = guarded.fault or error
    if guarded.fault is not None:
        message = f"the spans are incomplete, by a bug of orch23: {type(guarded.fault).__name__}: {guarded.fault}"
        _warn(console, message, "report it; the journal in `logs` is complete")


def _end_export(console: Console, export: "SpanExport") -> "Loss | None":
    """Send what is left; warn about what did not arrive, and return it."""
    loss = export.end(_wait_s(console.environ))
    if loss is not None:
        reason = _without_headers(loss.reason, console.environ)
        message = f"{loss.lost:,} of {loss.total:,} spans were not sent to {_endpoint(console.environ)}: {reason}"
        hint = (
            "check the OTEL_EXPORTER_OTLP_ variables and the collector; `orch23 log --otel` sends the whole run again"
        )
        _warn(console, message, hint)
    return loss


def _warn(console: Console, message: str, hint: str) -> None:
    console.write_diagnostics([Diagnostic("W689", message, hint=hint, severity=Severity.WARNING)])


def _wait_s(environ: Mapping[str, str]) -> float:
    """Return how long the end of the command may take: OTEL_BSP_EXPORT_TIMEOUT, in milliseconds, or 5 seconds."""
    text = environ.get("OTEL_BSP_EXPORT_TIMEOUT", "")
    return int(text) / 1000 if text.isascii() and text.isdigit() else _WAIT_S


def _endpoint(environ: Mapping[str, str]) -> str:
    """Return the address that spans are sent to, without user and password."""
    name, base = _variable(environ, "ENDPOINT")
    text = base if "TRACES" in name else f"{(base or _DEFAULT_ENDPOINT).rstrip('/')}/{_PATH}"
    return without_login(text)


def _without_headers(text: str, environ: Mapping[str, str]) -> str:
    """Return what the library says without the headers of the environment: one that it cannot parse may be a key."""
    name, headers = _variable(environ, "HEADERS")
    for header in sorted(filter(None, map(str.strip, headers.split(","))), key=len, reverse=True):
        text = text.replace(header, redaction_mark(name))
    return text


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return name and value of a variable for spans: its own one, else the one for all kinds of telemetry."""
    own, general = f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"
    return (own, environ[own]) if environ.get(own) else (general, environ.get(general, ""))
