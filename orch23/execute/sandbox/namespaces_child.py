"""Run a command in new namespaces: the part of bubblewrap that orch23 needs.

It is a separate program, since only a process with one thread can enter a user namespace. It takes bwrap's options and
reports as bwrap does on `--json-status-fd`. It imports nothing of orch23: `python -I -S` starts it before each step.
"""

import _socket
import ctypes
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

_IGNORED = 1  # SIG_IGN
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_NEW_MOUNTS, _NEW_CGROUPS = 0x0002_0000, 0x0200_0000
_NAMESPACES = {
    "--unshare-user": 0x1000_0000,
    "--unshare-pid": 0x2000_0000,
    "--unshare-net": 0x4000_0000,
    "--unshare-ipc": 0x0800_0000,
    "--unshare-uts": 0x0400_0000,
    "--unshare-cgroup-try": _NEW_CGROUPS,
}
# The MS_* of mount and the MOUNT_ATTR_* of mount_setattr have the same values.
_NO_SUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8
_READ_ONLY = 1
_BIND, _RECURSIVE, _SLAVE, _DETACH = 1 << 12, 1 << 14, 1 << 19, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 22, 24, 38, 47
_CAPABILITIES = 64
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
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

_SETTINGS = ("--hostname", "--chdir", "--seccomp", "--json-status-fd", "--perms", "--size", "--cap-drop")
_ARGUMENT_COUNTS = {
    **dict.fromkeys(_SETTINGS, 1),
    **dict.fromkeys(("--proc", "--dev", "--tmpfs", "--remount-ro"), 1),
    **dict.fromkeys(("--bind", "--ro-bind", "--ro-bind-try", "--symlink", "--file"), 2),
}
_OPERATIONS = frozenset(option for option in _ARGUMENT_COUNTS if option not in _SETTINGS)
_SIGINT, _SIGKILL, _SIGPIPE, _SIGXFSZ = 2, 9, 13, 25

# The option, its arguments, and the values of `--perms` and `--size` before it.
Operation = tuple[str, list[str], int, str]


class BwrapOptions:
    """The values of bwrap's options."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Parse the options that orch23 uses."""
        end = arguments.index("--")
        self.command = list(arguments[end + 1 :])
        options = list(_parse(arguments[:end]))
        given = dict(options)
        self.namespaces = sum(_NAMESPACES.get(option, 0) for option in given)
        self.own_network = "--unshare-net" in given
        (self.hostname,), (self.folder,) = given["--hostname"], given["--chdir"]
        self.filter, self.status = int(given["--seccomp"][0]), int(given["--json-status-fd"][0])
        self.operations: list[Operation] = []
        before: dict[str, str] = {}
        for option, words in options:
            if option in ("--perms", "--size"):
                before[option] = words[0]
            elif option in _OPERATIONS:
                self.operations.append((option, words, int(before.pop("--perms", "0755"), 8), before.pop("--size", "")))


def _parse(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    left = iter(arguments)
    for option in left:
        yield option, [next(left) for _ in range(_ARGUMENT_COUNTS.get(option, 0))]


def main() -> None:
    """Create the namespaces, and wait for the first process in them."""
    wanted = BwrapOptions(sys.argv[1:])
    # Not os.environ, to which Python may have added variables.
    with open("/proc/self/environ", "rb") as file:
        environment = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    # Python handles or ignores these signals, and the command would inherit that. SIGINT stays ignored if the parent
    # ignored it, such as a shell that started this in the background.
    for number in (_SIGINT, _SIGPIPE, _SIGXFSZ):
        before = _LIBC.signal(number, None)
        if number == _SIGINT and before == _IGNORED:
            _LIBC.signal(number, ctypes.c_void_p(_IGNORED))
    # A byte in the first pipe reports a failure; if it is closed without one, the command was executed.
    failure, report_failure = os.pipe()
    parent_ready, report_ready = os.pipe()
    try:
        _end_with_parent()
        _enter(wanted.namespaces)
        first = os.fork()
    except OSError as problem:
        _print_error(problem)
        os._exit(_FAILED)
    if first == 0:
        os.close(report_ready)
        _run_child(lambda: _run_init(wanted, environment, parent_ready), report_failure)
    os.close(report_failure)
    os.write(wanted.status, b'{ "child-pid": %d }\n' % first)
    _close_all_but(failure, report_ready, wanted.status)
    os.write(report_ready, b".")
    code = _exit_code(os.waitpid(first, 0)[1])
    if not os.read(failure, 1):
        os.write(wanted.status, b'{ "exit-code": %d }\n' % code)
    os._exit(code)


def _enter(namespaces: int) -> None:
    """Move to new namespaces with the same user and group. The next child is the first process in them."""
    user, group = os.getuid(), os.getgid()
    try:
        _checked("unshare", _LIBC.unshare(namespaces))
    except OSError:
        # `--unshare-cgroup-try` may fail: then without a cgroup namespace.
        _checked("unshare", _LIBC.unshare(namespaces & ~_NEW_CGROUPS))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def _run_init(wanted: BwrapOptions, environment: dict[bytes, bytes], parent_ready: int) -> None:
    """Be the first process: make the file system, run the command, and exit with it, which ends all others."""
    _end_with_parent()
    # Without this byte the parent had ended before the call above, which then has no effect.
    if not os.read(parent_ready, 1):
        os._exit(_FAILED)
    _checked("unshare", _LIBC.unshare(_NEW_MOUNTS))
    if wanted.hostname:
        name = wanted.hostname.encode()
        _checked("sethostname", _LIBC.sethostname(name, ctypes.c_size_t(len(name))))
    if wanted.own_network:
        _raise_loopback()
    with os.fdopen(wanted.filter, "rb") as file:
        filter_program = file.read()
    mask = os.umask(0)
    _make_tree(wanted.operations)
    os.umask(mask)
    _drop_capabilities()
    _install_filter(filter_program)
    command = os.fork()
    if command == 0:
        os.close(parent_ready)
        os.close(wanted.status)
        os.setsid()
        os.chdir(wanted.folder)
        try:
            os.execve(wanted.command[0], wanted.command, environment)  # noqa: S606 - the purpose of this program
        except OSError as problem:
            raise OSError(problem.errno, f"execvp {wanted.command[0]}: {problem.strerror}") from None
    _close_all_but()
    while True:
        pid, status = os.wait()
        if pid == command:
            os._exit(_exit_code(status))


# ---- the file system ------------------------------------------------------------------------------------------------


def _make_tree(operations: Sequence[Operation]) -> None:
    """Make a file system of exactly these operations and move to it; that of the machine is unreachable then.

    During that the machine's is at /old, and the new one at /new.
    """
    resolved = [
        (option, [os.path.realpath(words[0]), words[1]] if "bind" in option else words, perms, size)
        for option, words, perms, size in operations
    ]
    _mount(None, "/", None, _SLAVE | _RECURSIVE)
    base = next(folder for folder in _BASES if os.path.isdir(folder))
    _mount("tmpfs", base, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=0755")
    os.chdir(base)
    os.mkdir("new", 0o755)
    os.mkdir("old", 0o755)
    _mount("new", "new", None, _BIND)
    _pivot(".", "old")
    os.chdir("/")
    for operation in resolved:
        _apply(*operation)
    _checked("umount", _LIBC.umount2(b"/old", _DETACH))
    os.chdir("/new")
    _pivot(".", ".")
    _checked("umount", _LIBC.umount2(b".", _DETACH))
    os.chdir("/")


def _apply(option: str, words: list[str], perms: int, size: str) -> None:
    target = f"/new{words[-1]}"
    match option:
        case "--bind" | "--ro-bind" | "--ro-bind-try":
            source = f"/old{words[0]}"
            if option != "--ro-bind-try" or os.path.exists(source):
                _bind(source, target, _NO_SUID | _NO_DEVICES | (0 if option == "--bind" else _READ_ONLY))
        case "--symlink":
            _make_parents(target)
            os.symlink(words[0], target)
        case "--file":
            _make_parents(target)
            with os.fdopen(int(words[0]), "rb") as source_file:
                data = source_file.read()
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, perms), "wb") as file:
                file.write(data)
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
        _make_parents(target)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444))
    _mount(source, target, None, _BIND | _RECURSIVE)
    _set_attributes(target, attributes, _AT_RECURSIVE)


def _make_folder(path: str) -> None:
    os.makedirs(path, 0o755, exist_ok=True)


def _make_parents(path: str) -> None:
    _make_folder(os.path.dirname(path))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = (word.encode() if word is not None else None for word in (source, target, kind))
    _checked(f"mount {target}", _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None))


def _set_attributes(target: str, attributes: int, flags: int) -> None:
    """Add restrictions to a mount."""
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)
    numbers = (ctypes.c_int(_AT_FDCWD), os.fsencode(target), ctypes.c_uint(flags))
    size = ctypes.c_size_t(len(wanted))
    _checked(f"mount_setattr {target}", _LIBC.syscall(ctypes.c_long(_MOUNT_SETATTR), *numbers, wanted, size))


def _pivot(new: str, old: str) -> None:
    number = _PIVOT_ROOT[os.uname().machine]
    _checked("pivot_root", _LIBC.syscall(ctypes.c_long(number), new.encode(), old.encode()))


# ---- privileges -----------------------------------------------------------------------------------------------------


def _end_with_parent() -> None:
    _checked("prctl", _LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))


def _drop_capabilities() -> None:
    for capability in range(_CAPABILITIES):
        # It fails after the last capability that the kernel knows.
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    _LIBC.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x2008_0522, 0), 8)
    _checked("capset", _LIBC.capset(header, ctypes.create_string_buffer(24)))


def _install_filter(filter_program: bytes) -> None:
    _checked("no_new_privs", _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = struct.pack("@HP", len(filter_program) // 8, ctypes.addressof(buffer))
    _checked("seccomp", _LIBC.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), header, 0, 0))


def _raise_loopback() -> None:
    any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    name = struct.pack("16sH14x", b"lo", 0)
    flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket.fileno(), _SIOCGIFFLAGS, name))[1]
    fcntl.ioctl(any_socket.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    any_socket.close()


# ---- helpers --------------------------------------------------------------------------------------------------------


def _run_child(work: Callable[[], None], report_failure: int) -> None:
    """Run the work of a child, which returns only if it fails; report that and print why."""
    try:
        work()
    except BaseException as problem:  # noqa: BLE001 - it must not go on as its parent
        _print_error(problem)
    os.write(report_failure, b"x")
    os._exit(_FAILED)


def _print_error(problem: BaseException) -> None:
    why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    where = f" ({problem.filename})" if isinstance(problem, OSError) and problem.filename else ""
    os.write(2, f"namespaces: {why}{where}\n".encode(errors="replace"))


def _checked(name: str, result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _close_all_but(*kept: int) -> None:
    """Close all descriptors but the first three and these: a pipe has no end while another process has it open."""
    numbers = sorted(kept)
    for low, high in zip((3, *(number + 1 for number in numbers)), (*numbers, 1 << 20), strict=True):
        os.closerange(low, high)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
