"""Start and reuse supervisors: processes that start steps and kill all that is left of them."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` builds enumerations on import, which is slow
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from orch23.execute import process_tree
from orch23.store.safe_files import closing

_MAIN = "import sys; sys.path.append(sys.argv[1]); from {program} import main; main()"
_PACKAGES = str(Path(__file__).parents[2])
_REPLY_WITHIN_S = 15.0

# Supervisors are reused, since Python takes 20 to 50 ms to start.
_LOCK = threading.Lock()
# One for each step that runs at the same time, and for each program and setup.
_IDLE: list["Supervisor"] = []


class Confinement(Struct, frozen=True, kw_only=True):
    """How a supervised step is confined.

    `program` is the module of the supervisor, `setup` its first message: all steps with the same two can share a
    supervisor. `request` and `descriptors` are what it needs for this step, `limits` pairs of a resource and
    its soft and hard limit.
    """

    program: str
    setup: tuple[Any, ...] = ()
    request: tuple[Any, ...] = ()
    descriptors: tuple[int, ...] = ()
    limits: tuple[tuple[int, tuple[int, int]], ...] = ()


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """How a process is started. `env` is its whole environment, `stdin` a descriptor or DEVNULL.

    `marker` is the value of ORCH23_ROOM in `env`. With a `confinement` a supervisor starts it, restricted by that.
    `on_start` is called with the process when it exists. With `shows_stacks`, its processes that handle SIGQUIT get it
    before they are killed at a timeout: a handler of Python, Java or Go writes the stacks.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    pass_fds: tuple[int, ...] = ()
    stdin: int = subprocess.DEVNULL
    marker: str = ""
    confinement: Confinement | None = None
    on_start: Callable[[process_tree.ProcessTree], None] | None = None
    shows_stacks: bool = False


class LeaderExit(Struct, frozen=True):
    """The exit code of a step's first process (negative: the signal), and the processes that could not be killed.

    `lost` is True if the supervisor itself was killed: then it is not known what the step left.
    """

    exit_code: int
    survivors: tuple[int, ...] = ()
    lost: bool = False


class Supervisor:
    """A supervisor process, which runs one step at a time."""

    def __init__(self, program: str, setup: tuple[Any, ...]) -> None:
        """Start it, without environment, in a session of its own, so that a terminal sends it no signals.

        Raises:
            OSError: it could not be started.
        """
        import socket  # noqa: PLC0415 - steps without a sandbox have no supervisor

        from orch23.execute import supervisor_child  # noqa: PLC0415 - likewise

        self._protocol = supervisor_child
        self._control, far = socket.socketpair()
        self._control.settimeout(_REPLY_WITHIN_S)
        with far:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _MAIN.format(program=program), _PACKAGES],
                stdin=far.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        self.purpose, self.pid = (program, setup), self.process.pid
        with contextlib.suppress(OSError):  # it ended: `start` reports that
            self._protocol.send_message(self._control, setup)

    def start(self, process: ProcessSpec, streams: tuple[int, int], file_bytes: int) -> int:
        """Start a step and return the pid of its first process, which only `end` reaps.

        `process` must have a confinement. `streams` are stdout and stderr, `file_bytes` is the file size limit.

        Raises:
            IsolationError: its sandbox could not be made.
            OSError: it could not be started.
        """
        confinement = process.confinement
        assert confinement is not None
        request = (
            tuple(map(os.fsencode, process.argv)),
            {os.fsencode(name): os.fsencode(value) for name, value in process.env.items()},
            os.fsencode(process.cwd),
            (*process_tree.step_limits(file_bytes), *confinement.limits),
            tuple(process.pass_fds),
            confinement.request,
        )
        with closing(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) as null:
            stdin = null if process.stdin == subprocess.DEVNULL else process.stdin
            self._protocol.send_message(
                self._control, request, (stdin, *streams, *process.pass_fds, *confinement.descriptors)
            )
        pid, error, why = self._receive()
        if why:
            raise self._protocol.IsolationError(why)
        if error:
            raise OSError(error, os.strerror(error), process.argv[0])
        return int(pid)

    def end(self, tree: process_tree.ProcessTree) -> LeaderExit:
        """Kill all processes of the step and wait for their end. `tree` is needed if the supervisor was killed."""
        try:
            self._protocol.send_message(self._control, self._protocol.END_REQUEST)
            status, survivors = self._receive()
        except OSError:
            # The supervisor was killed or stopped: before Linux 6.12 Landlock does not keep a step from that.
            self.process.kill()
            self.close()
            return LeaderExit(-signal.SIGKILL, _kill_orphans(tree), lost=True)
        # The supervisor goes on killing them, and starts no other step.
        if survivors:
            self._control.close()
        return LeaderExit(os.waitstatus_to_exitcode(status), tuple(survivors))

    def close(self) -> None:
        """End it, with all processes that it started."""
        self._control.close()
        try:
            self.process.wait(_REPLY_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _receive(self) -> tuple[Any, ...]:
        reply = self._protocol.receive_message(self._control)
        if reply is None:
            raise ConnectionResetError
        return reply[0]


def acquire_supervisor(confinement: Confinement) -> Supervisor:
    """Return a supervisor for steps that are confined like this, which runs no step.

    Raises:
        OSError: a new one could not be started.
    """
    purpose = confinement.program, confinement.setup
    with _LOCK:
        for one in [one for one in reversed(_IDLE) if one.purpose == purpose]:
            _IDLE.remove(one)
            if one.process.poll() is None:
                return one
            one.close()
    return Supervisor(*purpose)


def release_supervisor(one: Supervisor) -> None:
    """Keep a supervisor whose step has ended for the next step."""
    with _LOCK:
        _IDLE.append(one)


def close_idle_supervisors() -> None:
    """End all supervisors that run no step."""
    with _LOCK:
        idle, _IDLE[:] = tuple(_IDLE), []
    for one in idle:
        one.close()


def _kill_orphans(tree: process_tree.ProcessTree) -> tuple[int, ...]:
    """Kill the processes that became ours when their supervisor was killed, as far as they can be recognized."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        survivors = process_tree.kill_tree(tree)
        if tree.status is None:
            os.waitpid(tree.leader, 0)
        return survivors
    return ()
