"""Set limits of a step's processes, and measure the memory, disk and processes that it uses."""

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

from orch23.model.action import StepLimits

_KILLED_FIRST = b"1000"


def apply_limits(pid: int, limits: StepLimits) -> None:
    """Restrain a process from outside; it may have ended.

    A function between fork and exec could do so earlier, but is not safe in a program with threads.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file:
        file.write(_KILLED_FIRST)
    if limits.address_space is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.address_space, limits.address_space))


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LEVELS = 500

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STEP_BYTES, _STEP_ENTRIES = 256 << 20, 20_000  # the sandbox directory is measured after so much growth at most
_PARTS = 32


class ResourceMonitor:
    """Measures memory each time; the sandbox directory only when part of its limit has gone from the file system."""

    def __init__(self, room: Path, limits: StepLimits) -> None:
        """Begin with what is free now."""
        self._room = room
        self._limits = limits
        self._step_bytes = min(_STEP_BYTES, limits.disk // _PARTS)
        self._step_entries = min(_STEP_ENTRIES, limits.files // _PARTS)
        self._free_bytes, self._free_entries = _free(room)

    def fault(self, processes: Sequence[int]) -> str | None:
        """Return what the step uses too much of, None where nothing. `processes` are those that it has now."""
        limits = self._limits
        if len(processes) > limits.processes:
            return f"it had more than {limits.processes} processes at once (`limits.processes`)"
        if _resident(processes) > limits.memory and _shared_out(processes) > limits.memory:
            return f"it used more than {limits.memory} bytes of memory (`limits.memory`)"
        free_bytes, free_entries = _free(self._room)
        taken_bytes, taken_entries = self._free_bytes - free_bytes, self._free_entries - free_entries
        if taken_bytes < self._step_bytes and taken_entries < self._step_entries:
            return None
        self._free_bytes, self._free_entries = free_bytes, free_entries
        return _measured(self._room, limits)


def _resident(processes: Sequence[int]) -> int:
    """Return the bytes in memory of processes; what several of them share counts for each."""
    return sum(_read_resident(pid) for pid in processes)


def _read_resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:  # it has ended
        return 0


def _shared_out(processes: Sequence[int]) -> int:
    """Return the bytes in memory of processes, each page once: the kernel counts its part for each that has it.

    That takes it up to a second for gigabytes, so it is asked only where the plain sum is too much.
    """
    return sum(_read_share(pid) for pid in processes)


def _read_share(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            found = next(line for line in file if line.startswith(b"Pss:"))
            return int(found.split()[1]) << 10
    except (OSError, StopIteration):
        return _read_resident(pid)


def _free(room: Path) -> tuple[int, int]:
    """Return how many bytes and files the file system of a room has left; 0 files where it does not count them."""
    try:
        status = os.statvfs(room)
    except OSError:
        return 0, 0
    return status.f_bavail * status.f_frsize, status.f_ffree


def _measured(room: Path, limits: StepLimits) -> str | None:
    """Return what of a room is too much. The step runs meanwhile: what vanishes is not counted, no link is followed.

    A folder is opened from the room downwards, since the step may put a link in the place of any folder.
    """
    size_bytes = entries = 0
    folders: list[tuple[str, ...]] = [()]
    while folders:
        above = folders.pop()
        if len(above) > _MOST_LEVELS:
            return "its folders are nested too deep to be measured"
        with contextlib.suppress(OSError), _opened(room, above) as folder, os.scandir(folder) as found:
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


@contextlib.contextmanager
def _opened(room: Path, names: tuple[str, ...]) -> Iterator[int]:
    folder = os.open(room, _DIRECTORY)
    try:
        for name in names:
            below = os.open(name, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)
