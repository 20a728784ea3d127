"""Set limits of a step's processes, and measure the memory, disk and processes that it uses."""

import contextlib
import os
import resource
from collections.abc import Sequence
from pathlib import Path

from orch23.execute.process_tree import read_proc
from orch23.model.action import StepLimits
from orch23.store.safe_files import closing
from orch23.store.tree_removal import open_below, open_subdirectory

# The highest oom_score_adj: if memory runs out, the kernel kills the step before orch23.
_KILLED_FIRST = b"1000"
_WRITE = os.O_WRONLY | os.O_CLOEXEC
_MAX_DEPTH = 500
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The sandbox directory is walked only when the file system has lost this much, or a 32nd of the limit, since the last
# walk: the limits are checked ten times a second, and a walk takes long for many files.
_STEP_BYTES, _STEP_ENTRIES = 256 << 20, 20_000
_PARTS = 32


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
    """Check the limits of a running step: memory each time, the sandbox directory only when the disk has filled up."""

    def __init__(self, root: Path, limits: StepLimits) -> None:
        """Note the free space of the file system. `root` is that of the sandbox directory."""
        self._root = root
        self._limits = limits
        self._step_bytes = min(_STEP_BYTES, limits.disk // _PARTS)
        self._step_entries = min(_STEP_ENTRIES, limits.files // _PARTS)
        self._free_bytes, self._free_entries = _free_space(root)
        self._was_over_memory = False

    def exceeded_limit(self, processes: Sequence[int]) -> str | None:
        """Return which limit the step exceeds, or None. `processes` are the pids of the step."""
        limits = self._limits
        if len(processes) > limits.processes:
            return f"it had more than {limits.processes} processes at once (`limits.processes`)"
        # Twice in a row: a process between vfork and exec has the memory of its parent, which then counts twice.
        was_over, self._was_over_memory = self._was_over_memory, _use_more_memory(processes, limits.memory)
        if was_over and self._was_over_memory:
            return f"it used more than {limits.memory} bytes of memory (`limits.memory`)"
        free_bytes, free_entries = _free_space(self._root)
        taken_bytes, taken_entries = self._free_bytes - free_bytes, self._free_entries - free_entries
        if taken_bytes < self._step_bytes and taken_entries < self._step_entries:
            return None
        self._free_bytes, self._free_entries = free_bytes, free_entries
        return _exceeded_disk_limit(self._root, limits)


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


def _exceeded_disk_limit(root: Path, limits: StepLimits) -> str | None:
    """Return which limit of files or disk is exceeded. The step runs meanwhile: files that vanish are not counted.

    Each folder is opened from the root downwards, since the step may replace any folder by a link.
    """
    size_bytes = entries = 0
    folders: list[tuple[str, ...]] = [()]
    while folders:
        above = folders.pop()
        if len(above) > _MAX_DEPTH:
            return "its folders are nested too deep to be measured"
        with (
            contextlib.suppress(OSError),
            open_subdirectory(root) as top,
            open_below(top, above) as folder,
            os.scandir(folder) as found,
        ):
            for entry in found:
                entries += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((*above, entry.name))
                    else:
                        size_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                if entries > limits.files:
                    return f"its sandbox directory held more than {limits.files} files (`limits.files`)"
        if size_bytes > limits.disk:
            return f"its sandbox directory held more than {limits.disk} bytes (`limits.disk`)"
    return None
