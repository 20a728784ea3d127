"""Run `gc` and `cache`: remove, count or verify what the store holds, and what runs did with a shared cache."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from orch23.cli.console import Console
from orch23.cli.opening import project_root, select_run
from orch23.cli.project_loading import Project
from orch23.cli.store_size import record_size
from orch23.decide.dry_run import Preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.execute.git_revision import lock_at, open_revision
from orch23.features.upkeep.garbage_collection import (
    GarbageCollector,
    GcLimits,
    GcRoots,
    GcSelection,
    StoredKind,
    StoreVerification,
    count_stored,
    unneeded_runs,
    verify_store,
)
from orch23.features.upkeep.retention import parse_keep, project_needs, size_limit
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23.model.errors import ConfigurationError, ExitCode, NotFoundError, UsageError
from orch23.model.event import RunStarted, SharedCacheUsed
from orch23.model.parsing import from_struct
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import family_of
from orch23.model.plan import Fresh
from orch23.model.text import parse_amount, visible
from orch23.report.shared_cache import shared_cache_clauses
from orch23.report.values import aligned, format_size, json_document, pluralize, started_text
from orch23.store.project_store import ProjectStore, open_store
from orch23.store.run_logs import journal_paths, past_events, run_ids, run_pipeline


class SharedCacheRun(Struct, frozen=True):
    """What one run did with a shared cache. `started` is the time of its first event."""

    run_id: str
    pipeline: str
    started: str
    used: SharedCacheUsed


def shared_cache_run(path: Path) -> SharedCacheRun | None:
    """Return what the run of a journal did with a shared cache; None if it used none, or if that line is damaged."""
    found = [*past_events(path, RunStarted, SharedCacheUsed)]
    uses = (data for _, data in found if isinstance(data, SharedCacheUsed))
    return next((SharedCacheRun(path.stem, run_pipeline(found[0][0]), found[0][0].ts, used) for used in uses), None)


def shared_cache_rows(runs: Sequence[SharedCacheRun]) -> str:
    """Return a line for each run, and one with their total if there are several."""
    rows = [(visible(one.run_id), started_text(one.started), visible(one.pipeline), _row(one.used)) for one in runs]
    if len(runs) > 1:
        rows.append((f"total of {len(runs):,} runs", "", "", _row(total_use(one.used for one in runs))))
    return aligned(rows)


def _row(used: SharedCacheUsed) -> str:
    return ", ".join(shared_cache_clauses(used))


def total_use(uses: Iterable[SharedCacheUsed]) -> SharedCacheUsed:
    """Return the sums of what several runs did."""
    every = [asdict(one) for one in uses]
    amounts = (parse_amount(one.pop("saved")) or Decimal(0) for one in every)
    saved = f"{sum(amounts, Decimal(0)):f}"
    total = convert({name: sum(one[name] for one in every) for name in every[0]} if every else {}, SharedCacheUsed)
    # Sums of binary fractions have more digits than their terms.
    return replace(total, waited_s=round(total.waited_s, 3), saved_s=round(total.saved_s, 3), saved=saved)


def shared_cache_json(runs: Sequence[SharedCacheRun]) -> dict[str, Json]:
    """Return the counts of each run, and their total, as plain values."""
    rows: list[Json] = [
        {"run": one.run_id, "pipeline": one.pipeline, "started": one.started, **asdict(one.used)} for one in runs
    ]
    return {"runs": rows, "total": asdict(total_use(one.used for one in runs))}


def remove_unneeded(
    console: Console,
    *,
    dry_run: bool,
    keep: tuple[str, ...],
    forget_paid_answers: bool,
    transcripts: bool,
    as_json: bool,
) -> None:
    """Remove unneeded data from the store."""
    limits = replace(parse_keep(keep, time.time_ns(), answers=forget_paid_answers), transcripts=transcripts)
    store = open_store(project_root(console), console.progress)

    def show(selected: GcSelection) -> None:
        console.write_out("" if as_json else _to_remove(selected, store.root, dry_run=dry_run))

    collect = _select if dry_run else collect_garbage
    roots, selected = collect(store, console.environ, limits, show)
    hint = "`orch23 validate` reports its errors"
    console.write_diagnostics([Diagnostic("W671", note, hint=hint, severity=Severity.WARNING) for note in roots.notes])
    if not as_json:
        console.write_out(_text(selected, limits, dry_run=dry_run))
        return
    body: dict[str, Json] = {
        "orch23_gc": 1,
        "dry_run": dry_run,
        "keep_bytes": limits.max_bytes,
        "size_bytes": selected.size_bytes,
        "freed_bytes": selected.freed_bytes,
        "left_bytes": selected.remaining_bytes,
        "results": len(selected.records),
        "stored_files": len(selected.blobs),
        "recorded_answers": len(selected.exchanges),
        "copied_folders": len(selected.folders),
        "transcripts": [file.path.relative_to(store.root).as_posix() for file in selected.transcripts],
        "runs": [run.run_id for run in selected.runs],
        "freed_run_bytes": sum(run.size_bytes for run in selected.runs),
        "not_planned": list(roots.notes),
    }
    console.write_out(json_document(body))


def _to_remove(selected: GcSelection, root: Path, *, dry_run: bool) -> str:
    """Return a line for each transcript and each run that is removed: what is not only a copy of other data."""
    lines = [str(file.path.relative_to(root)) for file in selected.transcripts]
    lines += [f"{LOGS_FOLDER}/{run.run_id}: a run of {run.pipeline or 'no pipeline'}" for run in selected.runs]
    verb = "would remove" if dry_run else "removing"
    return "".join(f"{verb} {visible(line)}\n" for line in lines)


def _select(
    store: ProjectStore, environ: Mapping[str, str], limits: GcLimits, show: Callable[[GcSelection], None]
) -> tuple[GcRoots, GcSelection]:
    """Show and return what can be removed, with what is needed. Takes no lock, writes nothing."""
    replay = _replay_needs if limits.transcripts else None
    roots = project_needs(store.root, store.logs, environ, replay)
    selected = GarbageCollector(store).select(roots, limits)
    selected = replace(selected, runs=unneeded_runs(store.logs, roots.runs, limits))
    show(selected)
    return roots, selected


def _replay_needs(project: Project, opened: OpenPipeline, seen: Preview) -> GcRoots:
    """Return the responses to the first requests of all stages, and the stages of which a replay may need others."""
    from orch23.cli.actions.plan import first_call  # noqa: PLC0415 - only with --transcripts

    responses: set[str] = set()
    stale = set(seen.skipped)
    for name, decided in seen.decided_stages.items():
        call = first_call(project, seen, decided)
        found = call.found if call is not None else ()
        responses |= {one.fingerprint for one in found}
        # Requests of later attempts depend on failures, which only a run shows.
        record = decided.decision.record if isinstance(decided.decision, Fresh) else None
        if record is None or not found or record.exchanges != (found[-1].fingerprint,):
            stale.add(name)
    # The edits since HEAD may be taken back.
    with suppress(NotFoundError, ConfigurationError), open_revision(project.store.root, "HEAD") as head:
        path = opened.lock_path.relative_to(project.store.root).as_posix()
        before, now = lock_at(head, path).records, opened.lock.records
        stale |= {name for name, record in before.items() if now.get(name) != record}
    return GcRoots(
        responses=frozenset(responses),
        stale=frozenset(map(family_of, stale)),
        transcripts=frozenset(project.pipeline.transcript_folders),
    )


def collect_garbage(
    store: ProjectStore, environ: Mapping[str, str], limits: GcLimits, show: Callable[[GcSelection], None]
) -> tuple[GcRoots, GcSelection]:
    """Show and remove what is not needed, and return the same as `_select`.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so it is not known what is needed; nothing was removed.
        BusyError: a build holds the lock.
    """
    if not store.folder.is_dir():
        return GcRoots(), GcSelection()
    with store.build_lock():
        store.sweep()
        # An interrupted promotion needs stored bytes, so it is finished before any are removed.
        store.promoter.recover()
        roots, selected = _select(store, environ, limits, show)
        GarbageCollector(store).delete(selected)
        record_size(store.folder, int(time.time()))
    return roots, selected


def _text(selected: GcSelection, limits: GcLimits, *, dry_run: bool) -> str:
    counts = {
        "result": len(selected.records),
        "stored file": len(selected.blobs),
        "recorded response": len(selected.exchanges),
        "folder": len(selected.folders),
        "approval": len(selected.decisions),
        "run": len(selected.runs),
    }
    freed_bytes = selected.freed_bytes + sum(run.size_bytes for run in selected.runs)
    parts = [pluralize(number, noun) for noun, number in counts.items() if number]
    verb = "would remove" if dry_run else "removed"
    removed = f"{verb} {', '.join(parts)}: {format_size(freed_bytes)}" if parts else "nothing to remove"
    left = f"{removed}; the store holds {format_size(selected.remaining_bytes)}{' then' if dry_run and parts else ''}"
    if limits.max_bytes is not None and selected.remaining_bytes > limits.max_bytes:
        return f"{left}, over {format_size(limits.max_bytes)}: all of it is needed\n"
    return f"{left}\n"


_NAMES = {
    "stored_files": "stored files",
    "results": "results",
    "recorded_answers": "recorded responses",
    "bytes_of_persons": "user edits and originals",
    "other_files": "other files",
}


def show_stats(console: Console, *, run: str | None, every: bool, as_json: bool) -> None:
    """Show what the store holds, by kind, and what the newest run did with a shared cache; or that of other runs."""
    root = project_root(console)
    if run is not None and every:
        hint = "name a run, or give `--all`"
        raise UsageError(Diagnostic("E641", "`--all` shows all runs, and one is named", hint=hint))
    is_whole = run is None and not every
    used = _shared_cache_runs(root / LOGS_FOLDER, run, every=every)
    body: dict[str, Json] = {"orch23_cache_stats": 1}
    if is_whole:
        found, limit = count_stored(open_store(root)), size_limit(console.environ)
        kinds: dict[str, Json] = {one.kind: {"number": one.number, "size_bytes": one.size_bytes} for one in found}
        body |= {"size_bytes": sum(one.size_bytes for one in found), "cap_bytes": limit, "kinds": kinds}
        if not as_json:
            console.write_out(_stored_text(found, limit))
    if as_json:
        console.write_out(json_document({**body, "shared_cache": shared_cache_json(used)}))
    elif used:
        console.write_out(f"{'shared cache: ' if is_whole else ''}{shared_cache_rows(used)}")
    elif not is_whole:
        console.write_out("no run used a shared cache\n" if every else "this run used no shared cache\n")


def _shared_cache_runs(logs: Path, run: str | None, *, every: bool) -> list[SharedCacheRun]:
    """Return what all runs did with a shared cache, or a run, or the newest one; those that used none are left out."""
    if every:
        paths = journal_paths(logs)
    else:
        known = run_ids(logs)
        paths = [logs / f"{select_run(known, run)}.jsonl"] if run is not None or known else []
    return [*filter(None, map(shared_cache_run, paths))]


def _stored_text(found: Sequence[StoredKind], limit: int | None) -> str:
    rows = [(f"{one.number:,}", _NAMES[one.kind], f"{format_size(one.size_bytes):>9}") for one in found]
    note = "" if limit is None else f"; `orch23 gc` keeps {format_size(limit)}"
    total = format_size(sum(one.size_bytes for one in found))
    return aligned([*rows, ("", "total", f"{total:>9}{note}")], right={0})


def verify_contents(console: Console, *, exit_code: bool, as_json: bool) -> int:
    """Verify the store and remove damaged data."""
    store = open_store(project_root(console), console.progress)
    found = StoreVerification(results=0, stored_files=0, recorded_answers=0, damaged=())
    if store.folder.is_dir():
        # Under the build lock: no build adds files meanwhile.
        with store.build_lock():
            store.sweep()
            found = verify_store(store)
    if as_json:
        console.write_out(json_document({"orch23_cache_verify": 1, **from_struct(found)}))
    else:
        console.write_out("".join(f"damaged: {visible(line)}\n" for line in found.damaged))
        checked = (
            f"{pluralize(found.stored_files, 'stored file')}, {pluralize(found.results, 'result')}, "
            f"{pluralize(found.recorded_answers, 'recorded response')}"
        )
        console.write_out(f"{checked}: {len(found.damaged) or 'nothing'} damaged\n")
    return ExitCode.FAILED if exit_code and found.damaged else ExitCode.OK
