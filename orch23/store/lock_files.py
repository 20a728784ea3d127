"""Find the pipelines and the lock files of a project by walking its folders."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orch23.model.own_files import LOCK_MARK, LOGS
from orch23.model.paths import IGNORED_NAMES
from orch23.store.beneath import open_file, read_all

_SUFFIXES = (".yaml", ".yml")
_TEMPLATE = ".template"
_HEAD_BYTES = 4096
_PIPELINE_BYTES = 1 << 20
_VERSION = re.compile(rb'^\s*\{?\s*"?version"?\s*:', re.MULTILINE)
_STAGES = re.compile(rb'^\s*"?stages"?\s*:|[{,]\s*"?stages"?\s*:', re.MULTILINE)


def files_of(root: Path) -> tuple[set[Path], set[str]]:
    """Return the lock files below the root, and the pipelines: beside a lock, at the root, or in pipelines/."""
    locks: set[Path] = set()
    pipelines: set[str] = set()
    for path in _walk(root):
        if path.suffix == ".lock" and LOCK_MARK in _head(path):
            locks.add(path)
            pipelines |= {p.relative_to(root).as_posix() for s in _SUFFIXES if (p := path.with_suffix(s)).is_file()}
        elif path.suffix in _SUFFIXES and path.parent in (root, root / "pipelines") and _is_pipeline(path):
            pipelines.add(path.relative_to(root).as_posix())
    return locks, pipelines


def is_lock_of_pipeline(root: Path, path: str) -> bool:
    """Return whether a path below the root is, or would be, the lock file of a pipeline.

    Raises:
        SafetyError: a directory of the path is a link.

    """
    if not path.casefold().endswith(".lock"):
        return False
    if LOCK_MARK in _head_below(root, path, _HEAD_BYTES):
        return True
    stem = path[: -len(".lock")]
    beside = (_head_below(root, f"{stem}{suffix}", _PIPELINE_BYTES) for suffix in _SUFFIXES)
    return any(b"version" in text and b"stages" in text for text in beside)


def _head_below(root: Path, path: str, most: int) -> bytes:
    descriptor = open_file(root, path)
    return b"" if descriptor is None else read_all(descriptor, most)


def _walk(root: Path) -> Iterator[Path]:
    waiting = [(str(root), True)]
    while waiting:
        folder, is_top = waiting.pop()
        try:
            entries = os.scandir(folder)
        except OSError:  # not ours to read: no pipeline that could be built
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in IGNORED_NAMES and not (is_top and entry.name == LOGS):
                        waiting.append((entry.path, False))
                elif entry.name.endswith((".lock", *_SUFFIXES)) and entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def _is_pipeline(path: Path) -> bool:
    """Say whether a file looks like a pipeline: templates and hidden files are none that a build is made of."""
    if path.stem.endswith(_TEMPLATE) or path.name.startswith("."):
        return False
    text = _head(path, whole=True)
    return _VERSION.search(text) is not None and _STAGES.search(text) is not None


def _head(path: Path, *, whole: bool = False) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_PIPELINE_BYTES if whole else _HEAD_BYTES)
    except OSError:
        return b""
