"""Find every pipeline of a project, and what their lock files and today's plans need of the store."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orch23.cli.wiring import Settings, open_project, open_reading
from orch23.engine.preview import preview
from orch23.engine.session import lock_path
from orch23.model.decision import Fresh, Restore, VerifyOnly
from orch23.model.errors import CorruptStateError, Orch23Error
from orch23.model.paths import IGNORED_AT_ROOT, IGNORED_NAMES
from orch23.model.record import Record
from orch23.store.collection import Needs
from orch23.store.journal import interrupted_journals, journals, newest_journal, pipeline_of
from orch23.store.lock_file import read_lock

_SUFFIXES = (".yaml", ".yml")
_TEMPLATE = ".template"
_HEAD_BYTES = 4096
_VERSION = re.compile(rb'^\s*\{?\s*"?version"?\s*:', re.MULTILINE)
_STAGES = re.compile(rb'^\s*"?stages"?\s*:|[{,]\s*"?stages"?\s*:', re.MULTILINE)
_LOCK_MARK = b'"orch23_lock"'


@dataclass(slots=True)
class _Found:
    """What is needed, as far as it was found."""

    keys: set[str] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def needs_of(root: Path, logs: Path, environ: Mapping[str, str]) -> Needs:
    """Return what all pipelines of a project need: by their lock files, by what runs left, by today's plans.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so what is needed is not known.

    """
    found = _Found()
    locks, pipelines = _files(root)
    pipelines |= {name for path in journals(logs) if (name := pipeline_of(path)) and (root / name).is_file()}
    locks |= {lock_path(root, name) for name in pipelines}
    for path in sorted(locks):
        for record in read_lock(path).records.values():
            found.keys.add(record.key)
            found.records.append(record)
    for name in sorted(pipelines):
        _by_journals(found, logs, name)
        _by_plan(found, Settings(root=root, pipeline_path=root / name, environ=environ), name)
    return Needs(
        keys=frozenset(found.keys),
        records=tuple(found.records),
        stale=frozenset(found.stale),
        notes=tuple(found.notes),
    )


def lock_needs(root: Path, keys: frozenset[str]) -> Needs:
    """Return what the lock files of a project need, and some keys: a quick look, without any other plan."""
    locks, pipelines = _files(root)
    locks |= {lock_path(root, name) for name in pipelines}
    records = tuple(record for path in sorted(locks) for record in read_lock(path).records.values())
    return Needs(keys=keys | {record.key for record in records}, records=records)


def _by_journals(found: _Found, logs: Path, name: str) -> None:
    """Take the results of the newest run, and of those that were cut off: no lock file may have them yet."""
    runs = [newest_journal(logs, name), *(lines for _, lines in interrupted_journals(logs, name))]
    for line in (line for lines in runs for line in lines):
        key = line.event.data.get("key")
        if isinstance(key, str):
            found.keys.add(key)


def _by_plan(found: _Found, settings: Settings, name: str) -> None:
    try:
        seen = preview(open_reading(open_project(settings)))
    except CorruptStateError:
        raise
    except Orch23Error as error:
        why = error.diagnostics[0].message
        found.notes.append(f"{name} cannot be planned ({why}): what its lock file and its last run need is kept")
        return
    found.keys |= {appraised.resolved.key for appraised in seen.appraised.values()}
    for stage, decision in seen.decisions.items():
        if isinstance(decision, Fresh | Restore | VerifyOnly):
            found.records.append(decision.record)
            found.keys.add(decision.record.key)
        if not isinstance(decision, Fresh):
            found.stale.add(stage.partition("@")[0])


def _files(root: Path) -> tuple[set[Path], set[str]]:
    """Return the lock files below the root, and the pipelines: beside a lock, at the root, or in pipelines/."""
    locks: set[Path] = set()
    pipelines: set[str] = set()
    for path in _walk(root):
        if path.suffix == ".lock" and _LOCK_MARK in _head(path):
            locks.add(path)
            pipelines |= {p.relative_to(root).as_posix() for s in _SUFFIXES if (p := path.with_suffix(s)).is_file()}
        elif path.suffix in _SUFFIXES and path.parent in (root, root / "pipelines") and _is_pipeline(path):
            pipelines.add(path.relative_to(root).as_posix())
    return locks, pipelines


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
                    if entry.name not in IGNORED_NAMES and not (is_top and entry.name in IGNORED_AT_ROOT):
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
            return stream.read(1 << 20 if whole else _HEAD_BYTES)
    except OSError:
        return b""
