"""Run `gc`: remove what no pipeline needs from the store."""

import time
from collections.abc import Mapping

from orch23.cli.console import Console
from orch23.cli.opening import project_root
from orch23.cli.retention import parse_keep, project_needs
from orch23.cli.store_size import record_size
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import render_diagnostics
from orch23.report.values import format_size, json_document, pluralize
from orch23.store.garbage_collection import GcLimits, GcRoots, GcSelection, collector_of
from orch23.store.project_store import ProjectStore, open_store


def preview_collection(store: ProjectStore, environ: Mapping[str, str], wish: GcLimits) -> tuple[GcRoots, GcSelection]:
    """Return what is needed and what would go. Takes no lock, writes nothing.

    Raises:
        CorruptStateError: a lock file or a journal is damaged, so what is needed is not known.

    """
    needs = project_needs(store.root, store.logs, environ)
    return needs, collector_of(store).select(needs, wish)


def collect_garbage(
    store: ProjectStore, environ: Mapping[str, str], wish: GcLimits, now_s: int
) -> tuple[GcRoots, GcSelection]:
    """Drop what is not needed, as far as it is wished, and return what `foresee` does.

    Raises:
        CorruptStateError: as for `foresee`. Nothing was dropped.
        BusyError: a build holds the lock.

    """
    if not store.folder.is_dir():
        return GcRoots(), GcSelection()
    with store.build_lock():
        store.sweep()
        store.promoter.recover()
        needs, chosen = preview_collection(store, environ, wish)
        collector_of(store).delete(chosen)
        record_size(store.folder, now_s)
    return needs, chosen


GC_VERSION = 1


def run(console: Console, *, dry_run: bool, keep: tuple[str, ...], forget_paid_answers: bool, as_json: bool) -> int:
    """Remove from the store what no pipeline needs now."""
    wish = parse_keep(keep, time.time_ns(), answers=forget_paid_answers)
    store = open_store(project_root(console), console.progress)
    if dry_run:
        needs, chosen = preview_collection(store, console.environ, wish)
    else:
        needs, chosen = collect_garbage(store, console.environ, wish, int(time.time()))
    for note in needs.notes:
        told = Diagnostic("W671", note, severity=Severity.WARNING, hint="`orch23 validate` says what is wrong with it")
        console.write_err(render_diagnostics((told,), {}, color=console.err_style.color))
    console.write_out(
        _document(chosen, needs, wish, dry_run=dry_run) if as_json else _told(chosen, wish, dry_run=dry_run)
    )
    return ExitCode.OK


def _told(chosen: GcSelection, wish: GcLimits, *, dry_run: bool) -> str:
    parts = [
        pluralize(number, noun)
        for number, noun in (
            (len(chosen.records), "result"),
            (len(chosen.blobs), "stored file"),
            (len(chosen.exchanges), "recorded answer"),
        )
        if number
    ]
    verb = "would remove" if dry_run else "removed"
    told = f"{verb} {', '.join(parts)}: {format_size(chosen.freed_bytes)}" if parts else "nothing to remove"
    left = f"{told}; the store holds {format_size(chosen.remaining_bytes)}{' then' if dry_run and parts else ''}"
    if wish.max_bytes is not None and chosen.remaining_bytes > wish.max_bytes:
        return f"{left}, over {format_size(wish.max_bytes)}, since that much is needed\n"
    return f"{left}\n"


def _document(chosen: GcSelection, needs: GcRoots, wish: GcLimits, *, dry_run: bool) -> str:
    body: dict[str, Json] = {
        "orch23_gc": GC_VERSION,
        "dry_run": dry_run,
        "keep_bytes": wish.max_bytes,
        "size_bytes": chosen.size_bytes,
        "freed_bytes": chosen.freed_bytes,
        "left_bytes": chosen.remaining_bytes,
        "results": len(chosen.records),
        "stored_files": len(chosen.blobs),
        "recorded_answers": len(chosen.exchanges),
        "not_planned": list(needs.notes),
    }
    return json_document(body)
