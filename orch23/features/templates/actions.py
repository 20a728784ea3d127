"""Run `init` and the commands of `template`: show templates, and write them into a project."""

import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import click
from click.shell_completion import CompletionItem

from orch23.cli.consent import Consent, grants_text, needed_grants
from orch23.cli.console import Console
from orch23.cli.discovery import find_project, is_project_root
from orch23.cli.doctor_finding import VENDOR_KEYS, provider_finding
from orch23.cli.opening import project_root
from orch23.cli.project_loading import ProjectSettings, open_project
from orch23.features.templates.changes import ChangeKind, TemplateChange, TemplateFile, apply_changes
from orch23.features.templates.dry_run import (
    TemplateDryRun,
    attribute_changes,
    dry_run_init,
    dry_run_update,
    marker_changes,
    no_template_error,
    project_templates,
)
from orch23.features.templates.loopback_servers import find_servers
from orch23.features.templates.rendering import RenderRequest, TemplateSource, builtin_templates, find_source
from orch23.language.schema import published_schema
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.errors import ExitCode, Orch23Error
from orch23.model.features import READY_MODELS, is_installed, load_feature
from orch23.model.step import Grant
from orch23.model.text import visible
from orch23.report.values import aligned, json_document
from orch23.store.project_store import open_store
from orch23.store.safe_files import replace_file

SCHEMA_FILE = ".orch23/pipeline.schema.json"
# The provider of a built-in template that stands for `openai` with a `base_url`.
SERVER = "server"


def parse_data(data: tuple[str, ...]) -> dict[str, str]:
    """Return the answers of `--data`: name -> value.

    Raises:
        click.UsageError: one has no `=`.
    """
    found = {}
    for one in data:
        name, equals, value = one.partition("=")
        if not equals or not name:
            message = f"--data takes NAME=VALUE, not {one!r}"
            raise click.UsageError(message)
        found[name] = value
    return found


def write_template(console: Console, planned: TemplateDryRun, root: Path, *, dry_run: bool, first: bool) -> bool:
    """Show the changes and write them; return whether that was possible.

    The `first` time, nothing is written if one of the files exists.
    """
    markers = (*(marker_changes(root) if first else ()), *attribute_changes(root, planned.changes))
    changes = (*markers, *planned.changes)
    _show_changes(console, planned, changes, root)
    # All or nothing: half of a template would not run.
    if first and planned.of(ChangeKind.CONFLICT):
        return False
    if not dry_run:
        _write(root, changes)
    return True


def _write(root: Path, changes: Sequence[TemplateChange]) -> None:
    try:
        store = open_store(root)
        # A build at the same time could run half of the template.
        with store.build_lock():
            store.sweep()
            with store.writing_into({change.path.rpartition("/")[0] for change in changes}):
                apply_changes(root, changes)
            # The first line of each template names this file to editors.
            text = json.dumps(published_schema(), indent=2, ensure_ascii=False) + "\n"
            replace_file(root, SCHEMA_FILE, text.encode(), 0o644)
    except OSError as error:
        message = f"cannot write {error.filename}: {error.strerror}; run the same command again to continue"
        raise click.UsageError(message) from error


def report_conflicts(console: Console, planned: TemplateDryRun, root: Path) -> ExitCode:
    """Report the files that the user must decide about, and return the exit code."""
    conflicts = planned.of(ChangeKind.CONFLICT)
    kept = [one for one in conflicts if not one.lines]
    problems = [_merge_conflict(one, line) for one in conflicts for line in one.lines]
    if planned.former:
        hint = "apply the changes that you want by hand"
        problems += [
            Diagnostic("E679", f"{one.path} was left as it is ({one.note})", Location(one.path, 1, 1), hint)
            for one in kept
        ]
    elif kept:
        problems.append(_files_exist(planned, kept, root))
    sources = {one.path: one.after.data.decode("utf-8", "replace") for one in conflicts if one.after is not None}
    console.write_diagnostics(problems, sources)
    return ExitCode.DECISION


def _files_exist(planned: TemplateDryRun, existing: Sequence[TemplateChange], root: Path) -> Diagnostic:
    template = planned.source.name
    names = ", ".join(f"{one.path} ({one.note})" if one.note else one.path for one in existing)
    hint = "`--keep` keeps your files and writes the others, `--overwrite` replaces them"
    if template in project_templates(root):
        hint = f"the project has it already: `orch23 template update {template}`; otherwise {hint}"
    return Diagnostic("E676", f"files of `{template}` exist already: {names}; nothing was written", hint=hint)


def _merge_conflict(one: TemplateChange, line: int) -> Diagnostic:
    hint = "keep the right lines between the conflict markers, and remove the markers"
    message = f"your edit and the template conflict: {one.path}:{line}"
    return Diagnostic("E679", message, Location(one.path, line, 1, len("<<<<<<<")), hint)


def _show_changes(console: Console, planned: TemplateDryRun, changes: Sequence[TemplateChange], root: Path) -> None:
    former = f"{planned.former} -> " if planned.former not in ("", planned.rendered.version) else ""
    where = "" if root == console.here.resolve() else f"  in {root}"
    lines = [f"{planned.source.name} {former}{planned.rendered.version}{where}"]
    lines += [_line(one) for one in changes if not (planned.former and one.kind is ChangeKind.SAME)]
    console.write_out("".join(f"{visible(line)}\n" for line in lines))


def _line(one: TemplateChange) -> str:
    note = f"  ({one.note})" if one.note else ""
    places = "".join(f":{line}" for line in one.lines[:1]) + "".join(f",{line}" for line in one.lines[1:])
    return f" {one.kind:<9}  {one.path}{places}{note}"


_MOST_COMPARED_LINES = 2_000
_EXPRESSIONS = ("[[", "[%", "{{", "{%")


def list_templates(console: Console, *, as_json: bool) -> None:
    """List the templates of orch23."""
    templates = builtin_templates()
    if as_json:
        rows: list[Json] = [
            {"name": one.name, "summary": one.summary, "version": one.version, "url": one.url}
            for one in templates.values()
        ]
        console.write_out(json_document({"orch23_templates": 1, "templates": rows}))
        return
    console.write_out(aligned([(one.name, f"{one.version:<4}", one.summary) for one in templates.values()]))


def show_template(console: Console, *, name: str) -> None:
    """Show questions, files and next steps."""
    source = find_source(name, console.here)
    builtin = builtin_templates().get(source.name) if source.bundle is not None else None
    if builtin is not None:
        console.write_out(f"{builtin.name} {builtin.version}  {builtin.summary}\n")
        _show_template(console, builtin.questions, builtin.files, f"next: {builtin.next}")
        return
    here, environ = console.here.resolve(), console.environ
    planned = dry_run_init(source, here, RenderRequest(), defaults=True, existing=ChangeKind.CONFLICT, environ=environ)
    seen = planned.rendered
    console.write_out(visible(f"{source.name} {seen.version}  {source.url}") + "\n")
    _show_template(console, seen.questions, tuple(sorted(seen.files)), seen.message)


def complete_own(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the templates of the project."""
    here = Path(str(context.find_root().params.get("directory") or "."))
    return [CompletionItem(name) for name in project_templates(find_project(here).root) if name.startswith(incomplete)]


def diff_templates(
    console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, exit_code: bool
) -> int:
    """Show what `template update` would change."""
    root = project_root(console)
    changed = False
    for planned in _dry_runs(console, root, name, parse_data(data), ref):
        for one in filter(lambda change: change.changes, planned.changes):
            changed = True
            before = one.before.data if isinstance(one.before, TemplateFile) else b""
            console.write_out(_unified(one.path, before, one.after.data if one.after is not None else b""))
    return ExitCode.FAILED if changed and exit_code else ExitCode.OK


def update_templates(
    console: Console, *, name: str | None, data: tuple[str, ...], ref: str | None, dry_run: bool
) -> int:
    """Merge a newer version of a template."""
    root = project_root(console)
    code = ExitCode.OK
    for planned in _dry_runs(console, root, name, parse_data(data), ref):
        if not any(one.changes or one.kind is ChangeKind.CONFLICT for one in planned.changes):
            console.write_err(f"{planned.source.name} {planned.rendered.version}: up to date\n")
            continue
        write_template(console, planned, root, dry_run=dry_run, first=False)
        if planned.of(ChangeKind.CONFLICT):
            code = report_conflicts(console, planned, root)
    return code


def _dry_runs(
    console: Console, root: Path, name: str | None, data: Mapping[str, str], ref: str | None
) -> list[TemplateDryRun]:
    names = (name,) if name is not None else project_templates(root)
    if not names:
        raise no_template_error(root)
    # Answers and versions belong to one template: others have other questions.
    if len(names) > 1 and (data or ref is not None):
        message = f"--data and --ref need the name of a template: {' or '.join(names)}"
        raise click.UsageError(message)
    return [dry_run_update(one, root, data, ref=ref, environ=console.environ) for one in names]


def _show_template(
    console: Console, questions: Mapping[str, Mapping[str, Any]], files: tuple[str, ...], message: str
) -> None:
    lines = ["questions:"] if questions else []
    for name, asked in questions.items():
        default = str(asked.get("default", "none"))
        default = "from other answers" if any(mark in default for mark in _EXPRESSIONS) else default
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
        return f"{path}: not text, {len(before)} bytes -> {len(after)} bytes\n"
    if min(len(old), len(new)) > _MOST_COMPARED_LINES:  # `difflib` may take quadratic time
        return f"{path}: {len(old)} lines -> {len(new)} lines\n"
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(
        visible(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n") for line in lines
    )


def create_project(
    console: Console,
    *,
    template: str | None,
    data: tuple[str, ...],
    defaults: bool,
    dry_run: bool,
    ref: str | None,
    keep: bool,
    overwrite: bool,
) -> int:
    """Create a project from a template."""
    existing = _existing(keep=keep, overwrite=overwrite)
    source = find_source(template or _choose(console), console.here)
    answers = parse_data(data)
    asking = console.is_interactive and not defaults
    # A dry run writes nothing: without a terminal, it needs no answers.
    preview = dry_run and not console.is_interactive
    # The catalogue is of the newest version; an earlier one may have other choices.
    choices = _provider_choices(source) if ref is None else ()
    found = _usable_providers(console.environ, choices)
    # A parent with only a git repository is not the root: the project may be meant to be a part of it.
    marked = is_project_root(find_project(console.here).root)
    root = project_root(console) if marked else console.here.resolve()
    usable = {name: what for name, what in found.items() if provider_finding(name, console.environ).ok}
    suggested = _suggested(usable, choices, answers) if asking else {}
    wanted = RenderRequest(ref=ref, data=answers, suggested=suggested, ask=asking)
    planned = dry_run_init(
        source, root, wanted, defaults=defaults or preview, existing=existing, environ=console.environ
    )
    if not write_template(console, planned, root, dry_run=dry_run, first=True):
        return report_conflicts(console, planned, root)
    if not dry_run:
        _allow(console, planned.changes, root)
    if planned.rendered.message:
        console.write_err(f"{visible(planned.rendered.message)}\n")
    provider = next(iter(usable or found), None)
    if not asking and provider is not None and "provider" not in answers:
        stated = [word for one in data for word in ("--data", one)]
        command = ["init", source.name, "--defaults", "--overwrite", *stated, "--data", f"provider={provider}"]
        _offer(console, provider, shlex.join(("orch23", *command)))
    return ExitCode.OK


def _offer(console: Console, provider: str, command: str) -> None:
    """Print how to use a provider whose key or weights were found, with the result of `doctor`."""
    finding = provider_finding(provider, console.environ)
    if finding.ok:
        console.write_err(f"{provider} is available here; to use it: `{command}`\n")
    else:
        console.write_err(f"{finding.name}: {finding.value} (`{finding.hint}`); then use it with `{command}`\n")


def _allow(console: Console, changes: Sequence[TemplateChange], root: Path) -> None:
    """Store the grants that the new pipelines need, as far as they are about files of the template."""
    files = {one.path: one.after.data for one in changes if one.after is not None}
    grants = []
    for path, data in files.items():
        if path.endswith((".yaml", ".yml")) and (b"command:" in data or b"base_url:" in data):
            # The user chose the template, but has not seen other files that its pipelines would run.
            needed = _needed_grants(ProjectSettings(root=root, pipeline_path=root / path, environ=console.environ))
            grants += [grant for grant in needed if files.keys() >= set(grant.files)]
    consent = Consent.of(root, console.environ)
    if grants and consent.grants.path is not None:
        consent.store_grants(grants)
        console.write_err(f"allowed for this project:\n{grants_text(grants)}")


def _needed_grants(settings: ProjectSettings) -> Sequence[Grant]:
    try:
        project = open_project(settings)
        needed = needed_grants(project)
    except Orch23Error:  # not a valid pipeline yet: a build asks for consent
        return ()
    project.git.close()
    return needed


def _existing(*, keep: bool, overwrite: bool) -> ChangeKind:
    if keep and overwrite:
        message = "--keep and --overwrite contradict each other"
        raise click.UsageError(message)
    if keep:
        return ChangeKind.KEEP
    return ChangeKind.OVERWRITE if overwrite else ChangeKind.CONFLICT


def _choose(console: Console) -> str:
    templates = builtin_templates()
    listed = indent(aligned([(name, one.summary) for name, one in templates.items()]), "  ")
    if not console.is_interactive:
        message = f"no template is named. Choose one of:\n{listed.rstrip()}"
        raise click.UsageError(message)
    console.write_err(listed)
    # Not the names in the question: they are in the list, and a narrow terminal breaks them.
    choices = click.Choice(list(templates))
    chosen: str = click.prompt("Template", type=choices, show_choices=False, err=True)
    return chosen


def _provider_choices(source: TemplateSource) -> Sequence[str]:
    """Return the providers that a built-in template can have; none for other templates, whose questions are unknown."""
    if source.bundle is None:
        return ()
    choices: Sequence[str] = builtin_templates()[source.name].questions.get("provider", {}).get("choices", ())
    return choices


def _usable_providers(environ: Mapping[str, str], choices: Sequence[str]) -> dict[str, str]:
    """Return the providers that can be called on this machine, each with what was found for it."""
    found = {provider: key for provider, key in VENDOR_KEYS.items() if environ.get(key)}
    for provider, place in READY_MODELS.items():
        if is_installed(place) and (weights := load_feature(place)(environ)):
            found[provider] = ", ".join(weights)
    return {provider: what for provider, what in found.items() if provider in choices}


def _suggested(found: Mapping[str, str], choices: Sequence[str], answers: Mapping[str, str]) -> dict[str, Any]:
    """Return defaults of the questions, and what templates use to mark choices: `found`, and `served` models by URL."""
    # Ports are tried only on a terminal, where the user is asked: elsewhere a command always writes the same files.
    is_possible = SERVER in choices and answers.get("provider", SERVER) == SERVER
    servers = find_servers() if is_possible else ()
    if servers:
        where = ", ".join(f"{one.name} at {one.base_url}" for one in servers)
        keys = {provider: what for provider, what in found.items() if provider != "local"}
        found = {**keys, SERVER: where, **found}
    suggested: dict[str, Any] = {"found": dict(found)}
    suggested |= {"provider": next(iter(found))} if found else {}
    suggested |= {"base_url": servers[0].base_url} if servers else {}
    return suggested | {"served": {one.base_url: one.models[0] for one in servers if one.models}}
