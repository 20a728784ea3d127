"""Run `reset`: delete all results, whatever the state of the store."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from orch23.cli.actions.clean import remove_unmodified_outputs
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.discovery import required_pipeline
from orch23.cli.opening import check_stage_count, found_project, open_for_command, project_root
from orch23.engine.session import lock_path
from orch23.execute.cleanup import kill_leftovers, remove_tree
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import CorruptStateError, ExitCode, MissingBytesError, NotFoundError, SafetyError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.record import LockFile, Record, retained_key
from orch23.store.access import BuildLock, remove_path
from orch23.store.lock_file import find_lock_files, lock_pipeline, read_lock, write_lock
from orch23.store.project_store import STORE_NAME, ProjectStore, open_store
from orch23.store.run_logs import journal_paths, read_journal

_FOLDERS = {
    "records": "the records of results",
    "cas": "the stored bytes",
    "rooms": "rooms of stages",
    "snapshots": "what builds with nothing to do had looked at",
}
_FILES = {
    "index.sqlite": "the index",
    "generation": "the state that the index is of",
    "stat.json": "the file states of an earlier version",
    "size.json": "the size of the store",
    "promote.json": "an unfinished promotion",
    "VERSION": "the store's version",
}


def forget_results(root: Path) -> list[str]:
    """Remove everything of the store that can be made again, and say what was removed. Exchanges stay."""
    store = root / STORE_NAME
    told = []
    for name, what in _FOLDERS.items():
        if os.path.lexists(store / name):
            if name == "rooms":
                kill_leftovers(store / name)
                remove_tree(store / name)
            else:
                remove_path(store / name)
            told.append(f"removed {what}")
    for name, what in _FILES.items():
        if os.path.lexists(store / name):
            remove_path(store / name)
            if name != "VERSION":
                told.append(f"removed {what}")
    return told


def locks_to_reset(root: Path, pipeline: Path | None) -> tuple[Path, ...]:
    """Return the lock file of a pipeline, or all those of a project.

    Raises:
        NotFoundError: the pipeline is outside of the project.

    """
    if pipeline is not None:
        whole = pipeline.resolve()
        if not whole.is_relative_to(root):
            hint = "choose the project with -C"
            raise NotFoundError(Diagnostic("E862", f"`{pipeline}` is outside of the project `{root}`", hint=hint))
        lock = lock_path(root, whole.relative_to(root).as_posix())
        return (lock,) if lock.is_file() else ()
    return tuple(sorted(find_lock_files(root)[0]))


@contextmanager
def retaining_ownership(root: Path, locks: Collection[Path], told: list[str]) -> Iterator[None]:
    """Keep, while the store is forgotten, what says whose the files of the project are; only for the lock's holder.

    A promotion that was interrupted is finished before. Of the store's records those stay that have the bytes on disk,
    of each lock file all, as records that make nothing fresh. `told` is given a line for each lock file.
    """
    store, kept = _opened(root), []
    if store is not None:
        store.promoter.recover()
        kept = [record for held in store.records.survey() if (record := _on_disk(store, held.record)) is not None]
    read: list[tuple[Path, str, LockFile]] = []
    for path in locks:
        try:
            read.append((path, lock_pipeline(path), read_lock(path)))
        except CorruptStateError:
            told.append(f"left {path.relative_to(root).as_posix()}, which is damaged")
    accepted = [record for _, _, lock in read for record in lock.owner_records().values() if record.accepted]
    if store is not None:
        for record in (*kept, *accepted):
            _keep_accepted(store, record)
    yield
    store = open_store(root)
    for record in kept:
        store.records.put(record)
    for path, name, lock in read:
        if lock.records:
            retained = {stage: ownership_record(record) for stage, record in lock.owner_records().items()}
            place = path.relative_to(root).as_posix()
            write_lock(root, place, LockFile({}, retained), name)
            told.append(f"removed the results in {place}")


def _opened(root: Path) -> ProjectStore | None:
    """Return the store; None where it is of another version: what it says cannot be read, and goes."""
    try:
        return open_store(root)
    except CorruptStateError:
        return None


def ownership_record(record: Record) -> Record:
    """Return a record that says whose the files are, and proves no result: no key of a stage is its key."""
    identity = {name: record.manifest[name] for name in ("kind", "outputs", "item") if name in record.manifest}
    key = record.key if record.failed else retained_key(record.key)
    return replace(record, key=key, manifest=identity, exchanges=(), failed=True)


def _on_disk(store: ProjectStore, record: Record) -> Record | None:
    """Return what to retain of a record in the store: its outputs that are on disk as it says; None without any."""
    outputs = {path: entry for path, entry in record.outputs.items() if _is_there(store, path, entry)}
    return replace(ownership_record(record), outputs=outputs) if outputs else None


def _is_there(store: ProjectStore, path: str, entry: FileEntry) -> bool:
    try:
        return store.workspace.entry(path) == entry
    except SafetyError:  # it leads through a link today
        return False


def _keep_accepted(store: ProjectStore, record: Record) -> None:
    """Keep the bytes that a user wrote where nothing is ever cleared away."""
    for path in record.accepted:
        entry = record.outputs.get(path)
        with suppress(MissingBytesError):
            if entry is not None:
                store.exchanges.put_original(store.sources.read(path, entry), None)


def set_journals_aside(root: Path) -> list[str]:
    """Rename journals that cannot be read, so that no command stumbles over them, and say which."""
    told = []
    for path in sorted(journal_paths(root / LOGS_FOLDER)):
        try:
            read_journal(path)
        except CorruptStateError:
            path.rename(path.with_name(f"{path.name}.damaged"))
            told.append(f"set {path.name} aside as {path.name}.damaged")
    return told


def run(console: Console, *, args: PipelineArguments, outputs: bool) -> int:
    """Forget all results; recorded answers are kept."""
    root = project_root(console, args.arguments)
    told = []
    project = None
    if outputs:
        project, _ = open_for_command(console, args, most_stages=0)
    found = found_project(console, args.arguments)
    check_stage_count(found.stages, 0)
    locks = locks_to_reset(root, required_pipeline(found) if args.arguments else None)
    with BuildLock(root / STORE_NAME / "lock"):
        if project is not None:
            project.store.promoter.recover(project.refusal)
            taken = remove_unmodified_outputs(project)
            told += [f"removed {path}" for path in taken.promoted.removed]
            told += [f"brought back {path}" for path in taken.promoted.written]
            told += [f"left {path}, since it was edited" for path in (*taken.modified, *taken.promoted.edited)]
            told += [f"left {path}, since the edit was accepted" for path in taken.accepted]
            told += [f"left {path}, since it is protected and no stage names it" for path in taken.refused]
        with retaining_ownership(root, locks, told):
            told += forget_results(root)
        told += set_journals_aside(root)
    console.write_out("".join(f"{line}\n" for line in told) or "there was nothing to forget\n")
    return ExitCode.OK
