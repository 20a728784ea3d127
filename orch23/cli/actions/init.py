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
from orch23.model.step import Grant
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
    """Create a project from a template."""
    existing = _existing(keep=keep, overwrite=overwrite)
    source = find_source(template or _choose(console), console.here)
    answers = parse_data(data)
    asking = console.is_interactive and not defaults
    suggested = _suggested(console.environ, source.name) if source.bundle is not None else {}
    root = _root(console)
    answering = AnswerOptions(data=answers, suggested=suggested if asking else {}, ask=asking, defaults=defaults)
    planned = dry_run_init(source, root, answering, ref=ref, existing=existing, environ=console.environ)
    if not write_template(console, planned, root, dry_run=dry_run, first=True):
        return report_conflicts(console, planned, root)
    if not dry_run:
        _allow(console, planned.changes, root)
    if planned.rendered.message:
        console.write_err(f"{visible(planned.rendered.message)}\n")
    provider = suggested.get("provider")
    if provider is not None and planned.rendered.answers.get("provider") != provider and "provider" not in answers:
        console.write_err(f"{provider} is available here: `--data provider={provider}` uses it\n")
    return ExitCode.OK


def _root(console: Console) -> Path:
    """Return the directory for a template: the nearest marked project root, else the working directory.

    A parent with only a git repository does not count: the project may be meant to be a part of it.
    """
    return project_root(console) if is_project_root(find_project(console.here).root) else console.here.resolve()


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


def _existing(*, keep: bool, overwrite: bool) -> ExistingPolicy:
    if keep and overwrite:
        message = "--keep and --overwrite contradict each other"
        raise click.UsageError(message)
    if keep:
        return ExistingPolicy.KEEP
    return ExistingPolicy.OVERWRITE if overwrite else ExistingPolicy.STOP


def _choose(console: Console) -> str:
    """Ask the user to choose a template."""
    templates = builtin_templates()
    width = max(len(name) for name in templates)
    listed = "".join(f"  {name:<{width}}  {one.summary}\n" for name, one in templates.items())
    if not console.is_interactive:
        message = f"no template is named. Choose one of:\n{listed.rstrip()}"
        raise click.UsageError(message)
    console.write_err(listed)
    chosen: str = click.prompt("Template", type=click.Choice(list(templates)), err=True)
    return chosen


def _suggested(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the first available provider that the template knows, as the default of its question."""
    choices = builtin_templates()[name].questions.get("provider", {}).get("choices", ())
    # Only a default: the user may choose another provider.
    available = {
        "anthropic": bool(environ.get("ANTHROPIC_API_KEY")),
        "openai": bool(environ.get("OPENAI_API_KEY")),
        "local": any(installed_weights(one.name, user_data_dir(environ)) for one in known_models()),
    }
    found = next((provider for provider, ready in available.items() if ready and provider in choices), None)
    return {} if found is None else {"provider": found}
