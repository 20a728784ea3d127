"""The command `init`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.project import find_root, is_marked
from orch23.model.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orch23.templates.changes import Change, Existing


def complete_template(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of the templates that come with orch23."""
    from orch23.templates.builtin import builtins  # noqa: PLC0415 - heavy

    return [CompletionItem(name, help=one.summary) for name, one in builtins().items() if name.startswith(incomplete)]


@click.command()
@click.argument("template", required=False, shell_complete=complete_template, metavar="[TEMPLATE|GIT_URL]")
@option("--data", metavar="NAME=VALUE", multiple=True, help="Answer a question of the template. Repeatable.")
@option("--defaults", is_flag=True, help="Ask nothing: what --data leaves open gets the template's default.")
@option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@option("--ref", metavar="TAG", help="This version of the template, not its newest.")
@option("--keep", is_flag=True, help="Leave files that are in the way as they are, and write the rest.")
@option("--overwrite", is_flag=True, help="Replace files that are in the way.")
@click.pass_obj
def init(
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
    """Start from a template: a pipeline that runs.

    TEMPLATE is one of `orch23 template list`, or a git URL. Files that are there are never replaced unasked.
    """
    from orch23.cli.laying import lay, told_conflicts  # noqa: PLC0415 - heavy
    from orch23.report.diagnostics import visible  # noqa: PLC0415 - heavy
    from orch23.templates.source import find_source  # noqa: PLC0415 - heavy
    from orch23.templates.updating import Answering, init_outlook  # noqa: PLC0415 - heavy

    existing = _existing(keep=keep, overwrite=overwrite)
    source = find_source(template or _chosen(console), console.here)
    answers = read_data(data)
    asking = console.is_asked and not defaults
    suggested = _suggested(console.environ, source.name) if source.bundle is not None else {}
    root = init_root(console.here)
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


def init_root(here: Path) -> Path:
    """Return where a template goes: the folder that says it is a project, at `here` or above; else `here` itself.

    A git repository above does not count: a folder of its own may be meant.
    """
    root = find_root(here.resolve())
    return root if is_marked(root) else here.resolve()


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


def _allow(console: Console, changes: "Sequence[Change]", root: Path) -> None:
    """Grant what the pipelines need that were just written, as far as it is about files that were written too."""
    from orch23.cli.consent import Consent, listed  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import Settings, needed_grants, open_project  # noqa: PLC0415 - heavy
    from orch23.model.errors import Orch23Error  # noqa: PLC0415 - heavy

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


def _existing(*, keep: bool, overwrite: bool) -> "Existing":
    from orch23.templates.changes import Existing  # noqa: PLC0415 - heavy

    if keep and overwrite:
        message = "--keep and --overwrite contradict each other"
        raise click.UsageError(message)
    return Existing.KEEP if keep else Existing.OVERWRITE if overwrite else Existing.STOP


def _chosen(console: Console) -> str:
    """Return the template that the user picks from the list."""
    from orch23.templates.builtin import builtins  # noqa: PLC0415 - heavy

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
    from orch23.providers.local_model import data_dir, installed, known_models  # noqa: PLC0415 - heavy
    from orch23.templates.builtin import builtins  # noqa: PLC0415 - heavy

    choices = builtins()[name].questions.get("provider", {}).get("choices", ())
    here = {
        "anthropic": bool(environ.get("ANTHROPIC_API_KEY")),
        "openai": bool(environ.get("OPENAI_API_KEY")),
        "local": any(installed(one.name, data_dir(environ)) for one in known_models()),
    }
    found = next((provider for provider, ready in here.items() if ready and provider in choices), None)
    return {} if found is None else {"provider": found}
