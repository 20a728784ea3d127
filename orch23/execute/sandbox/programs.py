"""Say beforehand, as execve would, that a program is not there or cannot be run."""

import errno
import os
from pathlib import Path


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
