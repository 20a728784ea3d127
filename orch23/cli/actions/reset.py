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
from orch23.cli.project_loading import Project
from orch23.engine.session import lock_path
from orch23.execute.cleanup import kill_leftovers
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import CorruptStateError, MissingBytesError, NotFoundError, SafetyError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.record import LockFile, Record, retained_key
from orch23.store.access import BuildLock
from orch23.store.lock_file import find_lock_files, lock_pipeline, read_lock, write_lock
from orch23.store.project_store import STORE_NAME, ProjectStore, open_store
from orch23.store.run_logs import journal_paths, read_journal
from orch23.store.tree_removal import remove_path, remove_tree

_FOLDERS = {
    "records": "the records of results",
    "cas": "the stored bytes",
    "rooms": "the sandbox directories",
    "snapshots": "the snapshots of builds with nothing to do",
}
_FILES = {
    "index.sqlite": "the index",
    "generation": "the generation of the index",
    "stat.json": "the file states of an earlier version",
    "size.json": "the size of the store",
    "promote.json": "an unfinished promotion",
}


def forget_results(root: Path) -> list[str]:
    """Delete everything in the store that can be made again, and return a line for each. Exchanges stay."""
    store = root / STORE_NAME
    names = [name for name in (*_FOLDERS, *_FILES, "VERSION") if os.path.lexists(store / name)]
    for name in names:
        if name == "rooms":
            # Processes of a killed build may still write there, and its directories may be read-only.
            kill_leftovers(store / name)
            remove_tree(store / name)
        else:
            remove_path(store / name)
    # VERSION is not a result: it is written again, and not reported.
    described = {**_FOLDERS, **_FILES}
    return [f"removed {described[name]}" for name in names if name in described]


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
def retaining_ownership(root: Path, locks: Collection[Path], lines: list[str]) -> Iterator[None]:
    """Keep, while results are deleted, which stage owns which file: later builds must not overwrite user files.

    Only for the holder of the build lock. Finishes an interrupted promotion first. Keeps records of the store whose
    outputs are on disk, and all records of lock files, in a form that makes no stage fresh. Adds a line for each lock
    file to `lines`.
    """
    store, kept = _opened(root), []
    if store is not None:
        # An interrupted promotion decides which bytes on disk are outputs.
        store.promoter.recover()
        kept = [record for known in store.records.survey() if (record := _on_disk(store, known.record)) is not None]
    read = _read_locks(root, locks, lines)
    accepted = [record for _, _, lock in read for record in lock.owner_records().values() if record.accepted]
    if store is not None:
        for record in (*kept, *accepted):
            _keep_accepted(store, record)
    yield
    # The store is new now: the records of owners are written again, and the lock files lose their results.
    store = open_store(root)
    for record in kept:
        store.records.put(record)
    for path, name, lock in read:
        # Ownership stays in the lock file, so that a clone knows it too (ADR 19).
        if lock.records:
            retained = {stage: _ownership_record(record) for stage, record in lock.owner_records().items()}
            write_lock(root, path, LockFile({}, retained), name)
            lines.append(f"removed the results in {path}")


def _read_locks(root: Path, locks: Collection[Path], lines: list[str]) -> list[tuple[str, str, LockFile]]:
    """Return path, pipeline name and records of each lock file that can be read; add a line for each other one."""
    read = []
    for lock in locks:
        path = lock.relative_to(root).as_posix()
        try:
            read.append((path, lock_pipeline(lock), read_lock(lock)))
        except CorruptStateError:
            lines.append(f"kept {path}: it is damaged")
    return read


def _opened(root: Path) -> ProjectStore | None:
    """Return the store; None if another version of orch23 made it: it cannot be read, and is deleted."""
    try:
        return open_store(root)
    except CorruptStateError:
        return None


def _ownership_record(record: Record) -> Record:
    """Return a record that keeps the owner of files, but no result: its key is not the key of any stage."""
    # These aspects find the record of a renamed stage or item; all others would make a stage fresh.
    identity = {name: record.manifest[name] for name in ("kind", "outputs", "item") if name in record.manifest}
    key = record.key if record.failed else retained_key(record.key)
    return replace(record, key=key, manifest=identity, exchanges=(), failed=True)


def _on_disk(store: ProjectStore, record: Record) -> Record | None:
    """Return the record of the outputs that are unchanged on disk; None if none is."""
    outputs = {path: entry for path, entry in record.outputs.items() if _is_unchanged(store, path, entry)}
    return replace(_ownership_record(record), outputs=outputs) if outputs else None


def _is_unchanged(store: ProjectStore, path: str, entry: FileEntry) -> bool:
    try:
        return store.workspace.entry(path) == entry
    except SafetyError:  # a link replaced one of its folders
        return False


def _keep_accepted(store: ProjectStore, record: Record) -> None:
    """Keep the bytes of accepted edits with the exchanges, which are never deleted."""
    for path in record.accepted:
        entry = record.outputs.get(path)
        with suppress(MissingBytesError):
            if entry is not None:
                store.exchanges.put_original(store.sources.read(path, entry), None)


def rename_damaged_journals(root: Path) -> list[str]:
    """Rename journals that cannot be read, since every command would fail on them; return a line for each."""
    lines = []
    for path in sorted(journal_paths(root / LOGS_FOLDER)):
        try:
            read_journal(path)
        except CorruptStateError:
            path.rename(path.with_name(f"{path.name}.damaged"))
            lines.append(f"renamed {path.name} to {path.name}.damaged")
    return lines


def run(console: Console, *, args: PipelineArguments, outputs: bool) -> None:
    """Delete all results; keep recorded responses."""
    root = project_root(console, args.arguments)
    lines = []
    project = None
    if outputs:
        project, _ = open_for_command(console, args, most_stages=0)
    found = found_project(console, args.arguments)
    check_stage_count(found.stages, 0)
    locks = locks_to_reset(root, required_pipeline(found) if args.arguments else None)
    # `open_store` refuses a store of another version; the lock alone can be taken in any store.
    with BuildLock(root / STORE_NAME / "lock"):
        if project is not None:
            project.store.promoter.recover(project.refusal)
            lines += _remove_outputs(project)
        with retaining_ownership(root, locks, lines):
            lines += forget_results(root)
        lines += rename_damaged_journals(root)
    console.write_out("".join(f"{line}\n" for line in lines) or "there was nothing to delete\n")


def _remove_outputs(project: Project) -> list[str]:
    removed = remove_unmodified_outputs(project)
    done = (
        ("removed {}", removed.promoted.removed),
        ("restored {}", removed.promoted.written),
        ("kept {}: it was edited", (*removed.modified, *removed.promoted.edited)),
        ("kept {}: the edit was accepted", removed.accepted),
        ("kept {}: protected, and no stage declares it", removed.refused),
    )
    return [line.format(path) for line, paths in done for path in paths]
