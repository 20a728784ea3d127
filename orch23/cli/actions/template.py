"""Run `template list`, `show`, `diff` and `update`; write templates into a project."""

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from orch23.cli.console import Console
from orch23.cli.discovery import find_project
from orch23.cli.opening import project_root
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import render_diagnostics, visible
from orch23.report.values import json_document
from orch23.resolve.schema import published_schema
from orch23.store.project_store import open_store
from orch23.store.safe_files import write_atomic
from orch23.templates.changes import ChangeKind, ExistingPolicy, TemplateChange, TemplateFile, apply_changes, read_paths
from orch23.templates.codes import FILES_EXIST, MERGE_CONFLICT
from orch23.templates.dry_run import (
    AnswerOptions,
    TemplateDryRun,
    dry_run_init,
    dry_run_update,
    no_template_error,
    project_marker_files,
    project_templates,
)
from orch23.templates.source import builtin_templates, find_source

CONFLICT_MARK_LENGTH = len("<<<<<<<")
SCHEMA_FILE = ".orch23/pipeline.schema.json"


def parse_data(data: tuple[str, ...]) -> dict[str, str]:
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


def write_template(console: Console, outlook: TemplateDryRun, root: Path, *, dry_run: bool, first: bool) -> bool:
    """Show the changes and write them; the first time, nothing is written where files are in the way.

    Returns whether nothing was in the way.
    """
    marks = _marks(root) if first else ()
    changes = (*marks, *outlook.changes)
    _show_changes(console, outlook, changes, root)
    if first and outlook.of(ChangeKind.CONFLICT):
        return False
    if not dry_run:
        _write(root, changes)
    return True


def _write(root: Path, changes: Sequence[TemplateChange]) -> None:
    try:
        store = open_store(root)
        with store.build_lock():
            store.sweep()
            with store.writing_into({change.path.rpartition("/")[0] for change in changes}):
                apply_changes(root, changes)
            text = json.dumps(published_schema(), indent=2, ensure_ascii=False) + "\n"
            write_atomic(root / SCHEMA_FILE, text.encode())
    except OSError as error:
        message = f"cannot write {error.filename}: {error.strerror}; the same command goes on where it stopped"
        raise click.UsageError(message) from error


def report_conflicts(console: Console, outlook: TemplateDryRun, root: Path) -> ExitCode:
    """Complain about the files that a person must decide about, each with its place, and return the exit code."""
    conflicts = outlook.of(ChangeKind.CONFLICT)
    merged = [_disagreement(one, line) for one in conflicts for line in one.lines]
    kept = [one for one in conflicts if not one.lines]
    if outlook.former:
        hint = "take over by hand what is to be taken"
        merged += [
            Diagnostic(MERGE_CONFLICT, f"{one.path} was left as it is ({one.note})", Location(one.path, 1, 1), hint)
            for one in kept
        ]
    elif kept:
        names = ", ".join(f"{one.path} ({one.note})" if one.note else one.path for one in kept)
        hint = "`--keep` leaves yours and writes the rest, `--overwrite` replaces yours"
        if outlook.source.name in project_templates(root):
            hint = f"the project has it already: `orch23 template update {outlook.source.name}`; or else {hint}"
        merged.append(
            Diagnostic(FILES_EXIST, f"in the way of `{outlook.source.name}`: {names}; nothing was written", hint=hint)
        )
    console.write_err(render_diagnostics(merged, _sources(conflicts), color=console.err_style.color))
    return ExitCode.DECISION


def _disagreement(one: TemplateChange, line: int) -> Diagnostic:
    hint = "keep what is right between the marks, and remove the marks"
    message = f"your edit and the template disagree: {one.path}:{line}"
    return Diagnostic(MERGE_CONFLICT, message, Location(one.path, line, 1, CONFLICT_MARK_LENGTH), hint)


def _sources(conflicts: Sequence[TemplateChange]) -> dict[str, str]:
    return {one.path: one.after.data.decode("utf-8", "replace") for one in conflicts if one.after is not None}


def _marks(root: Path) -> tuple[TemplateChange, ...]:
    marks = project_marker_files(root)
    there = read_paths(root, marks)
    return tuple(
        TemplateChange(path=path, kind=ChangeKind.CREATE, after=file)
        for path, file in marks.items()
        if there[path] is None
    )


def _show_changes(console: Console, outlook: TemplateDryRun, changes: Sequence[TemplateChange], root: Path) -> None:
    former = f"{outlook.former} -> " if outlook.former not in ("", outlook.rendered.version) else ""
    where = "" if root == console.here.resolve() else f"  in {root}"
    lines = [f"{outlook.source.name} {former}{outlook.rendered.version}{where}"]
    lines += [_line(one) for one in changes if not (outlook.former and one.kind is ChangeKind.SAME)]
    console.write_out("".join(f"{visible(line)}\n" for line in lines))


def _line(one: TemplateChange) -> str:
    note = f"  ({one.note})" if one.note else ""
    places = "".join(f":{line}" for line in one.lines[:1]) + "".join(f",{line}" for line in one.lines[1:])
    return f" {one.kind:<9}  {one.path}{places}{note}"


def changed_bytes(changes: Sequence[TemplateChange]) -> dict[str, tuple[bytes, bytes]]:
    """Return the bytes before and after, of the paths that change."""
    found = {}
    for one in changes:
        if one.changes:
            before = one.before.data if isinstance(one.before, TemplateFile) else b""
            found[one.path] = (before, one.after.data if one.after is not None else b"")
    return found


TEMPLATES_VERSION = 1
_EXPRESSIONS = ("[[", "[%", "{{", "{%")


def list_templates(console: Console, *, as_json: bool) -> int:
    """List the templates that come with orch23."""
    ours = builtin_templates()
    if as_json:
        rows: list[Json] = [
            {"name": one.name, "summary": one.summary, "version": one.version, "url": one.url} for one in ours.values()
        ]
        console.write_out(json_document({"orch23_templates": TEMPLATES_VERSION, "templates": rows}))
        return ExitCode.OK
    width = max(len(name) for name in ours)
    for one in ours.values():
        console.write_out(f"{one.name:<{width}}  {one.version:<4}  {one.summary}\n")
    return ExitCode.OK


def show(console: Console, *, name: str) -> int:
    """Show what a template asks, what it brings, and what comes next."""
    source = find_source(name, console.here)
    ours = builtin_templates().get(source.name) if source.bundle is not None else None
    if ours is not None:
        console.write_out(f"{ours.name} {ours.version}  {ours.summary}\n")
        _show_template(console, ours.questions, ours.files, f"next: {ours.next}")
        return ExitCode.OK
    answering = AnswerOptions(data={}, suggested={}, ask=False, defaults=True)
    seen = dry_run_init(
        source, console.here.resolve(), answering, ref=None, existing=ExistingPolicy.STOP, environ=console.environ
    ).rendered
    console.write_out(visible(f"{source.name} {seen.version}  {source.url}") + "\n")
    _show_template(console, seen.questions, tuple(sorted(seen.files)), seen.message)
    return ExitCode.OK


def complete_own(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the templates that the project has."""
    here = Path(str(context.find_root().params.get("directory") or "."))
    return [CompletionItem(name) for name in project_templates(find_project(here).root) if name.startswith(incomplete)]


def diff(console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, exit_code: bool) -> int:
    """Show what `template update` would change, as a unified diff."""
    root = project_root(console)
    changed = False
    for outlook in _outlooks(console, root, name, parse_data(data), ref):
        for path, (before, after) in changed_bytes(outlook.changes).items():
            changed = True
            console.write_out(_unified(path, before, after))
    return ExitCode.FAILED if changed and exit_code else ExitCode.OK


def update(console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, dry_run: bool) -> int:
    """Merge a newer version of a template; your edits stay."""
    root = project_root(console)
    code = ExitCode.OK
    for outlook in _outlooks(console, root, name, parse_data(data), ref):
        if not any(one.changes or one.kind is ChangeKind.CONFLICT for one in outlook.changes):
            console.write_err(f"{outlook.source.name} {outlook.rendered.version}: up to date\n")
            continue
        write_template(console, outlook, root, dry_run=dry_run, first=False)
        if outlook.of(ChangeKind.CONFLICT):
            code = report_conflicts(console, outlook, root)
    return code


def _outlooks(
    console: Console, root: Path, name: str | None, data: Mapping[str, str], ref: str | None
) -> list[TemplateDryRun]:
    names = (name,) if name is not None else project_templates(root)
    if not names:
        raise no_template_error(root)
    if len(names) > 1 and (data or ref is not None):
        message = f"--data and --ref are of one template: name it, {' or '.join(names)}"
        raise click.UsageError(message)
    return [dry_run_update(one, root, data, ref=ref, environ=console.environ) for one in names]


def _show_template(
    console: Console, questions: Mapping[str, Mapping[str, Any]], files: tuple[str, ...], message: str
) -> None:
    lines = ["questions:"] if questions else []
    for name, asked in questions.items():
        default = str(asked.get("default", "none"))
        default = "by the other answers" if any(mark in default for mark in _EXPRESSIONS) else default
        choices = asked.get("choices", "")
        shown = f" ({', '.join(choices) if isinstance(choices, list) else choices})" if choices else ""
        lines.append(f"  {name}: {asked.get('help', '')}{shown}  default: {default}")
    lines += ["files:", *(f"  {path}" for path in files)]
    lines += [message] if message else []
    console.write_out("".join(f"{visible(line)}\n" for line in lines))


def _unified(path: str, before: bytes, after: bytes) -> str:
    try:
        old, new = (text.decode("utf-8").splitlines(keepends=True) for text in (before, after))
    except UnicodeDecodeError:
        return f"{path}: no text, {len(before)} bytes -> {len(after)} bytes\n"
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(
        visible(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n") for line in lines
    )
