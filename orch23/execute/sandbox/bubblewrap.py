"""Run a process in namespaces made by bubblewrap, or by orch23's own program."""

import contextlib
import errno
import os
import re
import resource
import select
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute import process_tree
from orch23.execute.launch import Launch, LaunchRefusedError
from orch23.execute.process import ProcessOutcome
from orch23.execute.resource_limits import apply_limits
from orch23.execute.sandbox import seccomp, visible_paths
from orch23.execute.sandbox.system_calls import machine
from orch23.execute.sandbox_dir import SandboxDir, writable_parts
from orch23.model.action import StepLimits
from orch23.model.diagnostic import Diagnostic


def check_program(name: str, path: str, cwd: Path) -> None:
    """Look for a program as a shell does.

    Raises:
        FileNotFoundError: there is none.
        PermissionError: there is one that cannot be run.

    """
    folders = [""] if "/" in name else [folder for folder in path.split(os.pathsep) if folder]
    candidates = [cwd / folder / name for folder in folders]
    found = [candidate for candidate in candidates if os.path.lexists(candidate)]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if not any(candidate.is_file() and os.access(candidate, os.X_OK) for candidate in found):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


BWRAP_PATHS: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/opt/bubblewrap/bin/bwrap")
"""Where it is looked for: never on PATH, which may name what anybody has put there."""

INSIDE_PATH: Final = "/room"
"""Where every process sees its room."""

_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_IN_MEMORY: Final = (("/tmp", 1 << 29), ("/var/tmp", 1 << 29), ("/dev/shm", 1 << 29), ("/run", 1 << 24))  # noqa: S108 - its own
_HIDDEN_BYTES = 1 << 20
_GATE_WITHIN_S = 10.0
_SPARE_PROCESSES = 64
_BOND_PAUSE_S = 0.0002
_SHELL = "/bin/sh"
_OWN_PROGRAM: Final = Path(__file__).with_name("namespaces_child.py")
_STATUS_BYTES = 1 << 12
_OWN_FAILURE = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as every shell has it
_COPIED_BYTES = 1 << 18
_NOT_GIVEN = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)
_NOT_RUN = re.compile(rb"\w+: execvp ")
_CHILD = re.compile(rb'"child-pid": (\d+)[^\d]')
_DOCTOR = "`orch23 doctor` tries it; --allow-unsandboxed runs steps without a sandbox where the machine has none"


class BubblewrapLauncher(Struct, frozen=True):
    """Starts processes by one bwrap. `closed` are places that no interpreter's prefix may open: home and project.

    `nested` tells it to forbid user namespaces too, which the filter does anyway: an old bwrap cannot.
    """

    program: Path
    closed: tuple[Path, ...] = ()
    nested: bool = True
    tier = "bubblewrap"

    @property
    def command(self) -> tuple[str, ...]:
        """Give what takes bwrap's options."""
        return (str(self.program),)

    def seen(self, room: SandboxDir) -> SandboxDir:
        """Return the room as it is seen from within."""
        return SandboxDir(Path(INSIDE_PATH), room.marker)

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Give bwrap's command in the place of the process's own.

        Raises:
            OSError: the program is not there, or no descriptor is left.

        """
        seen = self.seen(launch.room)
        inside = seen.work / launch.cwd.relative_to(launch.room.work)
        prefixes = visible_paths.add_paths(
            visible_paths.interpreter_paths(launch.interpreter, self.closed), launch.reads
        )
        check_program(launch.argv[0], launch.env.get("PATH", ""), launch.cwd)
        sockets = seccomp.AllowedSockets.SHARED if launch.network else seccomp.AllowedSockets.OWN
        with _Descriptors(seccomp.build_filter(sockets, machine()), _settings(launch), launch.limits) as open_here:
            options = (
                *_NAMESPACES,
                *(() if launch.network else ("--unshare-net",)),
                *(("--disable-userns",) if self.nested else ()),
                *("--cap-drop", "ALL", "--new-session", "--die-with-parent", "--hostname", "orch23"),
                *_mounts(launch, seen, prefixes, open_here.settings, visible_paths.closed_in_system(self.closed)),
                *("--chdir", str(inside)),
                *("--seccomp", str(open_here.filter), "--json-status-fd", str(open_here.status_far)),
            )
            yield replace(
                launch,
                argv=(*self.command, *options, "--", *_waiting(launch)),
                pass_fds=(
                    *launch.pass_fds,
                    *(() if launch.stdin == DEVNULL else (launch.stdin,)),
                    *(open_here.filter, open_here.status_far),
                    *(descriptor for _, descriptor in open_here.settings),
                ),
                stdin=open_here.begin_far,
                gate=open_here.open_gate,
                judge=open_here.judge,
            )


class NamespacesLauncher(BubblewrapLauncher, frozen=True):
    """The same by a program of orch23's own, which takes longer to start: for machines without bwrap."""

    program: Path = Path(sys.executable)
    nested: bool = False
    tier = "namespaces"

    @property
    def command(self) -> tuple[str, ...]:
        """Give the interpreter that orch23 runs in, and the program."""
        return (str(self.program), "-I", "-S", "-B", str(_OWN_PROGRAM))


def _waiting(launch: Launch) -> tuple[str, ...]:
    """Return the command that says that it is there, begins when it is told so, and ends where nobody is left to tell.

    It is told when bwrap's first process has tied itself to orch23: that comes only after it started the command, so a
    death of orch23 before would leave the command alive. What the shell puts into the environment is taken out again.
    """
    added = " ".join(name for name in ("PWD", "OLDPWD", "SHLVL") if name not in launch.env)
    stdin = "/dev/null" if launch.stdin == DEVNULL else f"/proc/self/fd/{launch.stdin}"
    script = f'echo >&0; read -r go || exit 1; unset go {added}; exec "$@" < {stdin}'
    return (_SHELL, "-c", script, _SHELL, *launch.argv)


def _settings(launch: Launch) -> tuple[str, ...]:
    return (*visible_paths.SETTINGS_FILES, *(visible_paths.NETWORK_SETTINGS if launch.network else ()))


def _mounts(
    launch: Launch,
    seen: SandboxDir,
    prefixes: Sequence[Path],
    settings: Sequence[tuple[str, int]],
    hidden: Sequence[str],
) -> Iterator[str]:
    """Give the options that make the tree of files. Of the host's /proc there are its switches, for reading alone.

    `settings` are files that are given as copies, which cost a fraction of a mount. `hidden` are folders within the
    system's that are seen empty, but for the prefixes in them.
    """
    for path in visible_paths.SYSTEM_FOLDERS:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in hidden:
        yield from ("--perms", "0755", "--size", str(_HIDDEN_BYTES), "--tmpfs", path)
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    # By the first process one could get at bwrap's own file, on a mount of the host that can be written.
    yield from ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1")
    for folder, size in _IN_MEMORY:
        yield from ("--perms", "1777", "--size", str(size), "--tmpfs", folder)
    yield from ("--symlink", "/run", "/var/run")
    # After those above, which would hide what lies below them.
    for path, descriptor in settings:
        yield from ("--perms", "0444", "--file", str(descriptor), path)
    copied = {path for path, _ in settings}
    for path in (*_settings(launch), visible_paths.PROCESSORS_FOLDER, *map(str, prefixes)):
        if path not in copied:
            yield from ("--ro-bind-try", path, path)
    yield from _room(launch, seen)
    yield from ("--ro-bind-try", str(launch.room.tools), str(seen.tools))
    for path in (*hidden, "/dev", "/"):
        yield from ("--remount-ro", path)


def _room(launch: Launch, seen: SandboxDir) -> Iterator[str]:
    """Give the options that show the room: as a whole, or read-only but for HOME, TMPDIR and what may be written."""
    root = launch.room.root
    if launch.writable is None:
        yield from ("--bind", str(root), str(seen.root))
        return
    yield from ("--ro-bind", str(root), str(seen.root))
    for part in writable_parts(launch.room, launch.writable):
        yield from ("--bind", str(part), str(seen.root / part.relative_to(root)))


class _Descriptors:
    """What one bwrap is given open: its filter, settings, what it says of its child, and what the command waits for."""

    def __init__(self, filter_program: bytes, settings: Sequence[str], limits: StepLimits) -> None:
        """Open them. Of the settings, those that are files: `settings` says which, and by which descriptors."""
        self._limits = limits
        with contextlib.ExitStack() as stack:
            self.filter = _filled(stack, filter_program)
            self._status, self.status_far = _kept(stack, *os.pipe2(os.O_CLOEXEC))
            self._begin, self.begin_far = _kept(stack, *(end.detach() for end in socket.socketpair()))
            self.settings = tuple(_files(stack, settings))
            stack.pop_all()
        self._said = b""
        self._far = (self.filter, self.status_far, self.begin_far, *(descriptor for _, descriptor in self.settings))
        self._open = {*self._far, self._status, self._begin}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in tuple(self._open):
            self._close(descriptor)

    def open_gate(self, family: process_tree.ProcessTree) -> None:
        """Set limits to the child of bwrap and to the command, once they are there, and let the command begin.

        Where orch23 dies on the way, the command reads the end of a socket, and does not begin.
        """
        for far in self._far:
            self._close(far)
        while not (child := _CHILD.search(self._said)) and self._listen(_GATE_WITHIN_S):
            pass
        if child:
            process_tree.note_namespace(family, int(child[1]))
            _limit(family, int(child[1]), self._limits)
            if _is_readable(self._begin, _GATE_WITHIN_S):  # the command's word, or the end of all that could say it
                for command in _bonded(int(child[1])):
                    _limit(family, command, self._limits)
        with contextlib.suppress(ConnectionError):
            os.write(self._begin, b"\n")
        self._close(self._begin)

    def judge(self, end: ProcessOutcome) -> ProcessOutcome:
        """Return how the process ended. As long as bwrap told no exit code of it, all that was printed is bwrap's own.

        Raises:
            LaunchRefusedError: the sandbox could not be made.

        """
        while self._listen(0):
            pass
        if end.end != "exited" or end.exit_code != _OWN_FAILURE or b'"exit-code"' in self._said:
            return end
        printed = end.errors or end.head
        if _NOT_RUN.match(printed):
            missing = printed.rstrip().endswith(os.strerror(errno.ENOENT).encode())
            return replace(end, exit_code=_NOT_FOUND if missing else _NOT_EXECUTABLE)
        said = printed.decode("utf-8", "replace").strip() or "it ended without a word"
        raise LaunchRefusedError(Diagnostic("E485", f"the sandbox could not be made: {said}", hint=_DOCTOR))

    def _listen(self, patience_s: float) -> bool:
        """Take what bwrap says; False where it says no more, at least not within that time."""
        if not _is_readable(self._status, patience_s):
            return False
        data = os.read(self._status, _STATUS_BYTES)
        self._said += data
        return bool(data)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)


def _bonded(first: int) -> list[int]:
    """Wait until the first process of the sandbox has tied itself to its parent, and return what it has started.

    It does that between starting the command and waiting for it.
    """
    deadline = time.monotonic() + _GATE_WITHIN_S
    while (started := process_tree.children_if_asleep(first)) is None and time.monotonic() < deadline:
        time.sleep(_BOND_PAUSE_S)
    return started or []


def _limit(family: process_tree.ProcessTree, command: int, limits: StepLimits) -> None:
    process_tree.set_file_limit(family, command)
    apply_limits(command, limits)
    most = limits.processes + _SPARE_PROCESSES  # whoever counts sees that a step is over its limit, and says so
    with contextlib.suppress(OSError, ValueError):  # counted in its own namespace; root is never counted
        resource.prlimit(command, resource.RLIMIT_NPROC, (most, most))


def _is_readable(descriptor: int, patience_s: float) -> bool:
    """Say whether there is something to read, or the end, within a time."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(patience_s * 1000))


def _kept(stack: contextlib.ExitStack, near: int, far: int) -> tuple[int, int]:
    """Give both ends of a pair, which are closed with the stack."""
    stack.callback(os.close, near)
    stack.callback(os.close, far)
    return near, far


def _files(stack: contextlib.ExitStack, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Open those that are regular files which can be read; a long one is cheaper as a mount."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            if problem.errno in _NOT_GIVEN:
                continue
            raise
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= _COPIED_BYTES:
            stack.callback(os.close, descriptor)
            yield path, descriptor
        else:
            os.close(descriptor)


def _filled(stack: contextlib.ExitStack, data: bytes) -> int:
    """Give the end of a pipe from which a few KiB can be read, which it takes at once."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    stack.callback(os.close, reading)
    try:
        os.write(writing, data)
    finally:
        os.close(writing)
    return reading
