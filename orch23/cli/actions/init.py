"""Run `init`: create a project from a template."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from orch23.cli.actions.template import parse_data, report_conflicts, write_template
from orch23.cli.consent import Consent, grants_text, needed_grants
from orch23.cli.console import Console
from orch23.cli.discovery import find_project, is_project_root
from orch23.cli.opening import project_root
from orch23.cli.project_loading import ProjectSettings, open_project
from orch23.model.errors import ExitCode, Orch23Error
from orch23.providers.local_model import installed_weights, known_models, user_data_dir
from orch23.report.diagnostics import visible
from orch23.templates.changes import ExistingPolicy, TemplateChange
from orch23.templates.dry_run import AnswerOptions, dry_run_init
from orch23.templates.source import builtin_templates, find_source


def run(
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
    """Start from a template: a pipeline that runs."""
    existing = _existing(keep=keep, overwrite=overwrite)
    source = find_source(template or _chosen(console), console.here)
    answers = parse_data(data)
    asking = console.is_interactive and not defaults
    suggested = _suggested(console.environ, source.name) if source.bundle is not None else {}
    root = _root(console)
    answering = AnswerOptions(data=answers, suggested=suggested if asking else {}, ask=asking, defaults=defaults)
    outlook = dry_run_init(source, root, answering, ref=ref, existing=existing, environ=console.environ)
    laid = write_template(console, outlook, root, dry_run=dry_run, first=True)
    if not laid:
        return report_conflicts(console, outlook, root)
    if not dry_run:
        _allow(console, outlook.changes, root)
    if outlook.rendered.message:
        console.write_err(f"{visible(outlook.rendered.message)}\n")
    provider = suggested.get("provider")
    if provider is not None and outlook.rendered.answers.get("provider") != provider and "provider" not in answers:
        console.write_err(f"`--data provider={provider}` would ask {provider}, which is set up here\n")
    return ExitCode.OK


def _root(console: Console) -> Path:
    """Return where a template goes: the directory that says it is a project, at `here` or above; else `here` itself.

    A git repository above does not count: a directory of its own may be meant.
    """
    return project_root(console) if is_project_root(find_project(console.here).root) else console.here.resolve()


def _allow(console: Console, changes: Sequence[TemplateChange], root: Path) -> None:
    """Grant what the pipelines need that were just written, as far as it is about files that were written too."""
    files = {one.path: one.after.data for one in changes if one.after is not None}
    grants = []
    for path, data in files.items():
        if path.endswith((".yaml", ".yml")) and (b"command:" in data or b"base_url:" in data):
            try:
                project = open_project(ProjectSettings(root=root, pipeline_path=root / path, environ=console.environ))
                needed = needed_grants(project)
            except Orch23Error:  # it is not a pipeline, or not one yet: a build asks
                continue
            project.git.close()
            grants += [grant for grant in needed if files.keys() >= set(grant.files)]
    consent = Consent.of(root, console.environ)
    if grants and consent.grants.path is not None:
        consent.store_grants(grants)
        console.write_err(f"allowed for this project:\n{grants_text(grants)}")


def _existing(*, keep: bool, overwrite: bool) -> ExistingPolicy:
    if keep and overwrite:
        message = "--keep and --overwrite contradict each other"
        raise click.UsageError(message)
    return ExistingPolicy.KEEP if keep else ExistingPolicy.OVERWRITE if overwrite else ExistingPolicy.STOP


def _chosen(console: Console) -> str:
    """Return the template that the user picks from the list."""
    ours = builtin_templates()
    width = max(len(name) for name in ours)
    listed = "".join(f"  {name:<{width}}  {one.summary}\n" for name, one in ours.items())
    if not console.is_interactive:
        message = f"which template? There are:\n{listed.rstrip()}"
        raise click.UsageError(message)
    console.write_err(listed)
    chosen: str = click.prompt("Template", type=click.Choice(list(ours)), err=True)
    return chosen


def _suggested(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the provider that is set up here, if the template knows it: the default of a question, nothing more."""
    choices = builtin_templates()[name].questions.get("provider", {}).get("choices", ())
    here = {
        "anthropic": bool(environ.get("ANTHROPIC_API_KEY")),
        "openai": bool(environ.get("OPENAI_API_KEY")),
        "local": any(installed_weights(one.name, user_data_dir(environ)) for one in known_models()),
    }
    found = next((provider for provider, ready in here.items() if ready and provider in choices), None)
    return {} if found is None else {"provider": found}
