"""Read answers to a template, show what it changes, and write it: what `init` and `template update` share."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from orch23.cli.console import Console
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import render, visible
from orch23.resolve.schema import published_schema
from orch23.store.durable import write_atomic
from orch23.store.opening import open_store
from orch23.templates.changes import Change, File, Kind
from orch23.templates.codes import IN_THE_WAY, TO_DECIDE
from orch23.templates.project_files import apply, look
from orch23.templates.updating import Outlook, project_marks, templates_of

MARK = len("<<<<<<<")
SCHEMA = ".orch23/pipeline.schema.json"


def read_data(data: tuple[str, ...]) -> dict[str, str]:
    """Return the answers that `--data` gives.

    Raises:
        click.UsageError: one of them has no `=`.

    """
    found = {}
    for one in data:
        name, equals, value = one.partition("=")
        if not equals or not name:
            message = f"--data takes NAME=VALUE, not {one!r}"
            raise click.UsageError(message)
        found[name] = value
    return found


def lay(console: Console, outlook: Outlook, root: Path, *, dry_run: bool, first: bool) -> bool:
    """Show the changes and write them; the first time, nothing is written where files are in the way.

    Returns whether nothing was in the way.
    """
    marks = _marks(root) if first else ()
    changes = (*marks, *outlook.changes)
    _show(console, outlook, changes, root)
    if first and outlook.of(Kind.CONFLICT):
        return False
    if not dry_run:
        _write(root, changes)
    return True


def _write(root: Path, changes: Sequence[Change]) -> None:
    try:
        store = open_store(root)
        with store.build_lock():
            store.sweep()
            with store.noting({change.path.rpartition("/")[0] for change in changes}):
                apply(root, changes)
            text = json.dumps(published_schema(), indent=2, ensure_ascii=False) + "\n"
            write_atomic(root / SCHEMA, text.encode())
    except OSError as error:
        message = f"cannot write {error.filename}: {error.strerror}; the same command goes on where it stopped"
        raise click.UsageError(message) from error


def told_conflicts(console: Console, outlook: Outlook, root: Path) -> ExitCode:
    """Complain about the files that a person must decide about, each with its place, and return the exit code."""
    conflicts = outlook.of(Kind.CONFLICT)
    merged = [_disagreement(one, line) for one in conflicts for line in one.lines]
    kept = [one for one in conflicts if not one.lines]
    if outlook.former:
        hint = "take over by hand what is to be taken"
        merged += [
            Diagnostic(TO_DECIDE, f"{one.path} was left as it is ({one.note})", Location(one.path, 1, 1), hint)
            for one in kept
        ]
    elif kept:
        names = ", ".join(f"{one.path} ({one.note})" if one.note else one.path for one in kept)
        hint = "`--keep` leaves yours and writes the rest, `--overwrite` replaces yours"
        if outlook.source.name in templates_of(root):
            hint = f"the project has it already: `orch23 template update {outlook.source.name}`; or else {hint}"
        merged.append(
            Diagnostic(IN_THE_WAY, f"in the way of `{outlook.source.name}`: {names}; nothing was written", hint=hint)
        )
    console.tell(render(merged, _sources(conflicts), color=console.err_style.color))
    return ExitCode.DECISION


def _disagreement(one: Change, line: int) -> Diagnostic:
    hint = "keep what is right between the marks, and remove the marks"
    message = f"your edit and the template disagree: {one.path}:{line}"
    return Diagnostic(TO_DECIDE, message, Location(one.path, line, 1, MARK), hint)


def _sources(conflicts: Sequence[Change]) -> dict[str, str]:
    return {one.path: one.after.data.decode("utf-8", "replace") for one in conflicts if one.after is not None}


def _marks(root: Path) -> tuple[Change, ...]:
    marks = project_marks(root)
    there = look(root, marks)
    return tuple(Change(path=path, kind=Kind.CREATE, after=file) for path, file in marks.items() if there[path] is None)


def _show(console: Console, outlook: Outlook, changes: Sequence[Change], root: Path) -> None:
    former = f"{outlook.former} -> " if outlook.former not in ("", outlook.rendered.version) else ""
    where = "" if root == console.here.resolve() else f"  in {root}"
    lines = [f"{outlook.source.name} {former}{outlook.rendered.version}{where}"]
    lines += [_line(one) for one in changes if not (outlook.former and one.kind is Kind.SAME)]
    console.answer("".join(f"{visible(line)}\n" for line in lines))


def _line(one: Change) -> str:
    note = f"  ({one.note})" if one.note else ""
    places = "".join(f":{line}" for line in one.lines[:1]) + "".join(f",{line}" for line in one.lines[1:])
    return f" {one.kind:<9}  {one.path}{places}{note}"


def files_of(changes: Sequence[Change]) -> dict[str, tuple[bytes, bytes]]:
    """Return the bytes before and after, of the paths that change."""
    found = {}
    for one in changes:
        if one.changes:
            before = one.before.data if isinstance(one.before, File) else b""
            found[one.path] = (before, one.after.data if one.after is not None else b"")
    return found
