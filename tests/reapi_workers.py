"""A server of the Remote Execution API that runs actions, each in a folder of its own, with faults that a test sets.

`python -m tests.reapi_workers FOLDER PORT` runs one whose blobs outlive it.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import grpc

from tests.reapi_oracle import oracle_of
from tests.reapi_server import ReapiServer, Refusal, serving_reapi

ORCH23 = Path(sys.executable).with_name("orch23")
_DEADLINE, _PRECONDITION, _CANCELLED = 4, 9, 1


class FolderBlobs(MutableMapping[str, bytes]):
    """Blobs by SHA-256 in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __getitem__(self, sha256: str) -> bytes:
        try:
            return (self._folder / sha256).read_bytes()
        except FileNotFoundError:
            raise KeyError(sha256) from None

    def __setitem__(self, sha256: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(data)
        Path(file.name).replace(self._folder / sha256)

    def __delitem__(self, sha256: str) -> None:
        (self._folder / sha256).unlink()

    def __iter__(self) -> Iterator[str]:
        return (one.name for one in self._folder.iterdir())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Run:
    """An execution: its process, and the operation at its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.is_cancelled = False
        self.ended = threading.Event()
        self.operation: Any = None


class ExecutionServer(ReapiServer):
    """The server. Its fields are for tests.

    `cuts` has a number for each further call of Execute or WaitExecution: after so many messages, the call ends with
    UNAVAILABLE. `on_status` may return the status with
    which an execution ends at once.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.printed = folder / "printed"
        self.printed.mkdir(exist_ok=True)
        self.has_streams = True
        self.blobs = FolderBlobs(folder / "blobs")
        self.runs: dict[str, _Run] = {}
        self.actions: list[Any] = []
        self.commands: list[Any] = []
        self.requests: list[Any] = []
        self.cuts: list[int] = []
        self.on_status: Callable[[], tuple[int, str] | None] = lambda: None
        self.before_result: Callable[[Any], object] = lambda _result: None
        self.streams = {"Execute": self._execute, "WaitExecution": self._wait}
        self.runs_actions = True

    def _get_capabilities(self, request: Any) -> Any:
        reply = super()._get_capabilities(request)
        reply.execution_capabilities.exec_enabled = self.runs_actions
        # As many servers: only workers write results.
        reply.cache_capabilities.action_cache_update_capabilities.update_enabled = False
        return reply

    def _execute(self, data: bytes) -> Iterator[bytes]:
        request = oracle_of("ExecuteRequest").FromString(data)
        self.requests.append(request)
        run = _Run(f"operations/{os.getpid()}-{len(self.runs)}")
        self.runs[run.name] = run
        threading.Thread(target=self._run, args=(run, request), daemon=True).start()
        return self._operations(run)

    def _wait(self, data: bytes) -> Iterator[bytes]:
        name = oracle_of("OperationRequest").FromString(data).name
        if name not in self.runs:
            raise Refusal(grpc.StatusCode.NOT_FOUND)
        return self._operations(self.runs[name])

    def _operations(self, run: _Run) -> Iterator[bytes]:
        cut = self.cuts.pop(0) if self.cuts else 2
        if not cut:
            raise Refusal(grpc.StatusCode.UNAVAILABLE)
        running = oracle_of("Operation")(name=run.name)
        if self.has_streams:
            metadata = oracle_of("ExecuteOperationMetadata")(
                stdout_stream_name=f"{run.name}/stdout", stderr_stream_name=f"{run.name}/stderr"
            )
            running.metadata.type_url = "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteOperationMetadata"
            running.metadata.value = metadata.SerializeToString()
        yield running.SerializeToString()
        if cut == 1:
            raise Refusal(grpc.StatusCode.UNAVAILABLE)
        run.ended.wait()
        yield run.operation.SerializeToString()

    def read(self, request: bytes) -> Iterator[bytes]:
        """Yield the parts of a blob, or what a process prints, until its end."""
        asked = oracle_of("ReadRequest").FromString(request)
        name, _, stream = asked.resource_name.rpartition("/")
        if name not in self.runs:
            yield from super().read(request)
            return
        run, offset = self.runs[name], asked.read_offset
        while True:
            is_last = run.ended.wait(0.05)
            path = self._printed_by(run, stream)
            data = path.read_bytes()[offset:] if path.exists() else b""
            for at in range(0, len(data), self.part_bytes):
                yield oracle_of("ReadResponse")(data=data[at : at + self.part_bytes]).SerializeToString()
            offset += len(data)
            if is_last:
                return

    def _printed_by(self, run: _Run, stream: str) -> Path:
        return self.printed / f"{run.name.rpartition('/')[2]}-{stream}"

    def cancel_operation(self, request: Any) -> Any:
        """Kill the process, but not what it has started."""
        run = self.runs[request.name]
        run.is_cancelled = True
        if run.process is not None:
            run.process.kill()
        return b""

    def ended_run(self, name: str, code: int) -> _Run:
        """Return an execution that has ended with a status."""
        run, response = _Run(name), oracle_of("ExecuteResponse")()
        response.status.code = code
        self._end(run, response)
        return run

    def _run(self, run: _Run, request: Any) -> None:
        response = oracle_of("ExecuteResponse")()
        if (status := self.on_status()) is not None:
            response.status.code, response.status.message = status
            self._end(run, response)
            return
        try:
            with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as name:
                self._run_in(Path(name), run, request, response)
        except _Missing as missing:
            failure = oracle_of("PreconditionFailure")()
            failure.violations.add(type="MISSING", subject=f"blobs/{missing.digest.hash}/{missing.digest.size_bytes}")
            response.status.code = _PRECONDITION
            response.status.details.add(
                type_url="type.googleapis.com/google.rpc.PreconditionFailure", value=failure.SerializeToString()
            )
        if run.is_cancelled:
            response.status.code = _CANCELLED
        self._end(run, response)

    def _end(self, run: _Run, response: Any) -> None:
        run.operation = oracle_of("Operation")(name=run.name, done=True)
        run.operation.response.type_url = "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse"
        run.operation.response.value = response.SerializeToString()
        run.ended.set()

    def _run_in(self, folder: Path, run: _Run, request: Any, response: Any) -> None:
        action = self._message("ActionProto", request.action_digest)
        command = self._message("Command", action.command_digest)
        self.actions.append(action)
        self.commands.append(command)
        self._stage(action.input_root_digest, folder)
        here = folder / command.working_directory
        for path in command.output_paths:
            (here / path).parent.mkdir(parents=True, exist_ok=True)
        env = {one.name: one.value for one in command.environment_variables}
        printed = [self._printed_by(run, stream) for stream in ("stdout", "stderr")]
        try:
            with printed[0].open("wb") as stdout, printed[1].open("wb") as stderr:
                run.process = subprocess.Popen(
                    list(command.arguments),
                    cwd=here,
                    env={"TMPDIR": str(self.folder), **env},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            response.result.exit_code, response.result.stderr_raw = 127, str(error).encode()
            return
        if run.is_cancelled:
            run.process.kill()
        try:
            run.process.wait(action.timeout.seconds + action.timeout.nanos / 1e9)
        except subprocess.TimeoutExpired:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
            response.status.code = _DEADLINE
        result = response.result
        result.exit_code = run.process.returncode
        result.stdout_raw, result.stderr_raw = (path.read_bytes() for path in printed)
        result.execution_metadata.worker = "worker-1"
        for path in command.output_paths:
            self._collect(path, here / path, result)
        self.before_result(result)

    def _message(self, kind: str, digest: Any) -> Any:
        return oracle_of(kind).FromString(self._bytes(digest))

    def _bytes(self, digest: Any) -> bytes:
        try:
            return self.blobs[digest.hash]
        except KeyError:
            raise _Missing(digest) from None

    def _stage(self, digest: Any, folder: Path) -> None:
        directory = self._message("Directory", digest)
        for file in directory.files:
            path = folder / file.name
            path.write_bytes(self._bytes(file.digest))
            path.chmod(0o755 if file.is_executable else 0o644)
        for link in directory.symlinks:
            (folder / link.name).symlink_to(link.target)
        for one in directory.directories:
            (folder / one.name).mkdir()
            self._stage(one.digest, folder / one.name)

    def _collect(self, name: str, path: Path, result: Any) -> None:
        if path.is_dir():
            tree = oracle_of("Tree")()
            tree.root.CopyFrom(self._directory(path, tree.children))
            result.output_directories.add(path=name, tree_digest=self._put(tree.SerializeToString()))
        elif path.is_file():
            is_executable = bool(path.stat().st_mode & 0o100)
            result.output_files.add(path=name, digest=self._put(path.read_bytes()), is_executable=is_executable)

    def _directory(self, folder: Path, children: Any) -> Any:
        directory = oracle_of("Directory")()
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                directory.symlinks.add(name=path.name, target=os.readlink(path))
            elif path.is_dir():
                child = self._directory(path, children)
                children.append(child)
                directory.directories.add(name=path.name, digest=self._put(child.SerializeToString()))
            elif path.is_file():
                is_executable = bool(path.stat().st_mode & 0o100)
                directory.files.add(name=path.name, digest=self._put(path.read_bytes()), is_executable=is_executable)
        return directory

    def _put(self, data: bytes) -> Any:
        digest = oracle_of("DigestProto")(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        self.blobs[digest.hash] = data
        return digest


class _Missing(Exception):  # noqa: N818 - a status
    def __init__(self, digest: Any) -> None:
        super().__init__(digest.hash)
        self.digest = digest


@contextlib.contextmanager
def serving_executions(folder: Path, port: int = 0) -> Iterator[ExecutionServer]:
    """Run a server for a while."""
    made = ExecutionServer(folder)
    with serving_reapi(made=made, port=port, threads=40):
        try:
            yield made
        finally:
            for run in made.runs.values():
                if run.process is not None and not run.ended.is_set():
                    run.process.kill()
                run.ended.wait(20)


def scheduler_of(server: ReapiServer, options: str = "") -> str:
    """Return the value of `--scheduler` for a server whose workers have this orch23."""
    return f"{server.url}?orch23={ORCH23}{options}"


class ServerProcess:
    """A server in a process of its own, that can be killed and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        command = [sys.executable, "-m", "tests.reapi_workers", str(self.folder), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """Kill the server with signal 9."""
        with self.process:
            self.process.kill()

    @property
    def scheduler(self) -> str:
        """Return the value of `--scheduler`."""
        return f"grpc://127.0.0.1:{self.port}/main/one?orch23={ORCH23}"

    @property
    def plain(self) -> str:
        """Return the value of `--scheduler` for workers that do not have orch23."""
        return f"grpc://127.0.0.1:{self.port}/main/one?orch23=none"


def main(folder: Path, port: int) -> None:
    """Run a server until the end of stdin."""
    with serving_executions(folder, port) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
