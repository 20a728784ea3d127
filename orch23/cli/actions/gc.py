"""The action of `gc`."""

import time

from orch23.cli.collecting import collect, foresee
from orch23.cli.console import Console
from orch23.cli.keeping import read_keep
from orch23.cli.opening import project_root
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ExitCode
from orch23.model.plain import Json
from orch23.report.diagnostics import render
from orch23.report.document import document
from orch23.report.figures import count, size
from orch23.store.collection import Chosen, Needs, Wish
from orch23.store.opening import open_store

GC_VERSION = 1


def run(console: Console, *, dry_run: bool, keep: tuple[str, ...], forget_paid_answers: bool, as_json: bool) -> int:
    """Remove from the store what no pipeline needs now."""
    wish = read_keep(keep, time.time_ns(), answers=forget_paid_answers)
    store = open_store(project_root(console), console.progress)
    if dry_run:
        needs, chosen = foresee(store, console.environ, wish)
    else:
        needs, chosen = collect(store, console.environ, wish, int(time.time()))
    for note in needs.notes:
        told = Diagnostic("W671", note, severity=Severity.WARNING, hint="`orch23 validate` says what is wrong with it")
        console.tell(render((told,), {}, color=console.err_style.color))
    console.answer(_document(chosen, needs, wish, dry_run=dry_run) if as_json else _told(chosen, wish, dry_run=dry_run))
    return ExitCode.OK


def _told(chosen: Chosen, wish: Wish, *, dry_run: bool) -> str:
    parts = [
        count(number, noun)
        for number, noun in (
            (len(chosen.records), "result"),
            (len(chosen.blobs), "stored file"),
            (len(chosen.exchanges), "recorded answer"),
        )
        if number
    ]
    verb = "would remove" if dry_run else "removed"
    told = f"{verb} {', '.join(parts)}: {size(chosen.freed_bytes)}" if parts else "nothing to remove"
    left = f"{told}; the store holds {size(chosen.left_bytes)}{' then' if dry_run and parts else ''}"
    if wish.most_bytes is not None and chosen.left_bytes > wish.most_bytes:
        return f"{left}, over {size(wish.most_bytes)}, since that much is needed\n"
    return f"{left}\n"


def _document(chosen: Chosen, needs: Needs, wish: Wish, *, dry_run: bool) -> str:
    body: dict[str, Json] = {
        "orch23_gc": GC_VERSION,
        "dry_run": dry_run,
        "keep_bytes": wish.most_bytes,
        "size_bytes": chosen.size_bytes,
        "freed_bytes": chosen.freed_bytes,
        "left_bytes": chosen.left_bytes,
        "results": len(chosen.records),
        "stored_files": len(chosen.blobs),
        "recorded_answers": len(chosen.exchanges),
        "not_planned": list(needs.notes),
    }
    return document(body)
