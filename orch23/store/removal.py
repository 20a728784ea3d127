"""Remove from the store what is of the wrong kind: a folder, a link or a pipe where a file belongs, and the reverse."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from orch23.store.durable import is_temp

TIER_SHOWN = "sandbox"
"""The tier of the sandbox that the user was last warned about."""

_FILES = ("VERSION", ".gitignore", "index.sqlite", "generation", "promote.json", "writing.json", TIER_SHOWN)
_FOLDERS = ("cas", "records", "exchanges", "rooms", "partial")
_SHELVED = ("cas", "records", "exchanges")


def remove_strange(store: Path, *, whole: bool = True) -> list[str]:
    """Remove all that cannot be what the store keeps in its place, and say what. Only for the holder of the build lock.

    A folder may be a link to one. The lock is not touched: to put another in its place would let two builds run. If not
    `whole`, the files of the store's folders are not looked through, of which there may be a hundred thousand.
    """
    told = []
    for path, what in _strange(store, whole=whole):
        remove(path)
        told.append(f"{path.relative_to(store).as_posix()}: was no {what}")
    return told


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a stage made unreadable."""
    with contextlib.suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            _open_up(folder)
            shutil.rmtree(folder)


def _strange(store: Path, *, whole: bool) -> Iterator[tuple[Path, str]]:
    for name in _FILES:
        if _is_other(store / name):
            yield store / name, "file"
    for name in _FOLDERS:
        if os.path.lexists(store / name) and not (store / name).is_dir():
            yield store / name, "folder"
    for name in _SHELVED if whole else ():
        for group in _entries(store / name):
            if group.is_dir():
                yield from ((Path(one.path), "file") for one in _entries(Path(group.path)) if not _is_file(one))
            elif not is_temp(group.name):  # those that killed processes left are swept besides
                yield Path(group.path), "folder"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _is_other(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _open_up(folder: Path) -> None:
    """Give ourselves every right to a tree of directories, following no link."""
    pending = [folder]
    while pending:
        here = pending.pop()
        here.chmod(stat.S_IRWXU)
        pending += [path for path in here.iterdir() if path.is_dir() and not path.is_symlink()]
