"""Find and kill all processes of a step, also those that left its group, session or environment.

orch23 is the subreaper of what it starts, so whatever a step leaves behind becomes a direct child of orch23. Whose it
is, is told by its session, by a limit that each step has at a value of its own (processes inherit it through fork, exec
and setsid, and cannot raise it), by the marker in its environment, or by having been seen below the leader. That it is
a step's at all, and no helper of orch23's own, is told by a blocked signal that every leader is born with.
"""

import contextlib
import ctypes
import itertools
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40  # linux/sched.h: forked, and has not called exec yet
_PF_KTHREAD = 0x00200000  # of the kernel
_NO_CORE = 1  # byte, too little for any; with 0 the kernel still gives a core to the program that core_pattern names
_KILL_WITHIN_S = 5.0
_EXEC_WITHIN_S = 1.0
_PAUSE_S = 0.002
_LOOKS = 20
_READ_BYTES = 1 << 16
_NO_LIMIT = 1 << 63
_MARK = signal.SIGRTMAX - 7  # of the realtime signals, one that nobody is known to use
_NUMBERS = itertools.count(1)

MARKER_VARIABLE = "ORCH23_ROOM"
"""The variable that holds the marker of a step's room."""

_STEPS_LOCK = threading.Lock()
_STEPS: dict[int, "ProcessTree"] = {}  # leader -> family; a subreaper is one for the whole process, so this is too


class ProcessInfo(Struct, frozen=True):
    """One process as /proc shows it; `started` (in clock ticks) tells it from a later one of the same number."""

    pid: int
    state: str
    parent: int
    session: int
    started: int


class ProcessTree(Struct):
    """The processes of one step: the leader that was started, its marker, its limit, and whom we saw below it.

    `first` is the handle of the first process of a namespace of numbers, which all but the leader are in.
    """

    leader: int
    marker: str
    limit: int
    seen: dict[int, int] = field(default_factory=dict)
    first: int | None = None


def become_subreaper() -> bool:
    """Make orphans of our children ours; say if it worked."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def deny_memory_access() -> bool:
    """Keep our memory, and the environment that we were started with, from our children; say if it worked.

    A program that runs as the same user could read the keys of the caller from /proc otherwise. What a child executes
    is its own again. Against a step that runs as root only a sandbox helps.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


@contextlib.contextmanager
def starting_leader() -> Iterator[None]:
    """Mark what is started within; hold off all looking for orphans, which it looks like until it is adopted.

    The mask is the thread's own, so nothing else that is started meanwhile gets the mark. The limit of `adopt` alone
    would come too late: on a busy machine a shell forks before its parent runs again.
    """
    with _STEPS_LOCK:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {_MARK})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def register_leader(leader: int, marker: str, file_bytes: int) -> ProcessTree:
    """Register a process that was just started as the leader of a step; call it within `births`.

    Its largest file is set to `file_bytes`, less a few: that number is the step's own. It is set from outside, since a
    function between fork and exec is not safe in a process with threads.
    """
    family = ProcessTree(leader, marker, unique_file_limit(file_bytes))
    set_file_limit(family, leader)
    _STEPS[leader] = family
    return family


def unique_file_limit(file_bytes: int) -> int:
    """Return a limit of the size of files that no other step has, a few bytes below this one and below our own."""
    return min(file_bytes, _own_limit()) - next(_NUMBERS)


def set_file_limit(family: ProcessTree, pid: int) -> None:
    """Set the limits of a family to a process of it."""
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (_NO_CORE, _NO_CORE))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (family.limit, family.limit))


def note_namespace(family: ProcessTree, first: int) -> None:
    """Note that the leader's child is the first process of a namespace, where it is: all in there end with it.

    What the kernel says of it is believed alone. The handle is opened before: the number may not be another's then.
    """
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(first)
        if family.first is None and _is_first(first, family.leader):
            family.first = handle
        else:
            os.close(handle)


def find_members(family: ProcessTree) -> list[int]:
    """Note who belongs to the step now, also what left its parents, and return them; called while the step runs."""
    members = _members(family, _children)
    for kin in members:
        family.seen[kin.pid] = kin.started
    return [family.leader, *(kin.pid for kin in members)]


def descendant_processes(pid: int) -> list[int]:
    """Return the processes that descend from this one, as far as their parents live."""
    return [kin.pid for kin in _below(pid, _children)]


def kill_tree(family: ProcessTree) -> tuple[int, ...]:
    """Kill the leader, which is not reaped yet, and everything of its step; return the pids that resisted."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(family.leader, signal.SIGKILL)
    # Only when it is dead have its children become ours; before, one look could miss those on their way.
    os.waitid(os.P_PID, family.leader, os.WEXITED | os.WNOWAIT)
    deadline = time.monotonic() + _KILL_WITHIN_S
    if family.first is not None:
        _end_namespace(family.first)
    children: Callable[[int], list[int]] = _children
    while left := _members(family, children):
        if time.monotonic() > deadline:
            return tuple(kin.pid for kin in left)
        for kin in left:
            _kill(kin)
        children = _snapshot()  # slower, but it never misses one while others exit
    return ()


def kill_strays() -> tuple[int, ...]:
    """Kill what could not be told apart while several steps ran; call it when none runs. Return who resisted."""
    nobody = ProcessTree(leader=-1, marker="", limit=-1)
    deadline = time.monotonic() + _KILL_WITHIN_S
    while left := _members(nobody, _children):
        for kin in left:
            _kill(kin)
        if time.monotonic() > deadline:
            return tuple(kin.pid for kin in left)
        time.sleep(_PAUSE_S)
    return ()


def kill_leftovers(rooms: Path) -> tuple[int, ...]:
    """Kill the steps of builds that were killed: their rooms are still below this folder. Return which were found.

    Only for the holder of the build lock, before it removes the rooms. A step is told by the marker in its environment,
    bwrap by the room that it mounts, and others by descending from one of these, or by its session. Nothing else of a
    process counts: a shell of the user may stand in a room, or name it.
    """
    try:
        markers = {name.partition(".")[0] for name in os.listdir(rooms)}
    except FileNotFoundError:
        return ()
    found: dict[int, int] = {}
    start = time.monotonic()
    while markers:
        # Asked first: what has called exec before we look for its room is seen then.
        starting = time.monotonic() < start + _EXEC_WITHIN_S and _any_leader_before_exec()
        left = _left_behind(rooms, markers, found)
        found.update((kin.pid, kin.started) for kin in left)
        for kin in left:
            _kill(kin)
        if not (left or starting) or time.monotonic() > start + _KILL_WITHIN_S:
            break
        time.sleep(_PAUSE_S)
    return tuple(sorted(found))


def _any_leader_before_exec() -> bool:
    """Say whether a process may become a step that does not show its room yet: it is before exec, or in it.

    A build that is killed at that moment leaves it; `births` has marked it.
    """
    return any(
        name.isdigit() and int(name) != os.getpid() and _is_before_exec(int(name)) for name in os.listdir("/proc")
    )


def _is_before_exec(pid: int) -> bool:
    try:
        status = _read(f"/proc/{pid}/status")
        blocked = int(status.partition(b"\nSigBlk:")[2].split(None, 1)[0], 16)
        if not _blocks(blocked, _MARK):
            return False
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X") or int(fields[6]) & _PF_KTHREAD:
            return False
        return bool(int(fields[6]) & _PF_FORKNOEXEC) or not _read(f"/proc/{pid}/cmdline")
    except (OSError, IndexError):
        return False


def _left_behind(rooms: Path, markers: Collection[str], found: Mapping[int, int]) -> list[ProcessInfo]:
    """Return the living processes of these rooms, and of those found before (number -> start) the ones still dying.

    A process that dies after its parent is nobody's that we know, and still writes where it was writing.
    """
    everybody = [kin for name in os.listdir("/proc") if name.isdigit() and (kin := _look(int(name)))]
    living = [kin for kin in everybody if kin.state not in "ZX" and kin.pid != os.getpid()]
    known = {kin.pid for kin in living if found.get(kin.pid) == kin.started or _has_room(kin.pid, rooms, markers)}
    while more := {kin.pid for kin in living if kin.pid not in known and {kin.parent, kin.session} & known}:
        known |= more
    return [kin for kin in living if kin.pid in known]


def _has_room(pid: int, rooms: Path, markers: Collection[str]) -> bool:
    """Say whether a process was started with one of these rooms as its own, or is the bwrap that mounts it."""
    prefix = f"{MARKER_VARIABLE}=".encode()
    if any(
        one.startswith(prefix) and one[len(prefix) :].decode("ascii", "replace") in markers for one in _environ(pid)
    ):
        return True
    try:
        words = _read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return False
    if os.path.basename(words[0]) != b"bwrap":
        return False
    folder = os.fsencode(rooms)
    return any(
        option == b"--bind" and os.path.dirname(source) == folder and os.path.basename(source).decode() in markers
        for option, source in pairwise(words)
    )


def children_if_asleep(pid: int) -> list[int] | None:
    """Return what a process that sleeps has started; nobody where it is gone, None where it does not sleep yet."""
    children = _children(pid)  # asked first: what it does before it has one does not count
    kin = _look(pid)
    if kin is None:
        return []
    return children if children and kin.state == "S" else None


def forget_tree(family: ProcessTree) -> None:
    """Forget a step that has ended; whoever is left without a family is killed when the last step has ended."""
    if family.first is not None:
        os.close(family.first)
        family.first = None
    with _STEPS_LOCK:
        _STEPS.pop(family.leader, None)


def _is_first(pid: int, parent: int) -> bool:
    """Say whether a process is a child of that one, and the first in a namespace of its own."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return False
    words = dict(line.partition(b":")[::2] for line in status.splitlines())
    numbers = words.get(b"NSpid", b"").split()
    return len(numbers) > 1 and numbers[-1] == b"1" and words.get(b"PPid", b"").strip() == b"%d" % parent


def _end_namespace(first: int) -> None:
    """Kill the first process of a namespace, and wait until it is dead: the kernel lets all others in it die before."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(first, signal.SIGKILL)
    dead = select.poll()
    dead.register(first, select.POLLIN)
    dead.poll(_KILL_WITHIN_S * 1000)
    with contextlib.suppress(ChildProcessError):  # its parent may have taken it
        os.waitid(os.P_PIDFD, first, os.WEXITED | os.WNOHANG)


def _members(family: ProcessTree, children: Callable[[int], list[int]]) -> list[ProcessInfo]:
    """Return the living and the dead (zombies, to be reaped) of a family, without its leader."""
    with _STEPS_LOCK:
        others = _STEPS.keys() - {family.leader}
        roots = [kin for pid in children(os.getpid()) if pid not in _STEPS and (kin := _look(pid))]
        mine = [kin for kin in roots if _is_of(kin, family, alone=not others)]
    found = {kin.pid: kin for kin in mine}
    for root in (family.leader, *(kin.pid for kin in mine)):
        found.update((kin.pid, kin) for kin in _below(root, children))
    return list(found.values())


def _is_of(kin: ProcessInfo, family: ProcessTree, *, alone: bool) -> bool:
    """Say whether a child of ours that is no leader belongs to a step. Helpers of our own have our own limits."""
    if kin.session == family.leader or family.seen.get(kin.pid) == kin.started or kin.session in family.seen:
        return True
    limit = _limit_of(kin.pid)
    if limit in (None, family.limit):
        return limit is not None
    if family.marker and f"{MARKER_VARIABLE}={family.marker}".encode() in _environ(kin.pid):
        return True
    # It was born before its step had its limit, or lowered it: a step's, and no other step runs.
    return alone and (limit != _own_limit() or _is_marked(kin.pid))


def _is_marked(pid: int) -> bool:
    """Say whether a process was born, through whatever parents, within `births`.

    Who blocks every signal says nothing by blocking ours. A shell does so for a moment whenever it waits for a child,
    and a helper that is just being started does between its fork and its exec (CPython's fork_exec sees to that): both
    were killed here once. So such a process is looked at again; one that keeps to it is taken for a step's.
    """
    for _ in range(_LOOKS):
        try:
            status = _read(f"/proc/{pid}/status")
            flags = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6])
        except OSError:
            return False
        blocked = int(status.partition(b"\nSigBlk:")[2].split(None, 1)[0], 16)
        if not _blocks(blocked, _MARK):
            return False
        if not _blocks(blocked, _MARK - 1):
            return True
        if flags & _PF_FORKNOEXEC:
            return False
        time.sleep(_PAUSE_S)
    return True


def _blocks(mask: int, number: int) -> bool:
    return bool(mask >> (number - 1) & 1)


def _limit_of(pid: int) -> int | None:
    """Return the largest file that a process may write, None for one that is gone or dead."""
    try:
        return _size(resource.prlimit(pid, resource.RLIMIT_FSIZE)[1])
    except (OSError, ValueError):
        return None


def _own_limit() -> int:
    return _size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])


def _size(limit: int) -> int:
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit


def _kill(kin: ProcessInfo) -> None:
    """Kill one process, and reap it where it is our child; never another that got its number meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(kin.pid)
        try:
            now = _look(kin.pid)
            if now is not None and now.started == kin.started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    if kin.parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(kin.pid, os.WNOHANG)


def _below(root: int, children: Callable[[int], list[int]]) -> list[ProcessInfo]:
    """Return all that descend from a process, as far as their parents live."""
    found: list[ProcessInfo] = []
    seen = {root}
    todo = [root]
    while todo:
        for pid in children(todo.pop()):
            if pid not in seen and (kin := _look(pid)):
                seen.add(pid)
                found.append(kin)
                todo.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; those of a process that is gone are none."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
        except FileNotFoundError:
            if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
                return _snapshot()(pid)  # a kernel built without CONFIG_PROC_CHILDREN
        except OSError:
            continue
    return found


def _snapshot() -> Callable[[int], list[int]]:
    """Look at the parent of every process once; the function returned says who its children were."""
    time.sleep(_PAUSE_S)  # the dying take a moment; nothing is decided by this time
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (kin := _look(int(name))):
            found.setdefault(kin.parent, []).append(kin.pid)
    return lambda pid: found.get(pid, [])


def _look(pid: int) -> ProcessInfo | None:
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold anything, parentheses too
    return ProcessInfo(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def _read(path: str) -> bytes:
    """Return what a file of /proc says; with no more calls than that takes, since it is asked some times for each step.

    Raises:
        OSError: it is not there, or not to be read.

    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _environ(pid: int) -> frozenset[bytes]:
    try:
        return frozenset(_read(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False
