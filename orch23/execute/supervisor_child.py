"""What supervisor processes have in common: start one step after the other, and kill what is left of it.

A supervisor is a subreaper and starts nothing but steps. So all its children are processes of the step, whatever they
changed of themselves, and when it has no child left, no process of the step is left. It has one thread, so that code
between its fork and its exec is safe. When orch23 ends, in whatever way, the supervisor ends the step.

It imports few modules, and those without Python code where there are such, since each build waits for its start.
"""

from __future__ import annotations

import _socket
import _thread
import ctypes
import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

LENGTH_PREFIX = struct.Struct("=I")
"""The length of a message, sent before it together with the descriptors."""

END_REQUEST = ("end",)
MAX_DESCRIPTORS = 64
_INT_BYTES = 4

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_FILTER_MODE = 2
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPABILITY_VERSION = 0x2008_0522
_SIGKILL, _SIGNALS = 9, 32
_END_WITHIN_S = 5.0
_REAP_EACH_MS = 500
_LAST_CHILD_S = 5.0
_FAST_ROUNDS, _PAUSE_S = 100, 0.001
_READ_BYTES = 1 << 16
_FAILED = 255
_BEGUN = b"!"

libc = ctypes.CDLL(None, use_errno=True)


Message: TypeAlias = "tuple[Any, ...]"


class IsolationError(Exception):
    """The sandbox of a step could not be made."""


class Isolation:
    """How the steps of a supervisor are isolated. Its work is split, so that most of it is done before the request."""

    def fork(self) -> int:
        """Return 0 in a new process, which becomes the step, and in the supervisor the pid of its first process.

        Raises:
            IsolationError: the sandbox could not be made.
            OSError: there are too many processes, or no memory is left.
        """
        return os.fork()

    def enter(self, request: Message, descriptors: Sequence[int]) -> None:
        """Restrict the new process, as this request says.

        Raises:
            IsolationError: the sandbox could not be made.
            OSError: the kernel does not support a restriction.
        """
        raise NotImplementedError


def serve(isolation: Callable[[Message], Isolation]) -> None:
    """Serve requests from the socket at stdin until it is closed. The first message goes to `isolation`."""
    control = _socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    # No process of a step may keep the socket open.
    os.dup2(nothing := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
    os.close(nothing)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    received = receive_message(control)
    if received is None:
        return
    isolate = isolation(received[0])
    gc.freeze()
    while True:
        _serve(control, isolate)


def send_message(control: _socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message of plain values with descriptors.

    Raises:
        OSError: the other side has ended.
    """
    data = marshal.dumps(message)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
    control.sendmsg([LENGTH_PREFIX.pack(len(data))], [rights] if descriptors else [])
    control.sendall(data)


def receive_message(control: _socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message with its descriptors; None if the other side has ended.

    Raises:
        OSError: it took too long.
    """
    try:
        # Not socket.recv_fds, which ignores its flags: the step would inherit the descriptors.
        space = _socket.CMSG_SPACE(MAX_DESCRIPTORS * _INT_BYTES)
        head, sent, _, _ = control.recvmsg(LENGTH_PREFIX.size, space, _socket.MSG_CMSG_CLOEXEC)
        data = _receive_exactly(control, LENGTH_PREFIX.unpack(head)[0]) if len(head) == LENGTH_PREFIX.size else None
    except ConnectionError:
        return None
    descriptors = [one for _, _, numbers in sent for one in memoryview(numbers).cast("i")]
    return None if data is None else (marshal.loads(data), descriptors)  # noqa: S302 - both sides are orch23


def raise_loopback() -> None:
    """Start the loopback of this process's own network namespace.

    Raises:
        OSError: the kernel refuses it.
    """
    any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    name = struct.pack("16sH14x", b"lo", 0)
    flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket.fileno(), _SIOCGIFFLAGS, name))[1]
    fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    any_socket.close()


def drop_capabilities() -> None:
    """Drop all capabilities of this process. With no_new_privs no program can regain them.

    Raises:
        OSError: the kernel refuses it.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0), 8)
    check_result("capset", libc.capset(header, ctypes.create_string_buffer(24)))


def install_filter(filter_program: bytes) -> None:
    """Install a seccomp filter for this thread and all that it starts. They cannot gain privileges afterwards.

    Raises:
        OSError: the kernel has no seccomp filters.
    """
    check_result("no_new_privs", libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = struct.pack("@HP", len(filter_program) // 8, ctypes.addressof(buffer))
    check_result("seccomp", libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), header, 0, 0))


def check_result(name: str, result: int) -> int:
    """Return the result of a C function.

    Raises:
        OSError: it is -1.
    """
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return int(result)


def _receive_exactly(control: _socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size and (part := control.recv(min(size - len(data), _READ_BYTES))):
        data += part
    return data if len(data) == size else None


def _serve(control: _socket.socket, isolation: Isolation) -> None:
    """Start a step, report its pid, and at the next message kill all that is left of it."""
    leader, error, why = _start(control, isolation)
    if error:
        _end(leader, None)
    _reply(control, (leader, error, why))
    if error:
        return
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while not waiting.poll(_REAP_EACH_MS):
        _reap(leader)
    end_request = receive_message(control)
    status, left = _end(leader, _END_WITHIN_S if end_request is not None else None)
    _reply(control, (status, left))
    # Processes that resist are killed for as long as it takes. No other step may start here meanwhile.
    if left:
        _end(leader, None)
    if left or end_request is None:
        os._exit(0)


def _reply(control: _socket.socket, message: Message) -> None:
    try:
        send_message(control, message)
    except OSError:
        return  # orch23 has ended: the next message says so too


def _start(control: _socket.socket, isolation: Isolation) -> tuple[int, int, str]:
    """Return the pid of a step and 0, or of the process that could not become it, the error number and the reason."""
    # The reason is empty if the program could not be run. The fork comes before the request, which the child receives,
    # so that a step does not wait for the fork.
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = isolation.fork()
    except (OSError, IsolationError) as problem:
        os.close(reading)
        os.close(writing)
        received = receive_message(control)
        if received is None:
            os._exit(0)
        for descriptor in received[1]:
            os.close(descriptor)
        return 0, *_described(problem)
    if not pid:
        described = _FAILED, ""
        try:
            received = receive_message(control)
            if received is not None:
                os.write(writing, _BEGUN)
                request, descriptors = received
                # Above the numbers of all descriptors that the step will have, so that dup2 overwrites none of these.
                above = max((2, *request[4])) + 1
                writing, *descriptors = (
                    fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in (writing, *descriptors)
                )
                _become(request, descriptors, isolation)
        except (OSError, IsolationError) as problem:
            described = _described(problem)
        finally:
            os.write(writing, marshal.dumps(described))
            os._exit(_FAILED)
    os.close(writing)
    # No request came: orch23 needs no more steps, or has ended. Otherwise the child would stay a zombie of orch23.
    if os.read(reading, len(_BEGUN)) != _BEGUN:
        _end(pid, _LAST_CHILD_S)
        os._exit(0)
    # A successful exec closes the pipe without writing an error.
    reported = os.read(reading, _READ_BYTES)
    os.close(reading)
    return pid, *(marshal.loads(reported) if reported else (0, ""))  # noqa: S302 - the step has not started


def _described(problem: OSError | IsolationError) -> tuple[int, str]:
    return (problem.errno or _FAILED, "") if isinstance(problem, OSError) else (_FAILED, str(problem))


def _become(request: Message, descriptors: Sequence[int], isolation: Isolation) -> None:
    """Turn this process into the step. Otherwise it raises IsolationError or OSError."""
    argv, env, cwd, limits, numbers, confinement = request
    count = 3 + len(numbers)
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    isolation.enter(confinement, descriptors[count:])
    for number, one in zip((0, 1, 2, *numbers), descriptors[:count], strict=True):
        os.dup2(one, number)
    os.chdir(cwd)
    # Python ignores some, `nohup` and shells others, and the program would inherit that.
    for number in range(1, _SIGNALS):
        libc.signal(number, None)
    os.umask(0o022)
    for kind, limit in limits:
        resource.setrlimit(kind, limit)
    _execute(argv, env)


def _execute(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
    """Execute a program, which is searched as a shell does."""
    folders = env.get(b"PATH", os.defpath.encode()).split(b":") if b"/" not in argv[0] else [b""]
    missing = refused = None
    for folder in folders:
        try:
            os.execve(os.path.join(folder, argv[0]), list(argv), env)  # noqa: S606 - a step is a program
        except (FileNotFoundError, NotADirectoryError) as problem:
            missing = problem
        except OSError as problem:
            refused = refused or problem
    raise refused or missing or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _end(leader: int, within_s: float | None) -> tuple[int, list[int]]:
    """Kill all processes of the step. Return the status of the first one, and the pids that are left after the time."""
    # Only this process reaps its children, so no pid that it kills can be reused.
    status, rounds = 0, 0
    deadline = None if within_s is None else time.monotonic() + within_s
    while True:
        children = _children()
        for pid in children:
            try:
                os.kill(pid, _SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == leader else status
        except ChildProcessError:
            return status, []
        if deadline is not None and time.monotonic() > deadline:
            return status, children
        rounds += 1
        time.sleep(0 if rounds < _FAST_ROUNDS else _PAUSE_S)


def _reap(leader: int) -> None:
    """Reap children that have ended, except for the leader, which orch23 watches through its pid."""
    for pid in _children():
        if pid != leader:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{_thread.get_native_id()}/children", "rb") as listed:
            return list(map(int, listed.read().split()))
    except FileNotFoundError:
        # The kernel was built without CONFIG_PROC_CHILDREN.
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == os.getpid()]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
