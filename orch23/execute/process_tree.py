"""Find and kill all processes of a step, also those that left its group, session or environment.

orch23 is the subreaper of what it starts: orphans of a step become direct children of orch23. An orphan is assigned to
a step by its session, by its file size limit (each step has a different value; processes inherit it through fork, exec
and setsid, and cannot raise it), by the marker in its environment, or because it was seen below the leader. A blocked
signal, which every leader starts with, separates processes of steps from helpers of orch23.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` builds enumerations on import, which is slow
import contextlib
import itertools
import os
import resource
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from orch23.store.safe_files import c_function, closing

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# Flags of linux/sched.h: a process that has not called exec since its fork, and a thread of the kernel.
_PF_FORKNOEXEC, _PF_KTHREAD = 0x40, 0x00200000
_KILL_WITHIN_S = 5.0
_PAUSE_S = 0.002
_MAX_CHECKS = 20
_READ_BYTES, _SHORT_BYTES = 1 << 16, 1 << 10
_FLAGS = 6  # the index in /proc/PID/stat after the name
_NO_LIMIT = 1 << 63
# A realtime signal that no known program uses.
_MARK = signal.SIGRTMAX - 7
_NUMBERS = itertools.count(1)

# The soft and the hard limit. Few machines have lower hard limits.
_ANY = resource.RLIM_INFINITY
_FIXED_LIMITS = {
    resource.RLIMIT_NOFILE: (1024, 4096),
    resource.RLIMIT_STACK: (8 << 20, _ANY),
    resource.RLIMIT_NPROC: (16384, 16384),
    resource.RLIMIT_SIGPENDING: (8192, 8192),
    resource.RLIMIT_MEMLOCK: (8 << 20, 8 << 20),
    **dict.fromkeys((resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_RSS, resource.RLIMIT_AS), (_ANY, _ANY)),
}

CORE_BYTES = 1
"""The limit of core files: too small for any. With 0 the kernel still pipes one to the program of core_pattern."""

MARKER_VARIABLE = "ORCH23_ROOM"
"""The environment variable that holds the marker of a step's sandbox directory."""

_STEPS_LOCK = threading.Lock()
# By pid of the leader. A module-level table, since the whole process is one subreaper.
_STEPS: dict[int, "ProcessTree"] = {}


class ProcessInfo(Struct, frozen=True):
    """One process as /proc shows it. `started` (in clock ticks) differs for a later process with the same pid."""

    pid: int
    state: str
    parent: int
    session: int
    started: int


class ProcessTree(Struct):
    """The processes of one step.

    `leader` is the process that was started, `limit` the step's own file size limit in bytes, `seen` the start times of
    processes that were seen below the leader, by pid. `namespace_init` is a pidfd of the first process of the step's
    PID namespace, if it has one: all processes but the leader are in there. `status` is the exit code of the leader
    (negative: the signal) once `kill_tree` has reaped it.
    """

    leader: int
    marker: str
    limit: int
    seen: dict[int, int] = field(default_factory=dict)
    namespace_init: int | None = None
    status: int | None = None


def become_subreaper() -> bool:
    """Let orphans of our children become our children; return whether the kernel can do that."""
    return bool(c_function("prctl")(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def deny_memory_access() -> bool:
    """Hide the memory and the initial environment of orch23 from its children; return whether that worked.

    Otherwise a step of the same user could read API keys from /proc/PID/environ. Programs that a child executes are
    readable again. Against a step that runs as root only a sandbox helps.
    """
    return bool(c_function("prctl")(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


@contextlib.contextmanager
def starting_leader() -> Iterator[None]:
    """Mark the leader that is started within by a blocked signal, and let no other thread search for orphans.

    Until `register_leader` the leader looks like an orphan. The signal mask belongs to the thread, so other threads
    mark nothing. The limit that `register_leader` sets would alone come too late: on a busy machine a shell forks
    before its parent runs again.
    """
    with _STEPS_LOCK:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {_MARK})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def register_leader(leader: int, marker: str, file_bytes: int) -> ProcessTree:
    """Register a process that was just started as the leader of a step; call it within `starting_leader`.

    Its file size limit is set to `file_bytes` less a few bytes, a value that no other step has. It is set from outside,
    since code between fork and exec is not safe in a process with threads.
    """
    tree = ProcessTree(leader, marker, unique_file_limit(file_bytes))
    set_file_limit(tree, leader)
    _STEPS[leader] = tree
    return tree


def unique_file_limit(file_bytes: int) -> int:
    """Return a file size limit that no other step has, a few bytes below `file_bytes` and below our own limit."""
    return min(file_bytes, _own_limit()) - next(_NUMBERS)


def set_file_limit(tree: ProcessTree, pid: int) -> None:
    """Set the limits of a step for one of its processes."""
    with contextlib.suppress(OSError, ValueError):
        for kind, limit in step_limits(tree.limit):
            resource.prlimit(pid, kind, limit)


def step_limits(file_bytes: int) -> tuple[tuple[int, tuple[int, int]], ...]:
    """Return the limits that a process of a step has not inherited; `file_bytes` is from `unique_file_limit`."""
    return (resource.RLIMIT_FSIZE, (file_bytes, file_bytes)), *_changed_limits()  # first, since it marks the process


@cache
def _changed_limits() -> tuple[tuple[int, tuple[int, int]], ...]:
    # Once: nothing changes our limits, and supervisors have the same.
    return tuple((kind, limit) for kind, limit in fixed_limits() if resource.getrlimit(kind) != limit)


def fixed_limits() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the soft and the hard limit of the other resources of a step, whatever those of the terminal are.

    A lower hard limit of this process stays: only root could raise it.
    """
    for kind, (soft, hard) in {resource.RLIMIT_CORE: (CORE_BYTES, CORE_BYTES), **_FIXED_LIMITS}.items():
        own = resource.getrlimit(kind)[1]
        yield kind, (min(soft, own, key=_size), min(hard, own, key=_size))


def lowered_limits() -> str:
    """Return the limits of steps that a hard limit of this process lowers; an empty text if there is none."""
    return " ".join(f"{kind}={limit}" for kind, limit in fixed_limits() if limit != _FIXED_LIMITS.get(kind, limit))


def note_namespace(tree: ProcessTree, init: int) -> None:
    """Note that a child of the leader is the first process of a PID namespace: all processes in there die with it.

    The pid came from the sandbox program, so it is verified in /proc. The pidfd is opened before, so that the pid
    cannot be reused in between.
    """
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(init)
        if tree.namespace_init is None and _is_namespace_init(init, tree.leader):
            tree.namespace_init = handle
        else:
            os.close(handle)


def find_members(tree: ProcessTree) -> list[int]:
    """Return the pids of a running step, also of processes whose parents ended, and remember them."""
    found = {one.pid: one.started for one in (*_members(tree, _children), *_below([tree.leader], _children))}
    tree.seen.update(found)
    return [tree.leader, *found]


def descendant_processes(pid: int) -> list[int]:
    """Return the pids of all descendants whose parents are alive."""
    return [process.pid for process in _below([pid], _children)]


def kill_tree(tree: ProcessTree) -> tuple[int, ...]:
    """Kill the leader, which is not reaped yet, and all other processes of its step; return the pids that are left.

    If no other step runs, the leader is reaped, and its exit code is in `tree.status`.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(tree.leader, signal.SIGKILL)
    # Its children become ours only when it is dead. A search before that could miss those that are being moved.
    os.waitid(os.P_PID, tree.leader, os.WEXITED | os.WNOWAIT)
    deadline = time.monotonic() + _KILL_WITHIN_S
    if tree.namespace_init is not None:
        _kill_namespace(tree.namespace_init)
    return () if _was_only_child(tree) else _kill_members(tree, deadline)


def _was_only_child(tree: ProcessTree) -> bool:
    """Reap the leader if no other step runs, and return whether orch23 has no child left: then the step has ended."""
    # One system call instead of a search in /proc: orphans of the step are children of orch23 by now. No other step
    # can start meanwhile, so the pid of the leader is not the pid of another step.
    with _STEPS_LOCK:
        if _STEPS.keys() != {tree.leader}:
            return False
        tree.status = os.waitstatus_to_exitcode(os.waitpid(tree.leader, 0)[1])
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
    return False


def kill_strays() -> tuple[int, ...]:
    """Kill processes that could not be assigned to a step while several ran; call it when no step runs.

    Return the pids that are left.
    """
    return _kill_members(ProcessTree(leader=-1, marker="", limit=-1), time.monotonic() + _KILL_WITHIN_S)


def _kill_members(tree: ProcessTree, deadline: float) -> tuple[int, ...]:
    children: Callable[[int], list[int]] = _children
    while left := _members(tree, children):
        if time.monotonic() > deadline:
            return tuple(process.pid for process in left)
        for process in left:
            kill_process(process)
        # Slower, but it misses no process while others exit.
        children = _snapshot()
    return ()


def children_if_asleep(pid: int) -> list[int] | None:
    """Return the children of a sleeping process; [] if it is gone, None if it does not sleep yet or has no children."""
    # Before the state: a sleep from before the process had children does not count.
    children = _children(pid)
    process = process_info(pid)
    if process is None:
        return []
    return children if children and process.state == "S" else None


def forget_tree(tree: ProcessTree) -> None:
    """Forget a step that has ended. Processes that no step owns are killed when the last step has ended."""
    if tree.namespace_init is not None:
        os.close(tree.namespace_init)
        tree.namespace_init = None
    with _STEPS_LOCK:
        # The leader was reaped, so another step may have a leader of the same pid by now.
        if _STEPS.get(tree.leader) is tree:
            del _STEPS[tree.leader]


def _is_namespace_init(pid: int, parent: int) -> bool:
    try:
        status = read_proc(pid, "status")
    except OSError:
        return False
    words = dict(line.partition(b":")[::2] for line in status.splitlines())
    pids = words.get(b"NSpid", b"").split()
    return len(pids) > 1 and pids[-1] == b"1" and words.get(b"PPid", b"").strip() == b"%d" % parent


def _kill_namespace(init: int) -> None:
    """Kill the first process of a PID namespace and wait until it is dead: the kernel ends all others before it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(init, signal.SIGKILL)
    dead = select.poll()
    dead.register(init, select.POLLIN)
    dead.poll(_KILL_WITHIN_S * 1000)
    # Its parent may have reaped it.
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, init, os.WEXITED | os.WNOHANG)


def _members(tree: ProcessTree, children: Callable[[int], list[int]]) -> list[ProcessInfo]:
    """Return the orphans of a step and what descends from them: the living, and zombies, which are to be reaped."""
    with _STEPS_LOCK:
        others = _STEPS.keys() - {tree.leader}
        roots = [process for pid in children(os.getpid()) if pid not in _STEPS and (process := process_info(pid))]
        mine = [process for process in roots if _belongs_to(process, tree, alone=not others)]
    return [*mine, *_below([process.pid for process in mine], children)]


def _belongs_to(process: ProcessInfo, tree: ProcessTree, *, alone: bool) -> bool:
    """Return whether a child of ours that is not a leader belongs to a step. Our own helpers have our own limit."""
    if process.session == tree.leader or tree.seen.get(process.pid) == process.started or process.session in tree.seen:
        return True
    try:
        limit = _size(resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1])
    except (OSError, ValueError):  # it is gone or dead
        return False
    marker = f"{MARKER_VARIABLE}={tree.marker}".encode()
    if limit == tree.limit or (tree.marker and marker in process_environ(process.pid)):
        return True
    # Forked before its step had its limit, or it lowered the limit: then it is of the only step that runs.
    return alone and (limit != _own_limit() or _is_marked(process.pid))


def _is_marked(pid: int) -> bool:
    """Return whether a process descends from one that was started within `starting_leader`."""
    # A process that blocks all signals blocks the mark too: a shell does so for a moment when it waits for a child, and
    # CPython's fork_exec does so between the fork and the exec of a helper. Both were killed here once. Such a process
    # is checked again; if it goes on blocking all signals, it counts as a step's.
    for _ in range(_MAX_CHECKS):
        try:
            blocked = _signals(pid)
            flags = int(_stat_fields(pid)[_FLAGS])
        except OSError:
            return False
        if not _contains(blocked, _MARK):
            return False
        if not _contains(blocked, _MARK - 1):
            return True
        if flags & _PF_FORKNOEXEC:
            return False
        time.sleep(_PAUSE_S)
    return True


def is_leader_before_exec(pid: int) -> bool:
    """Return whether a process was started within `starting_leader` and has not finished its exec."""
    try:
        if not _contains(_signals(pid), _MARK):
            return False
        fields = _stat_fields(pid)
        flags = int(fields[_FLAGS])
        if fields[0] in (b"Z", b"X") or flags & _PF_KTHREAD:
            return False
        return bool(flags & _PF_FORKNOEXEC) or not read_proc(pid, "cmdline")
    except (OSError, IndexError):
        return False


def _signals(pid: int, which: bytes = b"SigBlk") -> int:
    """Return the signals that a process blocks, or those that it handles (`SigCgt`), as bits."""
    return int(read_proc(pid, "status").partition(b"\n%s:" % which)[2].split(None, 1)[0], 16)


def _contains(mask: int, signal_number: int) -> bool:
    return bool(mask >> (signal_number - 1) & 1)


def _own_limit() -> int:
    return _size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])


def _size(limit: int) -> int:
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit


def kill_process(process: ProcessInfo) -> None:
    """Kill a process, and reap it if it is our child. Another process that has its pid by now is not killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError), closing(os.pidfd_open(process.pid)) as handle:
        # After the pidfd is open, the pid cannot be reused: so this check holds for the process that is killed.
        now = process_info(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    if process.parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def send_to_handlers(pids: Iterable[int], signal_number: int) -> None:
    """Send a signal to each of these processes that has a handler for it; others would end."""
    for pid in pids:
        with contextlib.suppress(OSError), closing(os.pidfd_open(pid)) as handle:
            if _contains(_signals(pid, b"SigCgt"), signal_number):
                signal.pidfd_send_signal(handle, signal_number)


def _below(roots: list[int], children: Callable[[int], list[int]]) -> list[ProcessInfo]:
    """Return the descendants of processes whose parents are alive."""
    found: list[ProcessInfo] = []
    seen, todo = set(roots), roots[:]
    while todo:
        for pid in children(todo.pop()):
            if pid not in seen and (process := process_info(pid)):
                seen.add(pid)
                found.append(process)
                todo.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                found.extend(map(int, read_proc(pid, f"task/{thread}/children").split()))
            except FileNotFoundError:
                if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
                    # The kernel was built without CONFIG_PROC_CHILDREN.
                    return _snapshot()(pid)
            except OSError:
                continue
    return found


def _snapshot() -> Callable[[int], list[int]]:
    """Read the parent of every process once; return a function that gives the children of a process."""
    # Gives dying processes time to end; no decision depends on it.
    time.sleep(_PAUSE_S)
    found: dict[int, list[int]] = {}
    for pid in process_ids():
        if process := process_info(pid):
            found.setdefault(process.parent, []).append(pid)
    return lambda pid: found.get(pid, [])


def process_ids() -> list[int]:
    """Return the ids of all processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def living_processes() -> list[ProcessInfo]:
    """Return all processes of the machine that have not ended."""
    return [one for one in map(process_info, process_ids()) if one is not None and one.state not in "ZX"]


def process_info(pid: int) -> ProcessInfo | None:
    """Return what /proc shows of a process; None if it is gone."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return None
    return ProcessInfo(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the program's name, which may contain spaces and parentheses."""
    return read_proc(pid, "stat").rpartition(b")")[2].split()


def read_proc(pid: int, name: str) -> bytes:
    """Return the contents of a file of /proc/PID. Without the file object of `open`: each step reads several.

    The kernel returns full pages, so a short piece is the last one.

    Raises:
        OSError: it is missing or cannot be read.
    """
    with closing(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        whole = piece = os.read(descriptor, _READ_BYTES)
        while len(piece) >= _SHORT_BYTES:
            piece = os.read(descriptor, _READ_BYTES)
            whole += piece
        return whole


def process_environ(pid: int) -> frozenset[bytes]:
    """Return the initial environment of a process as `NAME=value`; empty if it cannot be read."""
    try:
        return frozenset(read_proc(pid, "environ").split(b"\0"))
    except OSError:
        return frozenset()
