"""Complete template names in the shell."""

import click
from click.shell_completion import CompletionItem

from orch23.features.templates.source import builtin_templates


def complete_templates(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of built-in templates."""
    return [
        CompletionItem(name, help=one.summary)
        for name, one in builtin_templates().items()
        if name.startswith(incomplete)
    ]
