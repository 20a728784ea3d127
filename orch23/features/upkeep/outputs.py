"""Run `clean`, `release` and `reset`: remove or keep outputs, and delete results."""

import os
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.discovery import required_pipeline
from orch23.cli.opening import check_stage_count, found_project, open_for_command, open_stages, project_root
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.open_pipeline import OpenPipeline, WholePriorState
from orch23.decide.ownership import is_proven, kept_failures, release_files
from orch23.decide.protected_files import DeclaredByPlan
from orch23.execute.cleanup import kill_leftovers
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import CorruptStateError, ExitCode, MissingBytesError, NotFoundError
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import Stage, family_of
from orch23.model.record import LockFile, Record, retained_key, written_paths
from orch23.model.text import visible
from orch23.plan.planner import Selection
from orch23.report.values import pluralize
from orch23.snapshot.fast_path import remove_snapshots
from orch23.store.access import hold_build_lock
from orch23.store.lock_file import find_lock_files, lock_path, lock_pipeline, read_lock, write_lock
from orch23.store.project_store import STORE_NAME, ProjectStore, open_store
from orch23.store.promotion import PromotionResult, RefusePath
from orch23.store.run_logs import journal_paths, read_journal
from orch23.store.tree_removal import remove_path, remove_tree


class OutputRemoval(Struct, frozen=True, kw_only=True):
    """Outputs of stages that are removed (`target`): path -> the file that comes back, or None.

    The others are kept: `modified` are edited outputs, `accepted` those whose edit the user accepted, in the same form;
    `refused` have protected names that no stage declares. `promoted` is what was done.
    """

    refusal: RefusePath
    refused: list[str] = field(default_factory=list)
    target: dict[str, FileEntry | None] = field(default_factory=dict)
    modified: dict[str, FileEntry | None] = field(default_factory=dict)
    accepted: dict[str, FileEntry | None] = field(default_factory=dict)
    promoted: PromotionResult = field(default_factory=PromotionResult)


def plan_removal(opened: OpenPipeline, stages: Collection[str]) -> OutputRemoval:
    """Return which outputs these stages own, by their records and their failed attempts. No stage means all.

    Raises:
        NotFoundError: a name is not a stage, and no record has it.
    """
    every = (*opened.state.former.items(), *((one.stage, one) for one in opened.state.lock.others))
    owning = [(name, record) for name, record in every if opened.state.may_remove_by(record)]
    names = {node.name for node in opened.pipeline.stages}
    kept = [one for one in kept_failures(opened.store, opened.pipeline.file) if family_of(one.stage) in names]
    owning += [(one.stage, one) for one in kept if not one.is_released]
    known = {name for one, _ in owning for name in (one, family_of(one))}
    unknown = [name for name in stages if name not in known]
    Selection(targets=tuple(unknown)).nodes(opened.state.plan)
    records = [record for name, record in owning if _is_selected(name, stages)]
    removal = OutputRemoval(refusal=DeclaredByPlan(opened).refusal)
    originals, on_disk = _starts_of(records, opened), opened.store.workspace.entry
    others, is_declared = opened.state.other_pipelines, opened.state.plan.is_declared
    # A stage that was moved to another pipeline, and built there, has its files there.
    moved = {p for one in records if others and not is_declared(one.stage) for p in one.outputs if others.owner(p)}
    for path in sorted({path for record in records for path in record.outputs} - moved):
        _classify(opened, removal, path, originals.get(path))
    # What a user saved over the result of a program with `edits` is a source: its next run starts from it.
    for path in {path for record in records if record.is_of_editor for path in record.outputs}:
        removal.modified.pop(path, None)
    for path in sorted({path for record in records for path in record.deleted if path in originals}):
        if removal.refusal(path) is None and on_disk(path) is None:
            removal.target[path] = originals[path]
    return removal


def _starts_of(records: Sequence[Record], opened: OpenPipeline) -> Mapping[str, FileEntry]:
    """Return the files that the last results started from, by path: originals, or what the user had saved since."""
    last, on_disk, position = opened.state.former, opened.store.workspace.entry, opened.state.position

    def is_newest(made: tuple[Record, str]) -> tuple[bool, bool]:
        # After a merge, the record of the other side may have the file on disk. What `reset` kept of an earlier result
        # may have started from other files than the one in the lock file.
        record, path = made
        return record.outputs.get(path) == on_disk(path), last.get(record.stage) is record

    made = [(record, path) for record in reversed(records) for path in written_paths(record)]
    newest = {(path, record.stage): record for record, path in sorted(made, key=is_newest)}
    # Of a chain, the last item that did not start from the one before it has the newest file of the user.
    ranked = sorted(newest.items(), key=lambda one: (one[0][0] in one[1].bases, position(one[0][1])))
    return {path: entry for (path, _), record in ranked if (entry := record.start_of(path)) is not None}


def _classify(opened: OpenPipeline, removal: OutputRemoval, path: str, original: FileEntry | None) -> None:
    current = opened.store.workspace.entry(path)
    if current is None or current == original:
        return
    if removal.refusal(path) is not None:
        removal.refused.append(path)
    elif not opened.state.ownership.is_known(path, current):
        removal.modified[path] = original
    elif opened.state.ownership.is_accepted(path, current):
        removal.accepted[path] = original
    else:
        removal.target[path] = original


def _is_selected(name: str, stages: Collection[str]) -> bool:
    """Return whether one of these names is the stage, or the foreach of the item; no names select all."""
    return not stages or not {name, family_of(name)}.isdisjoint(stages)


def remove_outputs(
    project: Project, stages: Collection[str] = (), *, edited: Literal["stop", "keep", "remove"]
) -> OutputRemoval:
    """Remove the outputs of stages; of all stages if none is named. The caller holds the build lock.

    With `stop` and an edited output, nothing is removed. Otherwise edited outputs are kept, or removed after their
    bytes were added to the store. Accepted outputs are removed only with `remove`, in the same way.
    """
    opened = open_for_reading(project)
    removal = plan_removal(opened, stages)
    if edited == "remove":
        forced = {**removal.modified, **removal.accepted}
        # An edit is removed on request, but only its user could write it again: its bytes go where nothing is deleted.
        for path in forced:
            digest = opened.store.add_file(path)
            opened.store.exchanges.put_original(opened.store.contents.get(digest), None)
        removal = replace(removal, target={**removal.target, **forced}, modified={}, accepted={})
    if edited == "stop" and removal.modified:
        return removal
    return replace(removal, promoted=_promote(opened, removal.target, removal.refusal))


def _promote(opened: OpenPipeline, target: Mapping[str, FileEntry | None], refusal: RefusePath) -> PromotionResult:
    store = opened.store
    # A promotion takes bytes from the store; an original may be only in the exchanges or in git, or in another clone.
    lost: list[str] = []
    for path, entry in target.items():
        try:
            if entry is not None and not store.contents.has(entry.digest):
                store.contents.put(opened.state.read(path, entry))
        except MissingBytesError:
            lost.append(path)
    if lost:
        message = "what its last run started from is in neither store, transcripts nor git; nothing was removed"
        raise NotFoundError(
            *(Diagnostic(MissingBytesError.code, f"`{one}`: {message}", hint=MissingBytesError.hint) for one in lost)
        )
    # The states on disk are read again: they decide whether a file changed meanwhile.
    store.workspace.invalidate(target)
    old = {path: store.workspace.entry(path) for path in target}
    promoted = store.promoter.promote(target, old, refusal)
    store.workspace.invalidate(target)
    return promoted


def clean_outputs(console: Console, *, args: PipelineArguments, force: bool) -> int:
    """Remove outputs of stages."""
    project, stages = open_for_command(console, args)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        taken = remove_outputs(project, stages, edited="remove" if force else "stop")
        emptied = [] if taken.modified else _remove_tool_caches(project, stages)
    promoted = taken.promoted
    if taken.modified:
        hint = "`orch23 accept STAGE` or, of a failed stage, `orch23 release STAGE` keeps an edit; `--force` removes it"
        message = f"outputs were edited: {' '.join(taken.modified)}; nothing was removed"
        console.write_diagnostics((Diagnostic("E643", message, hint=hint),))
        return ExitCode.DECISION
    parts = [f"removed {pluralize(len(promoted.removed), 'file')}"]
    if promoted.written:
        parts.append(f"restored {pluralize(len(promoted.written), 'file')}")
    kept = (
        (promoted.edited, "changed meanwhile"),
        (taken.accepted, "the edit was accepted"),
        (taken.refused, "protected, and no stage declares it"),
    )
    parts += [f"removed the tool cache {name}" for name in emptied]
    parts += [f"kept {visible(' '.join(paths))}: {why}" for paths, why in kept if paths]
    console.write_out("; ".join(parts) + "\n")
    return ExitCode.OK


def _remove_tool_caches(project: Project, stages: Collection[str]) -> list[str]:
    """Remove the caches of tools that these stages fill, or all stages, and return their names."""
    every, place = project.pipeline.stages, project.store.tool_caches
    fillers = (one for one in every if isinstance(one, Stage) and one.network and _is_selected(one.name, stages))
    found = sorted({name for one in fillers for name in one.tool_caches if (place / name).is_dir()})
    for name in found:
        remove_path(place / name)
    return found


def release_outputs(console: Console, *, args: PipelineArguments) -> None:
    """Turn outputs of stages into source files."""
    project, stages = open_stages(console, args)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        lock, _ = project.memory.read()
        owners = lock.owner_records()
        failures = tuple(kept_failures(project.store, project.pipeline.file))
        found = {stage: release_files(project.store, lock, failures, stage) for stage in stages}
        unknown = [stage for stage, records in found.items() if not records]
        if unknown:
            listing = project.pipeline.command_line("status", "--all")
            hint = f"`{listing}` lists the stages; a stage has files after it was built"
            raise NotFoundError(*(Diagnostic("E823", f"`{one}` has no files to release", hint=hint) for one in unknown))
        # A snapshot does not record owners: with it, the next build would repeat its old output.
        remove_snapshots(str(project.settings.root), project.pipeline.file)
        left = lock.where(lambda name, _: not _is_selected(name, stages))
        left = replace(left, released={**lock.released, **ChainMap(*found.values())})
        memory = project.memory
        is_last = isinstance(memory, WholePriorState) and memory.is_last_written(project.store)
        written = memory.write(left, project.pipeline.name)
        # After a lock file of another branch, all results of the store count again, also those of ended stages.
        if is_last:
            project.store.lock_files.put(project.pipeline.file, str(written.sha256).encode(), b"1")
        project.store.save_index()
    for stage, records in found.items():
        paths = sorted({path for record in records.values() for path in record.outputs})
        console.write_out("".join(f"released {visible(path)}\n" for path in paths))
        gone = {p for name, one in owners.items() if _is_selected(name, (stage,)) for p in one.deleted}
        absent = sorted(path for path in gone if project.store.workspace.entry(path) is None)
        console.write_out("".join(f"left {visible(path)} deleted; the store has its bytes\n" for path in absent))
        if any(node.name == stage.partition("@")[0] for node in project.pipeline.stages):
            note = f"`{visible(stage)}` is still declared: remove it, or the next build owns these files again"
            console.write_err(f"note: {note}\n")


_DESCRIPTIONS = {
    "records": "the records of results",
    "cas": "the stored bytes",
    "rooms": "the sandbox directories",
    "trees": "the copies of large input folders",
    "tool-caches": "the caches of tools",
    "snapshots": "the snapshots of builds with nothing to do",
    "index.sqlite": "the index",
    "generation": "the generation of the index",
    "stat.json": "the file states of an earlier version",
    "size.json": "the size of the store",
    "promote.json": "an unfinished promotion",
}


def forget_results(root: Path) -> list[str]:
    """Delete everything in the store that can be made again, and return a line for each. Exchanges stay."""
    store = root / STORE_NAME
    found = [name for name in _DESCRIPTIONS if os.path.lexists(store / name)]
    # VERSION is not a result: it is written again, and not reported.
    for name in (*found, "VERSION"):
        if name == "rooms":
            # Processes of a killed build may still write there, and its directories may be read-only.
            kill_leftovers(store / name)
            remove_tree(store / name)
        else:
            remove_path(store / name)
    return [f"removed {_DESCRIPTIONS[name]}" for name in found]


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
    outputs are on disk or were released, and all records of lock files, in a form that makes no stage fresh. Adds a
    line for each lock file to `lines`.
    """
    store, kept = None, []
    with suppress(CorruptStateError):  # of another version of orch23: it cannot be read, and is deleted
        store = open_store(root)
    if store is not None:
        # An interrupted promotion decides which bytes on disk are outputs.
        store.promoter.recover()
        proven = (record for record in store.records.everything() if is_proven(record, store.records))
        found = (record if record.is_released else _on_disk(store, record) for record in proven)
        kept = [record for record in found if record is not None]
    read = _read_locks(root, locks, lines)
    if store is not None:
        # The bytes of accepted edits are kept with the exchanges, which are never deleted.
        for record in (*kept, *(one for _, _, lock in read for one in lock.owner_records().values())):
            for path in record.outputs.keys() & set(record.accepted):
                with suppress(MissingBytesError):
                    store.exchanges.put_original(store.sources.read(path, record.outputs[path]), None)
    yield
    # The store is new now: the records of owners are written again, and the lock files lose their results.
    store = open_store(root)
    for record in kept:
        store.records.put(record)
    for path, name, lock in read:
        # Ownership stays in the lock file, so that a clone knows it too (ADR 19).
        if lock.records:
            retained = {stage: _ownership_record(record) for stage, record in lock.owner_records().items()}
            write_lock(root, path, replace(lock, records={}, retained=retained), name)
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


def _ownership_record(record: Record) -> Record:
    """Return a record that keeps the owner of files, but no result: its key is not the key of any stage."""
    # These aspects find the record of a renamed stage or item; all others would make a stage fresh.
    # A kept failure is still one.
    names = ("kind", "outputs", "edits", "item", *(("action_format",) if record.failed else ()))
    # What a model was shown is in the key that is kept.
    identity = {one: value for one, value in record.manifest.items() if one in names or one.startswith("explored:")}
    key = record.key if record.failed else retained_key(record.key)
    return replace(record, key=key, manifest=identity, exchanges=(), failed=True)


def _on_disk(store: ProjectStore, record: Record) -> Record | None:
    """Return the record of the outputs that are unchanged on disk; None if none is, and no file was deleted."""
    outputs = {path: entry for path, entry in record.outputs.items() if store.workspace.has(path, entry)}
    return replace(_ownership_record(record), outputs=outputs) if outputs or record.deleted else None


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


def reset_results(console: Console, *, args: PipelineArguments, outputs: bool) -> None:
    """Delete all results; keep recorded responses."""
    root = project_root(console, args.arguments)
    lines: list[str] = []
    project = open_for_command(console, args, most_stages=0)[0] if outputs else None
    found = found_project(console, args.arguments)
    check_stage_count(found.stages, 0)
    locks = locks_to_reset(root, required_pipeline(found) if args.arguments else None)
    # `open_store` refuses a store of another version; the lock alone can be taken in any store.
    with hold_build_lock(root / STORE_NAME / "lock"):
        if project is not None:
            project.store.promoter.recover(project.refusal)
            lines += _remove_outputs(project)
        with retaining_ownership(root, locks, lines):
            lines += forget_results(root)
        lines += rename_damaged_journals(root)
    if lines and not outputs:
        command = " ".join(("orch23 reset", *args.arguments, "--outputs"))
        lines.append(f"left the outputs: `{command}` removes those that you did not edit")
    console.write_out("".join(f"{line}\n" for line in lines) or "there was nothing to delete\n")


def _remove_outputs(project: Project) -> list[str]:
    removed = remove_outputs(project, edited="keep")
    done = (
        ("removed {}", removed.promoted.removed),
        ("restored {}", removed.promoted.written),
        ("kept {}: it was edited", (*removed.modified, *removed.promoted.edited)),
        ("kept {}: the edit was accepted", removed.accepted),
        ("kept {}: protected, and no stage declares it", removed.refused),
    )
    return [line.format(path) for line, paths in done for path in paths]
