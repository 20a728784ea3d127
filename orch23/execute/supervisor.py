"""Start and reuse supervisors: processes that start steps and kill all that is left of them."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from orch23.execute import process_tree
from orch23.execute.supervisor_child import END_REQUEST, receive_message, send_message

_MAIN = "import sys; sys.path.append(sys.argv[1]); from orch23.execute.supervisor_child import main; main()"
_PACKAGES = str(Path(__file__).parents[2])
_ANSWER_WITHIN_S = 15.0

_LOCK = threading.Lock()
_IDLE: list["Supervisor"] = []


class Confinement(Struct, frozen=True):
    """What a supervised step is held to: the descriptor of a Landlock ruleset, and whether it has the network."""

    rules: int
    network: bool


class LeaderExit(Struct, frozen=True):
    """How the first process of a step ended (negative: by that signal), and the processes that could not be killed.

    `lost` is True where the supervisor itself was killed: then nothing is known of what the step left.
    """

    exit_code: int
    survivors: tuple[int, ...] = ()
    lost: bool = False


class Supervisor:
    """One such process."""

    def __init__(self) -> None:
        """Start it; it has no environment, and a session of its own, which no terminal signals.

        Raises:
            OSError: it could not be started.

        """
        self._control, far = socket.socketpair()
        self._control.settimeout(_ANSWER_WITHIN_S)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _MAIN, _PACKAGES],
                stdin=far.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Give its number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether it can be given a step."""
        return self._process.poll() is None

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        streams: tuple[int, int],
        pass_fds: Sequence[int],
        file_bytes: int,
        confinement: Confinement,
    ) -> int:
        """Start a step, and return its first process, which is reaped only by `end`. `streams` are stdout and stderr.

        Raises:
            OSError: it could not be started.

        """
        request = (
            tuple(map(os.fsencode, argv)),
            {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
            os.fsencode(cwd),
            ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, file_bytes)),
            tuple(pass_fds),
            confinement.network,
        )
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if stdin == subprocess.DEVNULL else stdin
        try:
            send_message(self._control, request, (null, *streams, confinement.rules, *pass_fds))
        finally:
            if null != stdin:
                os.close(null)
        pid, error = self._answer()
        if error:
            raise OSError(error, os.strerror(error), argv[0])
        return int(pid)

    def end(self, family: process_tree.ProcessTree) -> LeaderExit:
        """Kill all processes of the step, and return when they have ended. `family` serves where it was killed."""
        try:
            send_message(self._control, END_REQUEST)
            status, survivors = self._answer()
        except OSError:  # it was killed, or stopped
            self._process.kill()
            self.close()
            return LeaderExit(-signal.SIGKILL, _end_orphans(family), lost=True)
        if survivors:
            self._control.close()  # it goes on killing, and starts nothing more
        return LeaderExit(os.waitstatus_to_exitcode(status), tuple(survivors))

    def close(self) -> None:
        """End it, with all that it started."""
        self._control.close()
        try:
            self._process.wait(_ANSWER_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> tuple[Any, ...]:
        answer = receive_message(self._control)
        if answer is None:
            raise ConnectionResetError
        return answer[0]


def acquire_supervisor() -> Supervisor:
    """Return a supervisor that has no step.

    Raises:
        OSError: none could be started.

    """
    with _LOCK:
        while _IDLE:
            one = _IDLE.pop()
            if one.is_running:
                return one
            one.close()
    return Supervisor()


def release_supervisor(one: Supervisor) -> None:
    """Keep a supervisor whose step has ended for the next step."""
    with _LOCK:
        _IDLE.append(one)


def close_idle_supervisors() -> None:
    """End all supervisors that have no step."""
    with _LOCK:
        idle, _IDLE[:] = tuple(_IDLE), []
    for one in idle:
        one.close()


def _end_orphans(family: process_tree.ProcessTree) -> tuple[int, ...]:
    """Kill what became ours when its supervisor was killed, as far as it can be told."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        survivors = process_tree.kill_tree(family)
        os.waitpid(family.leader, 0)
        return survivors
    return ()
