"""The actions of `template list`, `show`, `diff` and `update`."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from orch23.cli.console import Console
from orch23.cli.laying import files_of, lay, read_data, told_conflicts
from orch23.cli.opening import project_root
from orch23.cli.project import find_project
from orch23.model.errors import ExitCode
from orch23.model.plain import Json
from orch23.report.diagnostics import visible
from orch23.report.document import document
from orch23.templates.builtin import builtins
from orch23.templates.changes import Existing, Kind
from orch23.templates.source import find_source
from orch23.templates.updating import Answering, Outlook, init_outlook, no_template, templates_of, update_outlook

TEMPLATES_VERSION = 1
_EXPRESSIONS = ("[[", "[%", "{{", "{%")


def list_templates(console: Console, *, as_json: bool) -> int:
    """List the templates that come with orch23."""
    ours = builtins()
    if as_json:
        rows: list[Json] = [
            {"name": one.name, "summary": one.summary, "version": one.version, "url": one.url} for one in ours.values()
        ]
        console.answer(document({"orch23_templates": TEMPLATES_VERSION, "templates": rows}))
        return ExitCode.OK
    width = max(len(name) for name in ours)
    for one in ours.values():
        console.answer(f"{one.name:<{width}}  {one.version:<4}  {one.summary}\n")
    return ExitCode.OK


def show(console: Console, *, name: str) -> int:
    """Show what a template asks, what it brings, and what comes next."""
    source = find_source(name, console.here)
    ours = builtins().get(source.name) if source.bundle is not None else None
    if ours is not None:
        console.answer(f"{ours.name} {ours.version}  {ours.summary}\n")
        _show(console, ours.questions, ours.files, f"next: {ours.next}")
        return ExitCode.OK
    answering = Answering(data={}, suggested={}, ask=False, defaults=True)
    seen = init_outlook(
        source, console.here.resolve(), answering, ref=None, existing=Existing.STOP, environ=console.environ
    ).rendered
    console.answer(visible(f"{source.name} {seen.version}  {source.url}") + "\n")
    _show(console, seen.questions, tuple(sorted(seen.files)), seen.message)
    return ExitCode.OK


def complete_own(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the templates that the project has."""
    here = Path(str(context.find_root().params.get("directory") or "."))
    return [CompletionItem(name) for name in templates_of(find_project(here).root) if name.startswith(incomplete)]


def diff(console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, exit_code: bool) -> int:
    """Show what `template update` would change, as a unified diff."""
    root = project_root(console)
    changed = False
    for outlook in _outlooks(console, root, name, read_data(data), ref):
        for path, (before, after) in files_of(outlook.changes).items():
            changed = True
            console.answer(_unified(path, before, after))
    return ExitCode.FAILED if changed and exit_code else ExitCode.OK


def update(console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, dry_run: bool) -> int:
    """Merge a newer version of a template; your edits stay."""
    root = project_root(console)
    code = ExitCode.OK
    for outlook in _outlooks(console, root, name, read_data(data), ref):
        if not any(one.changes or one.kind is Kind.CONFLICT for one in outlook.changes):
            console.tell(f"{outlook.source.name} {outlook.rendered.version}: up to date\n")
            continue
        lay(console, outlook, root, dry_run=dry_run, first=False)
        if outlook.of(Kind.CONFLICT):
            code = told_conflicts(console, outlook, root)
    return code


def _outlooks(
    console: Console, root: Path, name: str | None, data: Mapping[str, str], ref: str | None
) -> list[Outlook]:
    names = (name,) if name is not None else templates_of(root)
    if not names:
        raise no_template(root)
    if len(names) > 1 and (data or ref is not None):
        message = f"--data and --ref are of one template: name it, {' or '.join(names)}"
        raise click.UsageError(message)
    return [update_outlook(one, root, data, ref=ref, environ=console.environ) for one in names]


def _show(console: Console, questions: Mapping[str, Mapping[str, Any]], files: tuple[str, ...], message: str) -> None:
    lines = ["questions:"] if questions else []
    for name, asked in questions.items():
        default = str(asked.get("default", "none"))
        default = "by the other answers" if any(mark in default for mark in _EXPRESSIONS) else default
        choices = asked.get("choices", "")
        shown = f" ({', '.join(choices) if isinstance(choices, list) else choices})" if choices else ""
        lines.append(f"  {name}: {asked.get('help', '')}{shown}  default: {default}")
    lines += ["files:", *(f"  {path}" for path in files)]
    lines += [message] if message else []
    console.answer("".join(f"{visible(line)}\n" for line in lines))


def _unified(path: str, before: bytes, after: bytes) -> str:
    try:
        old, new = (text.decode("utf-8").splitlines(keepends=True) for text in (before, after))
    except UnicodeDecodeError:
        return f"{path}: no text, {len(before)} bytes -> {len(after)} bytes\n"
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(
        visible(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n") for line in lines
    )
