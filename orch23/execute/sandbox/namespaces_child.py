"""The supervisor of steps in new namespaces: the part of bubblewrap that orch23 needs.

It is a separate program, since only a process with one thread can enter a user namespace. Each step has its own
namespaces and file system. They are created before the step is requested (ADR 35), so the step waits only for the
mounts of its sandbox directory. The mounts are given as bwrap's options, except that the source of `--file` is a path,
that `--lower` mounts files on an empty folder of the machine, and that `--layers` names a folder for what is written,
the folder with those, and where all are mounted, one above the other.
"""

from __future__ import annotations

import ctypes
import os
import struct

from orch23.execute import supervisor_child
from orch23.execute.supervisor_child import (
    Isolation,
    IsolationError,
    check_result,
    drop_capabilities,
    install_filter,
    libc,
    raise_loopback,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from orch23.execute.supervisor_child import Message

_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
# CLONE_NEW{USER,PID,NS,IPC,UTS}
_NAMESPACES = 0x1000_0000 | 0x2000_0000 | 0x0002_0000 | 0x0800_0000 | 0x0400_0000
_NEW_NETWORK, _NEW_CGROUPS = 0x4000_0000, 0x0200_0000
# The MS_* of mount and the MOUNT_ATTR_* of mount_setattr have the same values.
_NO_SUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8
_READ_ONLY = 1
_BIND, _RECURSIVE, _SLAVE, _DETACH = 1 << 12, 1 << 14, 1 << 19, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 1, 24, 47
_CAPABILITIES = 64
_BASES = ("/tmp", "/run", "/mnt")  # noqa: S108 - covered by a mount that no other process sees
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "fd": "/proc/self/fd",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}
# Of /proc: their files change settings of the kernel.
_PROC_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus")
_FAILED = 1

_ARGUMENT_COUNTS = {
    **dict.fromkeys(("--perms", "--size", "--proc", "--dev", "--tmpfs", "--remount-ro"), 1),
    **dict.fromkeys(("--bind", "--ro-bind", "--ro-bind-try", "--symlink", "--file", "--lower"), 2),
    "--layers": 3,
}
# Their first argument is a path of the machine.
_WITH_SOURCE = frozenset(("--bind", "--ro-bind", "--ro-bind-try", "--file"))
_SIGINT, _SIGKILL, _SIGCHLD = 2, 9, 17
_REPORT_BYTES = 1 << 12
_MAX_DESCRIPTORS = 1 << 20
_HOSTNAME = b"orch23"
# The ids of each step: `/etc/passwd` of the sandbox names them.
_ID = 1000
# If memory runs out, the kernel kills the step before orch23.
_KILLED_FIRST = "1000"

# The option, its arguments, and the values of `--perms` and `--size` before it.
Operation: TypeAlias = "tuple[str, tuple[str, ...], int, str]"


def main() -> None:
    """Serve requests."""
    supervisor_child.serve(lambda setup: Namespaces(*setup))


class Namespaces(Isolation):
    """Give each step its own namespaces.

    Its first process is the first of its PID namespace: with that the kernel ends all others.
    """

    def __init__(self, options: Sequence[str], filter_program: bytes, own_network: int, _: object) -> None:
        """Keep the mounts that all steps have, and the seccomp filter. The last value tells supervisors apart."""
        # Links are resolved here, since the paths of the machine change when a step's tree is made.
        self._operations = tuple(
            (option, (os.path.realpath(words[0]), words[1]) if option in _WITH_SOURCE else words, perms, size)
            for option, words, perms, size in _parse(options)
        )
        self._filter = filter_program
        self._namespaces = _NAMESPACES | (_NEW_NETWORK if own_network else 0)

    def fork(self) -> int:
        """Return 0 in a new process, which is alone in new namespaces, and in the supervisor the pid of the first one.

        Raises:
            IsolationError: the namespaces or the file system could not be made.
            OSError: no descriptor is left.
        """
        reports, reporting = os.pipe2(os.O_CLOEXEC)
        waiting, ready = os.pipe2(os.O_CLOEXEC)
        user, group = os.getuid(), os.getgid()
        first, report = 0, ""
        try:
            first = _clone(self._namespaces)
        except OSError as problem:
            report = _reason(problem)
        else:
            if not first:
                os.close(ready)
                return _or_report(reporting, lambda: self._be_first(user, group, waiting, reporting))
            os.write(ready, b".")
        os.close(reporting)
        report = report or os.read(reports, _REPORT_BYTES).decode(errors="replace")
        for descriptor in (reports, waiting, ready):
            os.close(descriptor)
        if report:
            raise IsolationError(report)
        return first

    def enter(self, request: Message, descriptors: Sequence[int]) -> None:
        """Mount what the words of `request` say, and give up the old file system and all privileges.

        Raises:
            IsolationError: that failed.
        """
        del descriptors
        try:
            for operation in _parse(request):
                _apply(*operation)
            _leave_old_tree()
            _write("/proc/self/oom_score_adj", _KILLED_FIRST)
            _give_up_capabilities()
            install_filter(self._filter)
        except OSError as problem:
            raise IsolationError(_reason(problem)) from problem

    def _be_first(self, user: int, group: int, waiting: int, reporting: int) -> int:
        """Make the file system and the process that becomes the step; return only in that one."""
        check_result("prctl", libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))
        # Without this byte the supervisor had ended before the call above, which then has no effect.
        if not os.read(waiting, 1):
            os._exit(_FAILED)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_ID} {user} 1")
        _write("/proc/self/gid_map", f"{_ID} {group} 1")
        check_result("sethostname", libc.sethostname(_HOSTNAME, ctypes.c_size_t(len(_HOSTNAME))))
        if self._namespaces & _NEW_NETWORK:
            raise_loopback()
        mask = os.umask(0)
        _make_tree(self._operations)
        os.umask(mask)
        # No program may gain a capability that this process does not have. It fails after the last one of the kernel.
        for capability in range(_CAPABILITIES):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
                break
        command = os.fork()
        if command:
            self._wait_for(command)
        os.close(waiting)
        os.close(reporting)
        return 0

    def _wait_for(self, command: int) -> None:
        """Be the first process: reap all others, and exit as the command does, which ends them."""
        # While this process still has capabilities, which the step lacks and so cannot reach it. A pipe also has no end
        # while another process has it open. The first three are /dev/null.
        os.closerange(3, _MAX_DESCRIPTORS)
        # Python handles it. A first process that does not is sent no signals from inside.
        libc.signal(_SIGINT, None)
        _give_up_capabilities()
        install_filter(self._filter)
        while True:
            pid, status = os.wait()
            if pid == command:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


def _or_report(reporting: int, work: Callable[[], int]) -> int:
    """Return what the work of a child returns. If it fails, report why and exit: it must not go on as its parent."""
    try:
        return work()
    except BaseException as problem:  # noqa: BLE001 - as above
        os.write(reporting, _reason(problem).encode(errors="replace"))
        os._exit(_FAILED)


def _clone(namespaces: int) -> int:
    """Fork to new namespaces: return 0 in the new process, which is the first one in them."""
    # The fork of libc has no flags. Code of libc and Python that runs at a fork is needed only by programs with
    # threads.
    number = ctypes.c_long(_CLONE[os.uname().machine])
    result = -1
    # Some kernels have no cgroup namespaces.
    for flags in (namespaces | _NEW_CGROUPS, namespaces):
        result = libc.syscall(number, ctypes.c_ulong(flags | _SIGCHLD), None, None, None, None)
        if result >= 0:
            break
    return check_result("clone", result)


def _parse(words: Sequence[str]) -> Iterator[Operation]:
    left = iter(words)
    perms, size = "0755", ""
    for option in left:
        values = tuple(next(left) for _ in range(_ARGUMENT_COUNTS[option]))
        if option == "--perms":
            perms = values[0]
        elif option == "--size":
            size = values[0]
        else:
            yield option, values, int(perms, 8), size
            perms, size = "0755", ""


def _make_tree(operations: Sequence[Operation]) -> None:
    """Make a file system of these operations at /new. That of the machine is at /old until `_leave_old_tree`."""
    _mount(None, "/", None, _SLAVE | _RECURSIVE)
    base = next(folder for folder in _BASES if os.path.isdir(folder))
    _mount("tmpfs", base, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=0755")
    os.chdir(base)
    os.mkdir("new", 0o755)
    os.mkdir("old", 0o755)
    _mount("new", "new", None, _BIND)
    _pivot(".", "old")
    os.chdir("/")
    for operation in operations:
        _apply(*operation)


def _leave_old_tree() -> None:
    """Move all processes of the mount namespace to the new file system, and make the machine's unreachable."""
    os.chdir("/new")
    _pivot(".", ".")
    check_result("umount", libc.umount2(b".", _DETACH))
    os.chdir("/")


def _apply(option: str, words: Sequence[str], perms: int, size: str) -> None:
    target = f"/new{words[-1]}"
    match option:
        case "--bind" | "--ro-bind" | "--ro-bind-try":
            _bind_of_machine(option, f"/old{words[0]}", target)
        case "--lower":
            _mount(f"/old{words[0]}", f"/old{words[1]}", None, _BIND)
        case "--layers":
            _mount_layers(words[0], words[1], target)
        case "--symlink":
            _make_folder(os.path.dirname(target))
            os.symlink(words[0], target)
        case "--file":
            _copy_file(f"/old{words[0]}", target, perms)
        case "--tmpfs":
            _mount_tmpfs(target, f"mode={perms:04o},size={size}" if size else f"mode={perms:04o}")
        case "--remount-ro":
            _set_attributes(target, _READ_ONLY, 0)
        case "--proc":
            _make_proc(target)
        case "--dev":
            _make_devices(target)
        case _:
            message = f"{option} is not known"
            raise OSError(message)


def _bind_of_machine(option: str, source: str, target: str) -> None:
    if option != "--ro-bind-try" or os.path.exists(source):
        _bind(source, target, _NO_SUID | _NO_DEVICES | (0 if option == "--bind" else _READ_ONLY))


def _copy_file(source: str, target: str, perms: int) -> None:
    """Copy a file; one that cannot be read any more is left out."""
    try:
        with open(source, "rb", buffering=0) as file:
            data = file.read()
    except OSError:
        return
    _make_folder(os.path.dirname(target))
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, perms), "wb", buffering=0) as file:
        file.write(data)


def _mount_layers(upper: str, layers: str, target: str) -> None:
    """Mount a folder, which gets all writes, above the files that are mounted in the folder of the layers."""
    # By relative names: a path may have the characters that separate options.
    os.chdir(f"/old{layers}")
    lower = ":".join(name for name in sorted(os.listdir()) if name != "work")
    options = f"lowerdir={lower},upperdir={os.path.relpath(upper, layers)},workdir=work,userxattr"
    _mount("overlay", target, "overlay", _NO_SUID | _NO_DEVICES, options)
    os.chdir("/")


def _mount_tmpfs(target: str, options: str) -> None:
    _make_folder(target)
    _mount("tmpfs", target, "tmpfs", _NO_SUID | _NO_DEVICES, options)


def _make_proc(target: str) -> None:
    _make_folder(target)
    _mount("proc", target, "proc", _NO_SUID | _NO_DEVICES | _NO_EXECUTION)
    for name in _PROC_SETTINGS:
        if os.path.exists(f"{target}/{name}"):
            _bind(f"{target}/{name}", f"{target}/{name}", _READ_ONLY)


def _make_devices(target: str) -> None:
    _mount_tmpfs(target, "mode=0755")
    for name in _DEVICES:
        _bind(f"/old/dev/{name}", f"{target}/{name}", _NO_SUID)
    for folder in ("pts", "shm"):
        os.mkdir(f"{target}/{folder}", 0o755)
    _mount("devpts", f"{target}/pts", "devpts", _NO_SUID | _NO_EXECUTION, "newinstance,ptmxmode=0666,mode=620")
    for name, text in _DEVICE_LINKS.items():
        os.symlink(text, f"{target}/{name}")


def _bind(source: str, target: str, attributes: int) -> None:
    if os.path.isdir(source):
        _make_folder(target)
    elif not os.path.lexists(target):
        _make_folder(os.path.dirname(target))
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444))
    _mount(source, target, None, _BIND | _RECURSIVE)
    _set_attributes(target, attributes, _AT_RECURSIVE)


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return
    except FileNotFoundError:
        os.makedirs(path, 0o755, exist_ok=True)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = (os.fsencode(word) if word is not None else None for word in (source, target, kind))
    check_result(f"mount {target}", libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None))


def _set_attributes(target: str, attributes: int, flags: int) -> None:
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)
    numbers = (ctypes.c_int(_AT_FDCWD), os.fsencode(target), ctypes.c_uint(flags))
    size = ctypes.c_size_t(len(wanted))
    check_result(f"mount_setattr {target}", libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *numbers, wanted, size))


def _pivot(new: str, old: str) -> None:
    number = _PIVOT_ROOT[os.uname().machine]
    check_result("pivot_root", libc.syscall(ctypes.c_long(number), new.encode(), old.encode()))


def _give_up_capabilities() -> None:
    libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    drop_capabilities()


def _reason(problem: BaseException) -> str:
    why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    where = f" ({problem.filename})" if isinstance(problem, OSError) and problem.filename else ""
    return f"namespaces: {why}{where}"


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
