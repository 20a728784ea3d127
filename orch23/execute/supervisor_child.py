"""The supervisor process: start and confine one step after the other, and kill what is left.

It is a subreaper and starts nothing but steps. So all its children are processes of the step, whatever they changed of
themselves, and when it has no child left, no process of the step is left. It has one thread, so that code between its
fork and its exec is safe. When orch23 ends, in whatever way, the supervisor ends the step.

It imports the standard library and the sandbox alone, since it must start fast.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from orch23.execute.sandbox import landlock, seccomp
from orch23.execute.sandbox.system_calls import libc, machine, system_call

_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPABILITY_VERSION = 0x2008_0522


def confine(rules: int, *, network: bool) -> None:
    """Restrict this thread, and all that it starts, by a Landlock ruleset and a seccomp filter.

    Raises:
        OSError: the kernel has no Landlock or no seccomp filters.

    """
    # Without a network namespace a step may have no sockets at all: Landlock cannot keep it from this machine's ports.
    own = not network and _own_network()
    sockets = seccomp.AllowedSockets.SHARED if own or network else seccomp.AllowedSockets.NONE
    _drop_capabilities()
    seccomp.give_up_privileges()
    landlock.restrict(rules)
    seccomp.install_filter(seccomp.build_filter(sockets, machine(), alone=False))


def _own_network() -> bool:
    """Move this thread to an empty network namespace with a loopback; return False if that is not allowed."""
    try:
        system_call("unshare", ctypes.c_int(_CLONE_NEWNET))
    except OSError:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    return True


def _drop_capabilities() -> None:
    """Drop all capabilities of root. With no_new_privs no program can regain them."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0), 8)
    system_call("capset", header, ctypes.create_string_buffer(24))


LENGTH_PREFIX = struct.Struct("=I")
"""The length of a message, sent before it together with the descriptors."""

END_REQUEST = ("end",)
MAX_DESCRIPTORS = 64
_INT_BYTES = 4

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_WITHIN_S = 5.0
_REAP_EACH_MS = 500
_FAST_ROUNDS, _PAUSE_S = 100, 0.001
_READ_BYTES = 1 << 16
_FAILED = 255
_BEGUN = b"!"


def main() -> None:
    """Serve requests from the socket at stdin until it is closed."""
    control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3))
    libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Before any fork, so that all children have the filters.
    for sockets in (seccomp.AllowedSockets.SHARED, seccomp.AllowedSockets.NONE):
        seccomp.build_filter(sockets, machine(), alone=False)
    gc.freeze()
    while True:
        _serve(control)


def send_message(control: socket.socket, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
    """Send a message of plain values with descriptors.

    Raises:
        OSError: the other side has ended.

    """
    data = marshal.dumps(message)
    socket.send_fds(control, [LENGTH_PREFIX.pack(len(data))], descriptors)
    control.sendall(data)


def receive_message(control: socket.socket) -> "tuple[tuple[Any, ...], list[int]] | None":
    """Return the next message with its descriptors; None if the other side has ended.

    Raises:
        OSError: it took too long.

    """
    try:
        # Not socket.recv_fds, which ignores its flags: the step would inherit the descriptors.
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * _INT_BYTES)
        head, sent, _, _ = control.recvmsg(LENGTH_PREFIX.size, space, socket.MSG_CMSG_CLOEXEC)
        data = _receive_exactly(control, LENGTH_PREFIX.unpack(head)[0]) if len(head) == LENGTH_PREFIX.size else None
    except ConnectionError:
        return None
    descriptors = [one for _, _, numbers in sent for one in memoryview(numbers).cast("i")]
    return None if data is None else (marshal.loads(data), descriptors)  # noqa: S302 - both sides are orch23


def _receive_exactly(control: socket.socket, size: int) -> "bytes | None":
    parts = []
    while size:
        part = control.recv(min(size, _READ_BYTES))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _serve(control: socket.socket) -> None:
    """Start a step, report its pid, and at the next message kill all that is left of it."""
    leader, error = _start(control)
    if error:
        _end(leader, None)
    with contextlib.suppress(OSError):
        send_message(control, (leader, error))
    if error:
        return
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while not waiting.poll(_REAP_EACH_MS):
        _reap(leader)
    end_request = receive_message(control)
    status, left = _end(leader, _END_WITHIN_S if end_request is not None else None)
    with contextlib.suppress(OSError):
        send_message(control, (status, left))
    # Processes that resist are killed for as long as it takes. No other step may start here meanwhile.
    if left:
        _end(leader, None)
        os._exit(0)


# ---- start ---------------------------------------------------------------------------------------


def _start(control: socket.socket) -> tuple[int, int]:
    """Return the pid of a step and 0, or the pid of the process that could not become it and the error number.

    The fork comes before the request, which the child receives, so that a step does not wait for the fork.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        error = _FAILED
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
                _become(request, descriptors)
        except OSError as problem:
            error = problem.errno or _FAILED
        finally:
            os.write(writing, b"%d" % error)
            os._exit(_FAILED)
    os.close(writing)
    # No request came, since orch23 has ended.
    if os.read(reading, len(_BEGUN)) != _BEGUN:
        os._exit(0)
    # A successful exec closes the pipe without writing an error.
    error_number = os.read(reading, 16)
    os.close(reading)
    return pid, int(error_number or 0)


def _become(request: tuple[Any, ...], descriptors: Sequence[int]) -> None:
    """Turn this process into the step.

    Raises:
        OSError: it cannot be confined, or its program cannot be run.

    """
    argv, env, cwd, limits, numbers, network = request
    stdin, output, errors, rules, *passed = descriptors
    os.setsid()
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number, one in zip((0, 1, 2, *numbers), (stdin, output, errors, *passed), strict=True):
        os.dup2(one, number)
    os.chdir(cwd)
    # Python ignores them, and the program would inherit that.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    for kind, limit in limits:
        resource.setrlimit(kind, (limit, limit))
    confine(rules, network=network)
    _execute(argv, env)


def _execute(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
    """Execute a program, which is searched as a shell does.

    Raises:
        OSError: it is missing, or cannot be executed.

    """
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


# ---- end -----------------------------------------------------------------------------------------


def _end(leader: int, within_s: "float | None") -> tuple[int, list[int]]:
    """Kill all processes of the step. Return the status of the first one, and the pids that are left after the time.

    Only this process reaps its children, so no pid that it kills can be reused.
    """
    status, rounds = 0, 0
    deadline = None if within_s is None else time.monotonic() + within_s
    while True:
        children = _children()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/children", "rb") as listed:
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
