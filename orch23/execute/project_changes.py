"""See which files of a project changed while a process ran that could change them."""

import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from orch23.store.durable import is_temp

_OWN = frozenset({".orch23", "logs"})
_OF_GIT = frozenset({"hooks", "config"})
"""What of `.git` is compared: git itself writes to the rest whenever it is asked."""


class Stamp(NamedTuple):
    """What changes with a file: its identity and size, its mode, its times in ns."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    mode: int
    ctime_ns: int


Stamps: TypeAlias = Mapping[str, Stamp]


def stamps(root: Path, ignored: Collection[str] = ()) -> Stamps:
    """Return path -> what changes with a file, for all files and links below a folder; links are not followed."""
    found: dict[str, Stamp] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(OSError), os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if is_temp(entry.name) or path in ignored or (not folder and entry.name in _OWN):
                    continue
                if folder == ".git/" and entry.name not in _OF_GIT:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[path] = Stamp(
                        *(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),
                        *(status.st_mode, status.st_ctime_ns),
                    )
    return found


def changed(before: Stamps, after: Stamps, *, modes_alone: bool = False) -> list[str]:
    """Return the paths that were added, removed or changed, sorted; or those of which only the mode changed."""
    if modes_alone:
        both = before.keys() & after.keys()
        return sorted(path for path in both if _is_other_mode(before[path], after[path]))
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _is_other_mode(before: Stamp, after: Stamp) -> bool:
    return before[:4] == after[:4] and before.mode != after.mode
