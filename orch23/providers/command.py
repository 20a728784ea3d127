"""Ask a program: the request as JSON on its stdin, the answer on its stdout. It runs beside orch23, not in a room."""

import contextlib
import errno
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ProviderError
from orch23.model.llm import Provider, Request, Response
from orch23.model.pipeline import LLMStep
from orch23.providers import codes
from orch23.providers.adapter import Adapter, Asking, Setting
from orch23.providers.faults import plain

MAX_ANSWER_BYTES = 4 * 1_048_576
MAX_NOISE_BYTES = 16 << 20
_STDERR_KEPT = 64_000
_MARGIN = 16_000
"""A secret that the cut of what is kept has split is in it, and nothing of it is shown."""

_SHOWN_LINES = 12
_CHUNK = 65_536
_GRACE_S = 2.0


@dataclass(slots=True)
class Programs:
    """The programs that are answering now; closed, it kills them, since a build that ends leaves nobody running."""

    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a program and know it.

        Raises:
            OSError: it cannot be started, or no more are.

        """
        with self._lock:
            if self._closed:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            process = start()
            self._running.add(process)
            return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Leave nothing of a program: its whole group is killed, also what outlived the program itself."""
        with self._lock:
            self._running.discard(process)
            _kill(process)

    def close(self) -> None:
        """End all that run, at once, and start no more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _signal(process)
            for process in self._running:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it; the others go
                    _kill(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and where it runs: in the root, with the environment of whoever called orch23."""

    argv: tuple[str, ...]
    root: Path
    environ: Mapping[str, str]
    programs: Programs = field(default_factory=Programs)
    clock: Callable[[], float] = field(default=time.monotonic)

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        """Run the program once.

        Raises:
            ProviderError: it could not be started, failed, printed too much or no UTF-8, or its time was up.

        """
        started = self.clock()
        process = self._start()
        try:
            out, err = _converse(process, request_json(request), started + deadline_s, self.clock, on_progress)
        except _StoppedError as stopped:
            raise ProviderError(self._complaint(stopped.code, stopped.why)) from None
        finally:
            self.programs.end(process)
            _close_pipes(process)
        if process.returncode != 0:
            raise ProviderError(self._complaint(codes.FAILED, _exit_text(process.returncode), _last_lines(err)))
        try:
            text = out.decode("utf-8")
        except UnicodeDecodeError:
            raise ProviderError(self._complaint(codes.FAILED, "answered something that is no UTF-8 text")) from None
        return Response(text=text, duration_s=self.clock() - started, provenance=f"command {self.argv[0]}")

    def _start(self) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                self.argv,
                cwd=self.root,
                env=dict(self.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

        try:
            return self.programs.start(start)
        except OSError as error:
            why = f"could not be started: {error.strerror or error}"
            raise ProviderError(self._complaint(codes.NOT_FOUND, why)) from None

    def _complaint(self, code: str, why: str, printed: str = "") -> Diagnostic:
        message = f"`{self.argv[0]}` {why}" + (f":\n{printed}" if printed else "")
        return Diagnostic(code, message, hint="run the command of `llm.command` by hand to see more")


def request_json(request: Request) -> bytes:
    """Return what a program is told: `{"model", "system", "messages", "params", "schema"}`."""
    body = {
        "model": request.model,
        "system": request.system,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "params": dict(request.params),
        "schema": request.schema,
    }
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class _StoppedError(Exception):
    """The conversation was broken off by us."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def _converse(
    process: subprocess.Popen[bytes],
    question: bytes,
    until: float,
    clock: Callable[[], float],
    on_progress: Callable[[int], None],
) -> tuple[bytes, bytes]:
    """Write the question and read both streams until they end, within the time and the cap."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        message = "BUG: the program was started without pipes"
        raise RuntimeError(message)
    out, err, rest = bytearray(), bytearray(), memoryview(question)
    noise_bytes = 0
    os.set_blocking(stdin.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(stdin, selectors.EVENT_WRITE)
        waiting.register(stdout, selectors.EVENT_READ)
        waiting.register(stderr, selectors.EVENT_READ)
        while waiting.get_map():
            left = until - clock()
            if left <= 0:
                raise _StoppedError(codes.TIMED_OUT, "gave no answer in time, and was killed")
            for key, _ in waiting.select(min(left, 1.0)):
                if key.fileobj is stdin:
                    rest = _write_some(stdin.fileno(), rest)
                    if not rest:
                        waiting.unregister(stdin)
                        stdin.close()
                    continue
                data = os.read(key.fd, _CHUNK)
                if not data:
                    waiting.unregister(key.fileobj)
                elif key.fileobj is stdout:
                    out += data
                    on_progress(len(out))
                else:
                    err = (err + data)[-_STDERR_KEPT:]
                    noise_bytes += len(data)
                _check_size(len(out), noise_bytes)
    _await(process, until, clock)
    return bytes(out), bytes(err)


def _check_size(out_bytes: int, err_bytes: int) -> None:
    """Break off where a program prints without end."""
    if out_bytes > MAX_ANSWER_BYTES:
        raise _StoppedError(codes.TOO_MUCH, f"printed more than {MAX_ANSWER_BYTES:,} bytes, and was killed")
    if err_bytes > MAX_NOISE_BYTES:
        why = f"printed more than {MAX_NOISE_BYTES:,} bytes on stderr, and was killed"
        raise _StoppedError(codes.TOO_MUCH, why)


def _write_some(descriptor: int, rest: memoryview) -> memoryview:
    """Write what fits. A program that does not read its question may still answer."""
    try:
        return rest[os.write(descriptor, rest[:_CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def _await(process: subprocess.Popen[bytes], until: float, clock: Callable[[], float]) -> None:
    try:
        process.wait(max(0.0, until - clock()))
    except subprocess.TimeoutExpired:
        raise _StoppedError(codes.TIMED_OUT, "closed its output but did not end in time, and was killed") from None


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process)
    process.wait(_GRACE_S)


def _signal(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _exit_text(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _last_lines(err: bytes) -> str:
    """Return the last of what was printed, without secrets; where its beginning was cut off, a margin goes as well."""
    text = plain(err.decode("utf-8", "replace"))
    if len(err) >= _STDERR_KEPT:
        text = text[_MARGIN:]
    return "\n".join(text.strip().splitlines()[-_SHOWN_LINES:])


def _make(setting: Setting, asking: Asking) -> Provider:
    programs = setting.share(Programs, Programs)
    return Command(argv=asking.step.command, root=setting.root, environ=setting.environ, programs=programs)


def _check(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del environ, root
    if step.command:
        return ()
    hint = "give it as `command: [program, argument]`"
    return (Diagnostic(codes.NOT_FOUND, "the provider `command` needs a command", hint=hint),)


def _ready(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    program = step.command[0]
    if "/" in program:
        path = (root or Path()) / program
        found = path.is_file() and os.access(path, os.X_OK)
    else:
        found = shutil.which(program, path=environ.get("PATH", "")) is not None
    if found:
        return ()
    where = "no program that can be run" if "/" in program else "not on PATH"
    return (Diagnostic(codes.NOT_FOUND, f"`{program}` is {where}", hint="install it, or correct `llm.command`"),)


ADAPTER = Adapter(
    make=_make,
    takes=frozenset({"command", "endpoint_alias"}),
    parameters=lambda step: {"max_tokens": step.max_tokens},
    endpoint=lambda step: f"command {shlex.join(step.command)}",
    api=lambda _step: "orch23 1",
    pricing="unknown",
    remote=lambda _step: True,
    check=_check,
    ready=_ready,
)
