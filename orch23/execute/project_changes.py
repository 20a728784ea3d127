"""See which files of a project changed while a process ran that nothing confined."""

import contextlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeAlias

from orch23.store.durable import is_temp

_OWN = frozenset({".orch23", "logs"})
_OF_GIT = frozenset({"hooks", "config"})
"""What of `.git` is compared: git itself writes to the rest whenever it is asked."""

Stamps: TypeAlias = Mapping[str, tuple[int, ...]]


def stamps(root: Path, ignored: Collection[str] = ()) -> Stamps:
    """Return path -> what changes with a file, for all files and links below a folder; links are not followed."""
    found: dict[str, tuple[int, ...]] = {}
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
                    found[path] = (
                        *(status.st_dev, status.st_ino, status.st_size, status.st_mode),
                        *(status.st_mtime_ns, status.st_ctime_ns),
                    )
    return found
