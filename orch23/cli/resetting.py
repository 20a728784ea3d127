"""Make a project forget its results, whatever state its store is in."""

import contextlib
from pathlib import Path

from orch23.model.errors import CorruptStateError
from orch23.store.journal import read_journal
from orch23.store.opening import FOLDER, LOGS, remove_tree

_FOLDERS = {
    "records": "the records of results",
    "cas": "the stored bytes",
    "rooms": "rooms of stages",
    "snapshots": "what builds with nothing to do had looked at",
}
_FILES = {
    "stat.json": "the cache of file states",
    "promote.json": "an unfinished promotion",
    "VERSION": "the store's version",
}


def forget(root: Path) -> list[str]:
    """Remove everything of the store that can be made again, and say what was removed. Exchanges stay."""
    store = root / FOLDER
    told = []
    for name, what in _FOLDERS.items():
        if (store / name).is_dir():
            remove_tree(store / name)
            told.append(f"removed {what}")
    for name, what in _FILES.items():
        with contextlib.suppress(FileNotFoundError):
            (store / name).unlink()
            if name != "VERSION":
                told.append(f"removed {what}")
    return told


def set_journals_aside(root: Path) -> list[str]:
    """Rename journals that cannot be read, so that no command stumbles over them, and say which."""
    told = []
    for path in sorted((root / LOGS).glob("*.jsonl")):
        try:
            read_journal(path)
        except CorruptStateError:
            path.rename(path.with_name(f"{path.name}.damaged"))
            told.append(f"set {path.name} aside as {path.name}.damaged")
    return told
