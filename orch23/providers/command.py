"""The provider `command`: a sandboxed program with the request on stdin."""

import codecs
import errno
import functools
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_json
from orch23.model.errors import ConsentError, ProviderError, SafetyError
from orch23.model.event import Event
from orch23.model.llm import Provider, Request, Response
from orch23.model.step import Grant
from orch23.model.tool import installed_tool
from orch23.providers.adapter import Adapter, CallContext, ProgramCall, ProgramResult, ProjectFiles, ProviderContext
from orch23.providers.faults import redacted
from orch23.providers.registry import not_granted_error
from orch23.resolve.commands import command_ran, paths_outside
from orch23.steps.llm.spec import LLMStep

MAX_STDOUT_BYTES = 4 * 1_048_576
MAX_STDERR_BYTES = 16 << 20
_STDERR_KEPT = 64_000
# Characters that are dropped where stderr was cut: a secret that the cut has split is not recognized.
_MARGIN = 16_000

_SHOWN_LINES = 12
_MACHINE_ERRORS = frozenset(
    {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EINTR}
)  # the machine failed, not the program
# Where version managers have one script in place of each program.
_SHIMS = "shims"
# A process that dies of signal n has the exit code 128 + n.
_SIGNALS = 128


class ResolvedProgram(Struct, frozen=True):
    """A program as it is on disk now. `path` is None if it is a file of the project, one of `files`."""

    argv: tuple[str, ...]
    path: Path | None
    files: Mapping[str, FileEntry]
    reads: tuple[Path, ...]
    grant: Grant


class CommandProvider(Struct, frozen=True, kw_only=True):
    """The provider: one process for each request."""

    step: LLMStep
    setting: ProviderContext
    stage: str = ""
    clock: Callable[[], float] = time.monotonic

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Run the program once.

        Raises:
            ConsentError: the user has not consented to the program as it is now.
            ConfigurationError: there is no sandbox to run it in.
            SafetyError: a file of the project changed meanwhile, and the program may have changed it.
            ProviderError: it could not be started, failed, printed too much or not UTF-8, or took too long.
        """
        started = self.clock()
        end = self._run(request_stdin(request), deadline_s, on_text)
        took_s = self.clock() - started
        ran = command_ran(shlex.join(self.step.command), None if end.fault else end.exit_code, took_s)
        self.setting.notice(Event(ran, f"$ {ran.command}", self.stage, "debug"))
        if end.fault:
            raise ProviderError(self._error(*_fault(end)))
        if end.exit_code != 0:
            code = end.exit_code
            why = f"was killed by signal {code - _SIGNALS}" if code > _SIGNALS else f"exited with {code}"
            raise ProviderError(self._error("E401", why, _last_lines(end.stderr)))
        try:
            text = end.stdout.decode("utf-8")
        except UnicodeDecodeError:
            raise ProviderError(self._error("E401", "printed text that is not UTF-8")) from None
        return Response(text=text, duration_s=took_s, provenance=f"command {self.step.command[0]}")

    def _run(self, stdin: bytes, deadline_s: float, on_text: Callable[[str], None]) -> ProgramResult:
        setting, step = self.setting, self.step
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        if setting.runner is None:
            message = "BUG: there is no runner for programs"
            raise TypeError(message)
        try:
            program = resolve_program(step, setting.environ, setting.root, setting.files)
            # Checked again: the program may have changed since the check at the start of the build (ADR 25).
            if not setting.is_granted(program.grant):
                raise ConsentError(not_granted_error(program.grant, setting.trust_command))
            return setting.runner.run(
                ProgramCall(
                    argv=program.argv,
                    program=program.path,
                    files=program.files,
                    reads=program.reads,
                    # Only what the pipeline declares and the user allowed: the program may come with a clone (ADR 25).
                    env={name: setting.environ[name] for name in step.pass_env if name in setting.environ},
                    network=step.network,
                    stdin=stdin,
                    timeout_s=deadline_s,
                    stdout_bytes=MAX_STDOUT_BYTES,
                    stderr_bytes=MAX_STDERR_BYTES,
                    on_output=lambda data: on_text(decoder.decode(data)),
                )
            )
        except OSError as error:
            if error.errno in _MACHINE_ERRORS:
                raise
            why = f"could not be started: {error.strerror or error}"
            raise ProviderError(self._error("E407", why)) from None

    def _error(self, code: str, why: str, printed: str = "") -> Diagnostic:
        message = f"`{self.step.command[0]}` {why}" + (f":\n{printed}" if printed else "")
        hint = (
            "run the command of `llm.command` by hand to see more; it gets only the files, variables and network that "
            "`llm.read`, `llm.pass_env` and `llm.network` name"
        )
        return Diagnostic(code, message, hint=hint)


def request_stdin(request: Request) -> bytes:
    """Return the JSON for a program's stdin: `{"model", "system", "messages", "params", "schema"}`."""
    body = {
        "model": request.model,
        "system": request.system,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "params": dict(request.params),
        "schema": request.schema,
    }
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def resolve_program(step: LLMStep, environ: Mapping[str, str], root: Path, files: ProjectFiles) -> ResolvedProgram:
    """Return the program of a step, with its files and the grant that it needs.

    It gets those arguments that are files of the project, and the paths in `read`.

    Raises:
        OSError: it cannot be read.
    """
    name, *arguments = step.command
    given = {one: entry for one in step.program_files(files.listing) if (entry := _entry(one, files)) is not None}
    own = os.path.normpath(name) if "/" in name else ""
    path, shown = (None, ()) if own in given else _on_path(name, environ, root)
    outside = paths_outside(step)
    # The arguments are part of the grant, because `python3 -c ...` can be any program (ADR 25).
    identity = {
        "argv": list(step.command),
        "program": None if path is None else _sha256(path),
        "files": {name: str(entry) for name, entry in sorted(given.items())},
    }
    grant = Grant(
        kind="program",
        name=name,
        keys=step.pass_env,
        sha256=digest_json(identity),
        network=step.network,
        reads=outside,
        detail=shlex.join(step.command),
        files=tuple(sorted(given)),
    )
    home = environ.get("HOME", "/")
    reads = tuple(Path(home, one[2:]) if one.startswith("~/") else Path(one) for one in outside)
    argv = (f"./{own}" if path is None else str(path), *arguments)
    return ResolvedProgram(argv, path, given, (*reads, *shown), grant)


def _entry(path: str, files: ProjectFiles) -> FileEntry | None:
    try:
        return files.entry(path)
    except (SafetyError, OSError, ValueError):  # a link, or a name that is too long
        return None


def _on_path(name: str, environ: Mapping[str, str], root: Path) -> tuple[Path, tuple[Path, ...]]:
    """Return the place of a program, and what else it needs to see."""
    if "/" in name:
        return root / name, ()
    found = shutil.which(name, path=environ.get("PATH", ""))
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), name)
    path = Path(found).absolute()
    # A shim is a script that looks for its version manager, which is not in the sandbox.
    if path.parent.name == _SHIMS and (tool := installed_tool(name, str(root), environ)) is not None:
        return Path(tool.program), tuple(map(Path, tool.shown))
    return path, ()


def _sha256(path: Path) -> str:
    # At each call, since the bytes that were allowed must be those that run (ADR 25); read once if unchanged.
    found = path.stat()
    return _hashed(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


@functools.lru_cache(maxsize=64)
def _hashed(path: Path, _stamp: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fault(end: ProgramResult) -> tuple[str, str]:
    """Return the diagnostic code of a killed program, and the reason."""
    match end.fault:
        case "time":
            return "E402", "did not respond in time and was killed"
        case "output" if len(end.stdout) > MAX_STDOUT_BYTES:
            return "E408", f"printed more than {MAX_STDOUT_BYTES:,} bytes and was killed"
        case "output":
            return "E408", f"printed more than {MAX_STDERR_BYTES:,} bytes on stderr and was killed"
        case "limit":
            return "E408", f"was killed: {end.excess}"
        case _:
            return "E401", "was killed: the build ended"


def _last_lines(err: bytes) -> str:
    """Return the last lines of stderr, without secrets; if it was cut, without a margin at the cut."""
    text = redacted(err[-_STDERR_KEPT:].decode("utf-8", "replace"))
    if len(err) >= _STDERR_KEPT:
        text = text[_MARGIN:]
    return "\n".join(text.strip().splitlines()[-_SHOWN_LINES:])


class CommandAdapter(Adapter):
    """The provider `command`."""

    takes = frozenset({"command", "read", "pass_env", "network", "endpoint_alias", "extra"})
    pricing = "unbounded"
    api = "orch23 1"

    def make(self, setting: ProviderContext, asking: CallContext) -> Provider:
        """Return the provider."""
        return CommandProvider(step=self.step, setting=setting, stage=asking.stage)

    @property
    def endpoint(self) -> str:
        """The command."""
        return f"command {shlex.join(self.step.command)}"

    def check(self, _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a missing command."""
        if not self.step.command:
            hint = "write `command: [program, argument]`"
            yield Diagnostic("E407", "the provider `command` needs a command", hint=hint)

    def ready(self, environ: Mapping[str, str], root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a program that cannot be run."""
        program = self.step.command[0]
        place = str((root or Path()).absolute() / program) if "/" in program else program
        if shutil.which(place, os.R_OK | os.X_OK, environ.get("PATH", "")) is None:
            where = "not an executable file" if "/" in program else "not on PATH"
            yield Diagnostic("E407", f"`{program}` is {where}", hint="install it, or correct `llm.command`")

    def consent(self, environ: Mapping[str, str], root: Path, files: ProjectFiles) -> Grant:
        """Return the grant for the program as it is now.

        Raises:
            ProviderError: it could not be read.
        """
        try:
            return resolve_program(self.step, environ, root, files).grant
        except OSError as error:
            message = f"`{self.step.command[0]}` could not be read: {error.strerror or error}"
            raise ProviderError(Diagnostic("E407", message, hint="correct `llm.command`")) from None
