"""Set limits of a step's processes, and measure the memory, disk and processes that it uses."""

import contextlib
import os
import resource
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path

from orch23.execute.process_tree import read_proc
from orch23.model.action import DEFAULT_LIMITS, StepLimits
from orch23.store.safe_files import closing
from orch23.store.tree_removal import open_below, open_subdirectory

# The highest oom_score_adj: if memory runs out, the kernel kills the step before orch23.
_KILLED_FIRST = b"1000"
_WRITE = os.O_WRONLY | os.O_CLOEXEC
_MAX_DEPTH = 500
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Files are measured when the file system has lost this much, or a 32nd of the limit, since the last time. If the stage
# sets a limit, they are also measured without that, for a twentieth of the time: others may free what the step takes.
_STEP_BYTES, _STEP_ENTRIES = 256 << 20, 20_000
_PARTS = 32
_PAUSE_FACTOR = 20
_SCM_PIDFD = 4
_FIRST_BYTES, _CONTROL_BYTES = 1 << 16, 1 << 12


def apply_limits(pid: int, limits: StepLimits) -> None:
    """Set the limits of a process from outside; it may have ended.

    Code between fork and exec could do so earlier, but is not safe in a process with threads.
    """
    with contextlib.suppress(OSError), closing(os.open(f"/proc/{pid}/oom_score_adj", _WRITE)) as file:
        os.write(file, _KILLED_FIRST)
    # Only on request: Node.js, Go and Java reserve much more address space than they use.
    if limits.address_space is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.address_space, limits.address_space))


# Limits are polled, since CI and containers rarely delegate cgroups (ADR 23).
class ResourceMonitor:
    """Check the limits of a running step: memory each time, its files when they may have grown."""

    def __init__(
        self,
        root: Path,
        limits: StepLimits,
        *,
        layered: Sequence[str] = (),
        tmpfs: Sequence[str] = (),
        is_confined: bool = False,
    ) -> None:
        """Note the free space, and measure the staged files if the stage sets a limit of them.

        `root` is the sandbox directory, `layered` are paths where the step sees a folder of it above other files.
        `tmpfs` are the paths where the step has file systems of its own in memory. What a confined step hides counts as
        all that the file system has lost meanwhile.
        """
        self._root = root
        self._layered = layered
        self._tmpfs = tmpfs
        self._limits = limits
        self._steps = min(_STEP_BYTES, limits.disk // _PARTS), min(_STEP_ENTRIES, limits.files // _PARTS)
        self._most_free = _free_space(root)
        self._was_over_memory = False
        self._is_set = (limits.disk, limits.files) != (DEFAULT_LIMITS.disk, DEFAULT_LIMITS.files)
        self._free_bytes = self._most_free[0] if self._is_set and is_confined else 0
        staged = [size or 0 for size in _named_sizes(self._root)] if self._is_set else []
        self._staged_bytes, self._staged_entries = sum(staged), len(staged)
        self._due_s = 0.0

    def exceeded_limit(self, processes: Sequence[int]) -> str | None:
        """Return which limit the step exceeds, or None. `processes` are its pids, and empty when it has ended."""
        limits = self._limits
        if len(processes) > limits.processes:
            return f"it had more than {limits.processes} processes at once (`limits.processes`)"
        # Twice in a row: a process between vfork and exec has the memory of its parent, which then counts twice.
        was_over, self._was_over_memory = self._was_over_memory, _use_more_memory(processes, limits.memory)
        if was_over and self._was_over_memory:
            return f"it used more than {limits.memory} bytes of memory (`limits.memory`)"
        if not (self._may_have_grown() if processes else self._is_set):
            return None
        began = time.monotonic()
        # Twice: a file that is renamed while the tree is walked can count twice.
        exceeded = self._exceeded_disk_limit(processes) and self._exceeded_disk_limit(processes)
        self._due_s = time.monotonic() + _PAUSE_FACTOR * (time.monotonic() - began)
        return exceeded

    def _may_have_grown(self) -> bool:
        free, most_free = _free_space(self._root), self._most_free
        is_due = most_free[0] - free[0] >= self._steps[0] or most_free[1] - free[1] >= self._steps[1]
        # What others free meanwhile, the step could take unseen.
        self._most_free = free if is_due else (max(free[0], most_free[0]), max(free[1], most_free[1]))
        return is_due or (self._is_set and time.monotonic() >= self._due_s)

    def _exceeded_disk_limit(self, processes: Sequence[int]) -> str | None:
        """Return which limit of files or disk is exceeded. The step runs meanwhile: what vanishes is not counted."""
        limits, (size_bytes, entries) = self._limits, _use_of_tmpfs(processes, self._tmpfs)
        size_bytes, entries = size_bytes - self._staged_bytes, entries - self._staged_entries
        try:
            # First those without a name: a file that loses its name meanwhile counts at neither place, not at both.
            devices = {os.stat(self._root).st_dev, *_devices(processes, self._layered)}
            for size in chain(_unnamed_sizes(processes, devices), _named_sizes(self._root)):
                if size is None and (lost_bytes := self._free_bytes - _free_space(self._root)[0]) > limits.disk:
                    what = f"its file system lost {lost_bytes} bytes while it had files that cannot be measured"
                    return f"{what}, which is more than `limits.disk`; others may have taken them"
                size_bytes, entries = size_bytes + (size or 0), entries + 1
                if entries > limits.files:
                    return f"its sandbox directory held more than {limits.files} files (`limits.files`)"
                if size_bytes > limits.disk:
                    return f"its sandbox directory held more than {limits.disk} bytes (`limits.disk`)"
        except RecursionError:
            return "its folders are nested too deep to be measured"
        return None


def _use_more_memory(processes: Sequence[int], limit_bytes: int) -> bool:
    """Return whether processes use more memory than the limit together. A page that they share counts once."""
    # The exact sum can take a second for gigabytes. The cheap one, which counts shared pages repeatedly, comes first.
    if sum(map(_resident_bytes, processes)) <= limit_bytes:
        return False
    read = [(pid, _shared_bytes(pid)) for pid in processes]
    # If a process ends between two readings, its part of the shared pages is in the reading of the others too.
    return sum(shared_bytes for pid, shared_bytes in read if _resident_bytes(pid)) > limit_bytes


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process in bytes. A page that several processes share counts for each."""
    try:
        return int(read_proc(pid, "statm").split()[1]) * _PAGE_BYTES
    except OSError:  # it has ended
        return 0


def _shared_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, of each shared page its part (PSS)."""
    try:
        lines = read_proc(pid, "smaps_rollup").splitlines()
        return int(next(line for line in lines if line.startswith(b"Pss:")).split()[1]) << 10
    except (OSError, StopIteration):
        return _resident_bytes(pid)


def _free_space(root: Path) -> tuple[int, int]:
    """Return the free bytes and inodes of a file system; 0 inodes if it does not count them."""
    try:
        status = os.statvfs(root)
    except OSError:
        return 0, 0
    return status.f_bavail * status.f_frsize, status.f_ffree


def _use_of_tmpfs(processes: Sequence[int], paths: Sequence[str]) -> tuple[int, int]:
    """Return the bytes and inodes in file systems that a step has at these paths, also of files without a name."""
    for pid in reversed(processes if paths else ()):
        with contextlib.suppress(OSError):
            root = f"/proc/{pid}/root"
            # The sandbox's own program, or a process that has not entered the sandbox yet, sees those of the machine.
            if not os.path.samestat(os.stat(root), os.stat("/")):
                found = [os.statvfs(f"{root}{path}") for path in paths]
                used = sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in found)
                return used, sum(one.f_files - one.f_ffree - 1 for one in found)
    return 0, 0


def _devices(processes: Sequence[int], mounts: Iterable[str]) -> Iterator[int]:
    """Yield the numbers by which processes see the file systems that are mounted at these paths."""
    for pid in processes if mounts else ():
        for path in mounts:
            with contextlib.suppress(OSError):
                yield os.stat(f"/proc/{pid}/root{path}").st_dev


def _unnamed_sizes(processes: Sequence[int], devices: AbstractSet[int]) -> Iterator[int | None]:
    """Yield the bytes on disk of each file without a name that processes have open or mapped, in these file systems."""
    # None is yielded for what may hold such files and cannot be read.
    seen = set[tuple[int, int]]()
    for path in chain.from_iterable(map(_references, processes)):
        yield from (None,) if path is None else _sizes_at(path, devices, seen)


def _sizes_at(path: str, devices: AbstractSet[int], seen: set[tuple[int, int]]) -> Iterator[int | None]:
    with contextlib.suppress(OSError):
        status = os.stat(path)
        one, is_socket = (status.st_dev, status.st_ino), stat.S_ISSOCK(status.st_mode)
        if one not in seen and (is_socket or (not status.st_nlink and status.st_dev in devices)):
            seen.add(one)
            yield from _sizes_on_their_way(path, devices, seen) if is_socket else (status.st_blocks * 512,)


def _sizes_on_their_way(path: str, devices: AbstractSet[int], seen: set[tuple[int, int]]) -> list[int | None]:
    """Return the sizes of files whose descriptors are in messages to a socket: no process has them open."""
    # Only the first message is read, and it stays. If others have descriptors, None is one of the sizes.
    with open(path.replace("/fd/", "/fdinfo/"), "rb") as file:
        count = int((file.read().partition(b"scm_fds:")[2].split() or [b"0"])[0])
    sizes: list[int | None] = []
    for is_counted, data in _first_message(path) if count else ():
        for number in memoryview(data[: len(data) // 4 * 4]).cast("i"):
            with closing(number):
                sizes += _sizes_at(f"/proc/{os.getpid()}/fd/{number}", devices, seen)
            count -= is_counted
    return [*sizes, None] if count > 0 else sizes


def _first_message(path: str) -> list[tuple[bool, bytes]]:
    """Return the descriptors that come with the first message to a socket, open now, and whether Linux counts them."""
    import socket  # noqa: PLC0415 - few steps have descriptors on their way

    from orch23.execute.sandbox.system_calls import system_call  # noqa: PLC0415 - as above

    thread, number = (int(path.split("/")[at]) for at in (-3, -1))
    with (
        contextlib.suppress(OSError),
        closing(os.pidfd_open(thread)) as handle,
        socket.socket(fileno=system_call("pidfd_getfd", handle, number, 0)) as one,
    ):
        how = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        _, others, *_ = one.recvmsg(_FIRST_BYTES, _CONTROL_BYTES, how)
        kinds = (socket.SCM_RIGHTS, _SCM_PIDFD)
        of_sockets = (one for one in others if one[0] == socket.SOL_SOCKET and one[1] in kinds)
        return [(kind == socket.SCM_RIGHTS, data) for _, kind, data in of_sockets]
    return []


def _references(pid: int) -> Iterator[str | None]:
    """Yield the paths in /proc of what a process has open, and of deleted files that it has mapped."""
    # None is yielded for a thread whose descriptors cannot be listed. Only root can follow the paths of mappings.
    with contextlib.suppress(OSError):
        # A thread can have descriptors of its own, and those of the process end with its first thread.
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                for number in os.listdir(f"/proc/{pid}/task/{thread}/fd"):
                    yield f"/proc/{pid}/task/{thread}/fd/{number}"
            except PermissionError:
                # One without memory does not hide them: it is ending.
                if not read_proc(pid, f"task/{thread}/statm").startswith(b"0 "):
                    yield None
            except (FileNotFoundError, ProcessLookupError):
                continue
        for line in read_proc(pid, "maps").splitlines():
            if line.endswith(b" (deleted)"):
                first, _, end = line.partition(b" ")[0].partition(b"-")
                yield f"/proc/{pid}/map_files/{int(first, 16):x}-{int(end, 16):x}"


def _named_sizes(root: Path) -> Iterator[int | None]:
    """Yield the bytes on disk of each file and folder below a folder: 0 for another name of the same file."""
    # Each folder is opened from the root downwards, since the step may replace any folder by a link. None is yielded
    # for one that cannot be read.
    folders: list[tuple[str, ...]] = [()]
    linked = set[int]()
    yield 0  # the folder itself
    while folders:
        above = folders.pop()
        if len(above) > _MAX_DEPTH:
            raise RecursionError
        try:
            with open_subdirectory(root) as top, open_below(top, above) as folder, os.scandir(folder) as found:
                for entry in found:
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            folders.append((*above, entry.name))
                        yield 0 if status.st_ino in linked else status.st_blocks * 512
                        if status.st_nlink > 1:
                            linked.add(status.st_ino)
        except PermissionError:
            yield None
        except OSError:
            continue
