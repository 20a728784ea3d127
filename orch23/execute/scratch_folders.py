"""Temporary folders of orch23 outside of projects; what a killed process left of them is removed by the next one."""

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from orch23.execute import kinship
from orch23.execute.removal import remove_trees

_NAME = re.compile(r"orch23-(?:sandbox|template)-[0-9a-f]{16}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def scratch_folder(purpose: Literal["sandbox", "template"]) -> Iterator[Path]:
    """Give a new folder of the user's own, and remove it at the end.

    It is locked as long as this process lives: by that, those that nobody uses any more are told.

    Raises:
        OSError: none can be made.

    """
    top = Path(tempfile.gettempdir()).resolve()
    _sweep(top)
    path, lock = _made(top, purpose)
    try:
        yield path
    finally:
        remove_trees(path.parent, path.name)
        os.close(lock)


def _made(top: Path, purpose: str) -> tuple[Path, int]:
    while True:
        path = top / f"orch23-{purpose}-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another one took it for left behind
            lock = _locked(path.name, path.parent)
            if path.exists():
                return path, lock
            os.close(lock)


def _sweep(top: Path) -> None:
    """Remove the folders that killed processes left, and end what still runs in them."""
    with contextlib.suppress(OSError):
        for name in os.listdir(top):
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    lock = _locked(name, top)
                    try:
                        if os.fstat(lock).st_uid == os.geteuid():
                            kinship.end_leftovers(top / name)
                            remove_trees(top, name)
                    finally:
                        os.close(lock)


def _locked(name: str, parent: Path) -> int:
    """Open a folder and lock it.

    Raises:
        BlockingIOError: its process lives.
        OSError: it is no folder, or gone.

    """
    lock = os.open(parent / name, _DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock
