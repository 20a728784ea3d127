"""Run a process in namespaces made by bubblewrap, or by orch23's own program."""

import contextlib
import errno
import os
import resource
import select
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute import process_tree
from orch23.execute.launch import Launch, LaunchRefusedError
from orch23.execute.process import ProcessOutcome
from orch23.execute.resource_limits import apply_limits
from orch23.execute.sandbox import seccomp, visible_paths
from orch23.execute.sandbox.system_calls import machine
from orch23.execute.sandbox_tree import BUBBLEWRAP_TIER, SandboxDir, writable_parts
from orch23.execute.supervisor import Confinement
from orch23.execute.supervisor_child import IsolationError
from orch23.model.action import NAMESPACES_TIER, StepLimits
from orch23.model.diagnostic import Diagnostic
from orch23.model.patterns import lazy_pattern
from orch23.store.safe_files import closing

if TYPE_CHECKING:
    from orch23.execute.cache_mount import CacheMount


def _check_program(name: str, path: str, cwd: Path, mounted: Sequence[Path] = ()) -> None:
    """Check that a shell would find a program that can be executed, unless it is in a mounted folder."""
    folders = [""] if "/" in name else [folder for folder in path.split(os.pathsep) if folder]
    candidates = [Path(os.path.normpath(cwd / folder / name)) for folder in folders]
    if any(candidate.is_relative_to(folder) for candidate in candidates for folder in mounted):
        return
    found = [candidate for candidate in candidates if os.path.lexists(candidate)]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if not any(candidate.is_file() and os.access(candidate, os.X_OK) for candidate in found):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


BWRAP_PATHS: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/opt/bubblewrap/bin/bwrap")
"""Where bubblewrap is searched: never on PATH, whose folders other users may be able to write."""

_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--disable-userns",
)
_TMPFS_SIZES: Final = {"/tmp": 1 << 29, "/var/tmp": 1 << 29, "/dev/shm": 1 << 29, "/run": 1 << 24}  # noqa: S108 - mounted for the step alone
_HIDDEN_TMPFS_BYTES = 1 << 20
_FIXED_SETTINGS = Path(__file__).parent / "etc"
_START_WITHIN_S = 10.0
_SPARE_PROCESSES = 64
_POLL_S = 0.0002
_SHELL = "/bin/sh"
_STATUS_BYTES = 1 << 12
_OWN_FAILURE = 1
_COPIED_BYTES = 1 << 18
_CHILD = lazy_pattern(rb'"child-pid": (\d+)[^\d]')
_DOCTOR = "`orch23 doctor` tries it; --allow-unsandboxed runs steps without a sandbox where the machine has none"


class BubblewrapLauncher(Struct, frozen=True):
    """Start processes by bubblewrap, 0.8 or newer.

    `closed` are the user's home and the project, which an interpreter's prefix must not make readable.
    """

    program: Path
    closed: tuple[Path, ...] = ()
    tier = BUBBLEWRAP_TIER

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Yield the launch of bwrap, which starts the command of this one.

        Raises:
            OSError: the program is missing, or no descriptor is left.
        """
        seen = launch.sandbox_dir.seen_from_inside(self.tier)
        inside = seen.work / launch.cwd.relative_to(launch.sandbox_dir.work)
        prefixes = _prefixes(launch, self.closed)
        hidden = visible_paths.closed_in_system(self.closed)
        mounted = [launch.sandbox_dir.work / mount.path for mount in launch.sandbox_dir.mounts]
        _check_program(launch.argv[0], launch.env.get("PATH", ""), launch.cwd, mounted)
        sockets = seccomp.AllowedSockets.SHARED if launch.network else seccomp.AllowedSockets.OWN
        settings, filter_program = _settings(launch), seccomp.build_filter(sockets, machine())
        with contextlib.ExitStack() as stack:
            descriptors = _Descriptors(stack, filter_program, settings, launch.limits)
            options = (
                *_NAMESPACES,
                *(() if launch.network else ("--unshare-net",)),
                *("--cap-drop", "ALL", "--new-session", "--die-with-parent", "--hostname", "orch23"),
                *("--uid", "1000", "--gid", "1000"),
                *_machine_mounts(settings, hidden, [(path, str(one)) for path, one in descriptors.settings]),
                *_step_mounts(launch, seen, str(launch.sandbox_dir.root), [(path, path) for path in prefixes], hidden),
                *("--chdir", str(inside)),
                *("--seccomp", str(descriptors.filter), "--json-status-fd", str(descriptors.status_theirs)),
            )
            yield replace(
                launch,
                argv=(str(self.program), *options, "--", *_waiting(launch)),
                pass_fds=(
                    *launch.pass_fds,
                    *(() if launch.stdin == DEVNULL else (launch.stdin,)),
                    *(descriptors.filter, descriptors.status_theirs),
                    *(descriptor for _, descriptor in descriptors.settings),
                ),
                stdin=descriptors.begin_theirs,
                tmpfs=tuple(_TMPFS_SIZES),
                on_start=descriptors.let_begin,
                interpret_outcome=descriptors.interpret_outcome,
            )


class NamespacesLauncher(Struct, frozen=True):
    """Let a supervisor of orch23 start processes in namespaces that it has made before.

    `closed` are as those of BubblewrapLauncher.
    """

    closed: tuple[Path, ...] = ()
    tier = NAMESPACES_TIER

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Yield the launch with the mounts of its sandbox.

        Raises:
            LaunchRefusedError: the sandbox could not be made.
            OSError: the program cannot be run.
        """
        seen = launch.sandbox_dir.seen_from_inside(self.tier)
        inside = seen.work / launch.cwd.relative_to(launch.sandbox_dir.work)
        # The child cannot resolve links of the machine's file system.
        root = os.path.realpath(launch.sandbox_dir.root)
        prefixes = [(os.path.realpath(path), path) for path in _prefixes(launch, self.closed)]
        hidden = visible_paths.closed_in_system(self.closed)
        settings = _settings(launch)
        copied = tuple(_stamps(settings))
        sockets = seccomp.AllowedSockets.SHARED if launch.network else seccomp.AllowedSockets.OWN
        confinement = Confinement(
            program="orch23.execute.sandbox.namespaces_child",
            setup=(
                tuple(_machine_mounts(settings, hidden, [(path, source) for path, source, *_ in copied])),
                seccomp.build_filter(sockets, machine()),
                int(not launch.network),
                # Another setup after a change: copies that were made before are not used.
                copied,
            ),
            request=tuple(_step_mounts(launch, seen, root, prefixes, hidden)),
            limits=tuple(_kernel_limits(launch.limits)),
        )
        try:
            yield replace(launch, cwd=inside, confinement=confinement, tmpfs=tuple(_TMPFS_SIZES))
        except IsolationError as problem:
            raise _not_made(str(problem)) from problem


def _waiting(launch: Launch) -> tuple[str, ...]:
    """Return a command that reports its start, waits for permission, and then becomes the command of the launch."""
    # bwrap's first process binds its lifetime to orch23 (`--die-with-parent`) only after it has started its command. If
    # orch23 died before, the command would survive. So the command waits until that is done, and exits when orch23's
    # end of the socket is closed. The variables that the shell adds to the environment are unset.
    added = " ".join(name for name in ("PWD", "OLDPWD", "SHLVL") if name not in launch.env)
    stdin = "/dev/null" if launch.stdin == DEVNULL else f"/proc/self/fd/{launch.stdin}"
    script = f'echo >&0; read -r go || exit 1; unset go {added}; exec "$@" < {stdin}'
    return (_SHELL, "-c", script, _SHELL, *launch.argv)


def _prefixes(launch: Launch, closed: tuple[Path, ...]) -> list[str]:
    found = visible_paths.interpreter_paths(launch.interpreter, closed)
    return list(map(str, visible_paths.add_paths(found, launch.reads)))


def _settings(launch: Launch) -> dict[str, str]:
    """Return the settings that a step sees, each with its source: accounts and hosts are the same on all machines."""
    # A step with the network has the hosts of this machine.
    paths = (*visible_paths.SETTINGS_FILES, *(visible_paths.NETWORK_SETTINGS if launch.network else ()))
    fixed = ("passwd", "group") if launch.network else ("passwd", "group", "hosts")
    return {**{path: path for path in paths}, **{f"/etc/{name}": str(_FIXED_SETTINGS / name) for name in fixed}}


def _machine_mounts(settings: Iterable[str], hidden: Sequence[str], copied: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the options that make the file system without the sandbox directory and the interpreter."""
    # Only /proc/sys of the host's /proc is there, read-only. `settings` are files of the machine. `copied` are those to
    # copy, each with its source: a descriptor for bwrap, a path for orch23's own program. `hidden` are folders in
    # system folders that appear empty.
    # There are few mounts, since bwrap reads the whole mount table for each (ADR 14).
    for path in visible_paths.SYSTEM_FOLDERS:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in hidden:
        yield from ("--perms", "0755", "--size", str(_HIDDEN_TMPFS_BYTES), "--tmpfs", path)
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    # Through /proc/1/exe a step could change the mode and times of the program's file, on a writable mount of the host.
    yield from ("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1")
    for folder, size in _TMPFS_SIZES.items():
        yield from ("--perms", "1777", "--size", str(size), "--tmpfs", folder)
    yield from ("--symlink", "/run", "/var/run")
    # After the mounts above, which would hide files below them.
    for path, source in copied:
        yield from ("--perms", "0444", "--file", source, path)
    done = {path for path, _ in copied}
    for path in (*settings, visible_paths.PROCESSORS_FOLDER):
        if path not in done:
            yield from ("--ro-bind-try", path, path)


def _step_mounts(
    launch: Launch, seen: SandboxDir, root: str, prefixes: Iterable[tuple[str, str]], hidden: Sequence[str]
) -> Iterator[str]:
    """Yield the options that mount the interpreter and the sandbox directory, and make all other folders read-only."""
    # `root` is the path of the sandbox directory, `prefixes` are pairs of a path and where it is mounted.
    for source, path in prefixes:
        yield from ("--ro-bind-try", source, path)
    # The whole directory, or all but its writable parts, read-only.
    yield from ("--bind" if launch.writable is None else "--ro-bind", root, str(seen.root))
    if launch.writable is not None:
        for part in writable_parts(launch.sandbox_dir, launch.writable):
            below = part.relative_to(launch.sandbox_dir.root)
            yield from ("--bind", f"{root}/{below}", str(seen.root / below))
    for mount in launch.sandbox_dir.mounts:
        if mount.lower is None:
            yield from ("--ro-bind", os.path.realpath(mount.files), str(seen.work / mount.path))
        else:
            yield from ("--lower", os.path.realpath(mount.files.parent), os.path.realpath(mount.lower))
    if launch.sandbox_dir.is_layered:
        yield from ("--layers", f"{root}/work", os.path.realpath(launch.sandbox_dir.layers), str(seen.work))
    yield from _cache_mounts(launch.sandbox_dir.caches, root, seen)
    if os.path.isdir(launch.sandbox_dir.tools):
        yield from ("--ro-bind", f"{SandboxDir(Path(root), launch.marker).tools}", str(seen.tools))
    for path in (*hidden, "/dev", "/"):
        yield from ("--remount-ro", path)


def _cache_mounts(caches: "Iterable[CacheMount]", root: str, seen: SandboxDir) -> Iterator[str]:
    for cache in caches:
        files = os.path.realpath(cache.files)
        if cache.layers is None:
            yield from ("--bind" if cache.is_writable else "--ro-bind", files, str(seen.root / cache.path))
        else:
            layers = os.path.realpath(cache.layers)
            yield from ("--lower", files, f"{layers}/files")
            yield from ("--layers", f"{root}/{cache.path}", layers, str(seen.root / cache.path))


class _Descriptors:
    """The descriptors that one bwrap gets: the filter, settings, and two channels.

    It reports its child on `status`. The command waits for permission on `begin`.
    """

    def __init__(
        self, stack: contextlib.ExitStack, filter_program: bytes, settings: Mapping[str, str], limits: StepLimits
    ) -> None:
        """Open them. `settings` are paths with their sources; the attribute has the files, with their descriptors."""
        self._limits, self._reported = limits, b""
        # `stack` closes all of them. Those of bwrap are closed before, when it has started.
        self._theirs = theirs = stack.enter_context(contextlib.ExitStack())
        self.filter = _pipe_with(theirs, filter_program)
        self._status, self.status_theirs = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, self._status)
        theirs.callback(os.close, self.status_theirs)
        near, far = socket.socketpair()
        self._begin, self.begin_theirs = stack.enter_context(near), theirs.enter_context(far).fileno()
        self.settings = tuple(_open_files(theirs, settings))

    def let_begin(self, tree: process_tree.ProcessTree) -> None:
        """Set the limits of bwrap's child and of the command once they exist, then let the command begin."""
        # If orch23 dies before, the command reads the end of the socket and exits.
        self._theirs.close()
        while not (child := _CHILD.search(self._reported)) and self._read_status(_START_WITHIN_S):
            pass
        if child:
            init = int(child[1])
            process_tree.note_namespace(tree, init)
            _limit(tree, init, self._limits)
            # Readable: the command has started, or no process is left to report that.
            if _is_readable(self._begin.fileno(), _START_WITHIN_S):
                for command in _started_by(init):
                    _limit(tree, command, self._limits)
        with contextlib.suppress(ConnectionError):
            self._begin.sendall(b"\n")
        self._begin.close()

    def interpret_outcome(self, outcome: ProcessOutcome) -> ProcessOutcome:
        """Return how the command ended. If bwrap reported no exit code of it, the output is bwrap's own."""
        while self._read_status(0):
            pass
        if outcome.reason != "exited" or outcome.exit_code != _OWN_FAILURE or b'"exit-code"' in self._reported:
            return outcome
        printed = (outcome.errors or outcome.head).decode("utf-8", "replace")
        raise _not_made(printed.strip() or "it printed nothing")

    def _read_status(self, timeout_s: float) -> bool:
        """Read what bwrap reports; return False if it reports nothing within the time, or no more."""
        if not _is_readable(self._status, timeout_s):
            return False
        data = os.read(self._status, _STATUS_BYTES)
        self._reported += data
        return bool(data)


def _started_by(init: int) -> list[int]:
    """Wait until the first process of the sandbox has bound its lifetime to its parent, and return its children."""
    # It does that after it has started the command. Then it sleeps until the command ends.
    deadline = time.monotonic() + _START_WITHIN_S
    while (started := process_tree.children_if_asleep(init)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return started or []


def _not_made(why: str) -> LaunchRefusedError:
    return LaunchRefusedError(Diagnostic("E485", f"the sandbox could not be made: {why}", hint=_DOCTOR))


def _kernel_limits(limits: StepLimits) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield resources and limits that the kernel sets for each process of a step."""
    # Above the limit of the step: orch23 counts the processes and reports the limit, where fork would only fail.
    # The kernel counts those of the namespace, and never those of root.
    yield resource.RLIMIT_NPROC, (limits.processes + _SPARE_PROCESSES,) * 2
    if limits.address_space is not None:
        yield resource.RLIMIT_AS, (limits.address_space,) * 2


def _limit(tree: process_tree.ProcessTree, pid: int, limits: StepLimits) -> None:
    process_tree.set_file_limit(tree, pid)
    apply_limits(pid, limits)
    for kind, limit in _kernel_limits(limits):
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, kind, limit)


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    """Return whether there is something to read, or the end, within a time."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def _open_files(stack: contextlib.ExitStack, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for path, source, *_ in _stamps(settings):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            yield path, descriptor


def _stamps(settings: Mapping[str, str]) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield the regular files that can be read, with their sources and stamps. Large ones are cheaper as a mount."""
    for path, source in settings.items():
        with contextlib.suppress(OSError):
            status = os.stat(source)
            is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _COPIED_BYTES
            if is_small and os.access(source, os.R_OK):
                yield path, source, status.st_ino, status.st_size, status.st_mtime_ns


def _pipe_with(stack: contextlib.ExitStack, data: bytes) -> int:
    """Return the end of a pipe with this data: a few KiB, which fit into it without a reader."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    stack.callback(os.close, reading)
    with closing(writing):
        os.write(writing, data)
    return reading
