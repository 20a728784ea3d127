"""Notice, while a step runs, that it takes more of the machine than any step may: disk, files, processes."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LEVELS = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a step may take while it runs: of the disk, with what it throws away at the end, and of processes."""

    room_bytes: int = 8 << 30
    room_entries: int = 1_000_000
    processes: int = 4096
    step_bytes: int = 256 << 20
    step_entries: int = 20_000


class Growth:
    """Measures one room, and only when as much has gone from its file system as the room may have grown by."""

    def __init__(self, room: Path, limits: Limits) -> None:
        """Begin with what is free now."""
        self._room = room
        self._limits = limits
        self._free_bytes, self._free_entries = _free(room)

    def fault(self, processes: int) -> str | None:
        """Return what the step has too much of, None where nothing. `processes` is how many it has now."""
        limits = self._limits
        if processes > limits.processes:
            return f"it had more than {limits.processes} processes at once"
        free_bytes, free_entries = _free(self._room)
        taken_bytes, taken_entries = self._free_bytes - free_bytes, self._free_entries - free_entries
        if taken_bytes < limits.step_bytes and taken_entries < limits.step_entries:
            return None
        self._free_bytes, self._free_entries = free_bytes, free_entries
        return _measured(self._room, limits)


def _free(room: Path) -> tuple[int, int]:
    """Return how many bytes and files the file system of a room has left; 0 files where it does not count them."""
    try:
        status = os.statvfs(room)
    except OSError:
        return 0, 0
    return status.f_bavail * status.f_frsize, status.f_ffree


def _measured(room: Path, limits: Limits) -> str | None:
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
                if entries > limits.room_entries:
                    return f"its room held more than {limits.room_entries} files"
        if size_bytes > limits.room_bytes:
            return f"its room held more than {limits.room_bytes} bytes"
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
