"""The provider `local`: a small model on llama.cpp, offline, in a child process."""

import http.client
import importlib.util
import json
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.features.local import local_model
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ConfigurationError, ProviderError
from orch23.model.event_data import StopReason
from orch23.model.llm import Provider, Request, Response, Usage, token_count
from orch23.model.parsing import json_at, parse_json
from orch23.providers.adapter import Adapter, CallContext, ProviderContext, nearest_hint, seed_of
from orch23.providers.connections import CallSockets, OpenCalls
from orch23.providers.extra_fields import extra_fields
from orch23.providers.faults import status_error

DEFAULT_SEED = 1
DEFAULT_TEMPERATURE = 0.0
CONTEXT_TOKENS = 4096
# A small model often does not end by itself: without a limit it goes on for minutes, until its context is full.
DEFAULT_MAX_TOKENS = 512
_READY_S = 120.0
_END_S = 5.0
_MAX_BODY = 4 * 1_048_576
_STOPS: Mapping[str, StopReason] = {"stop": "end", "length": "max_tokens"}
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")
_AGAIN = "build again, which restarts the model's server; a shorter prompt may help a small model"
_CONTEXT_HINT = f"give the stage fewer or shorter inputs: the context of `local` has {CONTEXT_TOKENS:,} tokens"
_INSTALL_HINT = "`orch23 doctor` checks its library and weights, and prints how to install them"


class _Running(Struct, frozen=True):
    """A running child process: where it listens, and its bearer token."""

    process: subprocess.Popen[str]
    host: str
    port: int
    token: str


def server_argv(model: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line of the child.

    Raises:
        ConfigurationError: llama.cpp or the weights are missing.
    """
    weights = local_model.installed_weights(model, local_model.user_data_dir(environ))
    missing = _missing(model, environ)
    if missing or weights is None:
        raise ConfigurationError(*missing)
    # Its threads wait actively, so more threads are slower on a busy machine.
    threads = max(1, (os.cpu_count() or 2) // 2)
    script = str(Path(__file__).with_name("local_server.py"))
    return (sys.executable, "-P", script, str(weights), str(threads), str(CONTEXT_TOKENS))


class LocalServer(Struct):
    """The child processes of a run, one for each model, started at the first request and shared by all stages."""

    environ: Mapping[str, str]
    argv: Callable[[str, Mapping[str, str]], Sequence[str]] = server_argv
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, _Running] = field(default_factory=dict)

    def running(self, model: str) -> _Running:
        """Return the child that serves a model, and start it if it is not running.

        Raises:
            ConfigurationError: llama.cpp or the weights are missing.
            ProviderError: it does not start.
        """
        with self._lock:
            known = self._running.get(model)
            if known is not None and known.process.poll() is None:
                return known
            if known is not None:
                _stop(known.process)
            started = _start(self.argv(model, self.environ), self.environ)
            self._running[model] = started
            return started

    def close(self) -> None:
        """End all children."""
        with self._lock:
            for running in self._running.values():
                _stop(running.process)
            self._running.clear()


class LocalProvider(Struct, frozen=True):
    """The provider: one request to the shared server, which handles one at a time."""

    server: LocalServer

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model.

        Raises:
            ConfigurationError: llama.cpp or the weights are missing.
            ProviderError: the server failed, or did not respond in time.
        """
        until = time.monotonic() + deadline_s
        running = self.server.running(request.model)
        started = time.monotonic()
        answer = _post(running, local_request_body(request), until - started)
        response = _response(answer, request.model, time.monotonic() - started)
        on_text(response.text)
        return response


def local_request_body(request: Request) -> dict[str, Json]:
    """Return the body of `/v1/chat/completions`, the only endpoint of llama.cpp where seed and schema work."""
    messages: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
    messages += [{"role": m.role, "content": m.content} for m in request.messages]
    # Without the prompt cache, equal requests get equal texts.
    body: dict[str, Json] = {"messages": messages, "stream": False, "cache_prompt": False}
    body |= {name: request.params[name] for name in ("max_tokens", "temperature") if name in request.params}
    body |= seed_of(request)
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": request.schema}}
    return body | extra_fields(request, body)


def _start(argv: Sequence[str], environ: Mapping[str, str]) -> _Running:
    """Start the child and wait until it is ready. It gets no key and no proxy from the environment."""
    token = secrets.token_urlsafe(32)
    process = subprocess.Popen(
        argv,
        cwd="/",
        env={name: environ[name] for name in _INHERITED if name in environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        # A terminal sends its signals only to its own session.
        start_new_session=True,
    )
    line = _first_line(process, token)
    word, _, rest = line.partition(" ")
    url = urlsplit(rest.strip())
    if word == "ready" and url.hostname is not None and url.port is not None:
        return _Running(process, url.hostname, url.port, token)
    _stop(process)
    why = rest.strip() if word == "failed" else "it ended or took too long before it was ready"
    raise ProviderError(Diagnostic("E401", f"the local model does not start: {why}", hint=_INSTALL_HINT))


def _first_line(process: subprocess.Popen[str], token: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{token}\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    ready, _, _ = select.select([process.stdout], [], [], _READY_S)
    return process.stdout.readline() if ready else ""


def _stop(process: subprocess.Popen[str]) -> None:
    """End the child: close its stdin, then kill it if it does not exit."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            # The child has exited, or the pipe is broken: `wait` handles both.
            process.kill()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()


def _post(running: _Running, body: Mapping[str, Json], timeout_s: float) -> Json:
    if timeout_s <= 0:
        raise ProviderError(Diagnostic("E402", "the local model was not ready in time", hint="raise `llm.timeout`"))
    status, data, why = 0, b"", ""
    # A socket's own timeout starts again with each byte.
    with OpenCalls().track(timeout_s) as sockets:
        try:
            status, data = _exchange(running, json.dumps(body), timeout_s, sockets)
        except (OSError, http.client.HTTPException) as error:
            why = type(error).__name__
        if sockets.is_shut_down or why == TimeoutError.__name__:
            message = f"the local model did not respond within {timeout_s:.0f} s"
            raise ProviderError(Diagnostic("E402", message, hint="raise `llm.timeout`"))
    if why:
        _fail(f"the local model's server cannot be reached: {why}")
    if status != http.client.OK:
        _refuse(status, data)
    try:
        return parse_json(data, max_bytes=_MAX_BODY)
    except ValueError as error:  # also not UTF-8
        _fail(f"the local model's server replied without JSON: {error}")


def _refuse(status: int, data: bytes) -> NoReturn:
    """Raise the error of a reply with an error status: of the request, or of the server."""
    text = data.decode("utf-8", "replace")
    error: Json = None
    with suppress(ValueError):
        error = json_at(parse_json(text, max_bytes=_MAX_BODY), "error")
    said = json_at(error, "message")
    said = said if isinstance(said, str) else text
    found = status_error("the local model's server", status, said, error=error).diagnostic
    if found.code != "E415":
        _fail(found.message)
    hint = _CONTEXT_HINT if json_at(error, "n_ctx") else found.hint
    raise ProviderError(replace(found, hint=hint)) from None


def _fail(message: str) -> NoReturn:
    raise ProviderError(Diagnostic("E401", message, hint=_AGAIN)) from None


def _exchange(running: _Running, body: str, timeout_s: float, sockets: CallSockets) -> tuple[int, bytes]:
    """Send a request; return the status of the reply and its body, up to the limit."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {running.token}"}
    with closing(http.client.HTTPConnection(running.host, running.port, timeout=timeout_s)) as connection:
        connection.connect()
        sockets.add(connection.sock)
        connection.request("POST", "/v1/chat/completions", body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read(_MAX_BODY)


def _response(answer: Json, model: str, duration_s: float) -> Response:
    choice = json_at(answer, "choices", 0)
    text = json_at(choice, "message", "content")
    if not isinstance(text, str):
        _fail("the local model's server replied without a text")
    finish = json_at(choice, "finish_reason")
    return Response(
        text=text,
        stop=_STOPS.get(str(finish), "unknown"),
        usage=Usage(
            token_count(json_at(answer, "usage", "prompt_tokens")),
            token_count(json_at(answer, "usage", "completion_tokens")),
        ),
        duration_s=duration_s,
        provenance=f"local {model} on llama.cpp, a toy model",
    )


def missing_server() -> str:
    """Return the command that installs the library of the server; empty if it is installed."""
    if importlib.util.find_spec("xllamacpp") is not None:
        return ""
    from orch23.providers.installation import install_command  # noqa: PLC0415 - only if it is missing

    return install_command("xllamacpp")


def _missing(model: str, environ: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    missing, ways = [], []
    if command := missing_server():
        missing.append("llama.cpp (xllamacpp) is not installed")
        ways.append(f"`{command}`")
    if local_model.installed_weights(model, local_model.user_data_dir(environ)) is None:
        from orch23.providers.installation import orch23_command  # noqa: PLC0415 - only if they are missing

        missing.append(f"the weights of {model} are not installed")
        ways.append(f"`{orch23_command(environ)} model install {model}`")
    if not missing:
        return ()
    message = f"the local model cannot run: {' and '.join(missing)}"
    return (Diagnostic("E410", message, hint=f"install with {' and '.join(ways)}"),)


class LocalAdapter(Adapter):
    """The provider `local`."""

    takes = frozenset({"seed", "temperature", "extra"})
    sets = frozenset(
        {"model", "messages", "stream", "cache_prompt", "max_tokens", "temperature", "seed", "response_format"}
    )
    sends = ("max_tokens", "seed", "temperature")
    pricing = "free"
    usual_max_tokens = DEFAULT_MAX_TOKENS
    endpoint = "llama.cpp"
    api = "chat.completions"
    is_remote = False

    def make(self, setting: ProviderContext, _asking: CallContext) -> Provider:
        """Return the provider. All calls of a run share one server."""
        return LocalProvider(setting.share(LocalServer, lambda: LocalServer(setting.environ)))

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The parameters of a request, with defaults."""
        usual = {"max_tokens": self.step.max_tokens, "seed": DEFAULT_SEED, "temperature": DEFAULT_TEMPERATURE}
        return {**usual, **super().parameters}

    def wire(self, schema: Json) -> Json:
        """Return the schema of `returns: json`."""
        return schema if self.step.returns == "json" else None

    def check(self, _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for an unknown model."""
        known = [model.name for model in local_model.KNOWN_MODELS]
        if self.step.model not in known:
            message = f"the provider `local` has no model `{self.step.model}`"
            yield Diagnostic("E406", message, hint=nearest_hint(self.step.model, known), subject="model")

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterable[Diagnostic]:
        """Return an error for a missing library or missing weights."""
        return _missing(self.step.model, environ)

    @property
    def repeats(self) -> bool:
        """Whether nothing is random: the seed is always set."""
        return not self.step.temperature
