"""The action of `init`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from orch23.cli.consent import Consent, listed
from orch23.cli.console import Console
from orch23.cli.laying import lay, read_data, told_conflicts
from orch23.cli.opening import project_root
from orch23.cli.project import find_project, is_marked
from orch23.cli.wiring import Settings, needed_grants, open_project
from orch23.model.errors import ExitCode, Orch23Error
from orch23.providers.local_model import data_dir, installed, known_models
from orch23.report.diagnostics import visible
from orch23.templates.builtin import builtins
from orch23.templates.changes import Change, Existing
from orch23.templates.source import find_source
from orch23.templates.updating import Answering, init_outlook


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
    answers = read_data(data)
    asking = console.is_asked and not defaults
    suggested = _suggested(console.environ, source.name) if source.bundle is not None else {}
    root = _root(console)
    answering = Answering(data=answers, suggested=suggested if asking else {}, ask=asking, defaults=defaults)
    outlook = init_outlook(source, root, answering, ref=ref, existing=existing, environ=console.environ)
    laid = lay(console, outlook, root, dry_run=dry_run, first=True)
    if not laid:
        return told_conflicts(console, outlook, root)
    if not dry_run:
        _allow(console, outlook.changes, root)
    if outlook.rendered.message:
        console.tell(f"{visible(outlook.rendered.message)}\n")
    provider = suggested.get("provider")
    if provider is not None and outlook.rendered.answers.get("provider") != provider and "provider" not in answers:
        console.tell(f"`--data provider={provider}` would ask {provider}, which is set up here\n")
    return ExitCode.OK


def _root(console: Console) -> Path:
    """Return where a template goes: the directory that says it is a project, at `here` or above; else `here` itself.

    A git repository above does not count: a directory of its own may be meant.
    """
    return project_root(console) if is_marked(find_project(console.here).root) else console.here.resolve()


def _allow(console: Console, changes: Sequence[Change], root: Path) -> None:
    """Grant what the pipelines need that were just written, as far as it is about files that were written too."""
    files = {one.path: one.after.data for one in changes if one.after is not None}
    grants = []
    for path, data in files.items():
        if path.endswith((".yaml", ".yml")) and (b"command:" in data or b"base_url:" in data):
            try:
                project = open_project(Settings(root=root, pipeline_path=root / path, environ=console.environ))
                needed = needed_grants(project)
            except Orch23Error:  # it is not a pipeline, or not one yet: a build asks
                continue
            project.git.close()
            grants += [grant for grant in needed if files.keys() >= set(grant.files)]
    consent = Consent.of(root, console.environ)
    if grants and consent.grants.path is not None:
        consent.give(grants)
        console.tell(f"allowed for this project:\n{listed(grants)}")


def _existing(*, keep: bool, overwrite: bool) -> Existing:
    if keep and overwrite:
        message = "--keep and --overwrite contradict each other"
        raise click.UsageError(message)
    return Existing.KEEP if keep else Existing.OVERWRITE if overwrite else Existing.STOP


def _chosen(console: Console) -> str:
    """Return the template that the user picks from the list."""
    ours = builtins()
    width = max(len(name) for name in ours)
    listed = "".join(f"  {name:<{width}}  {one.summary}\n" for name, one in ours.items())
    if not console.is_asked:
        message = f"which template? There are:\n{listed.rstrip()}"
        raise click.UsageError(message)
    console.tell(listed)
    chosen: str = click.prompt("Template", type=click.Choice(list(ours)), err=True)
    return chosen


def _suggested(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the provider that is set up here, if the template knows it: the default of a question, nothing more."""
    choices = builtins()[name].questions.get("provider", {}).get("choices", ())
    here = {
        "anthropic": bool(environ.get("ANTHROPIC_API_KEY")),
        "openai": bool(environ.get("OPENAI_API_KEY")),
        "local": any(installed(one.name, data_dir(environ)) for one in known_models()),
    }
    found = next((provider for provider, ready in here.items() if ready and provider in choices), None)
    return {} if found is None else {"provider": found}
