"""Describe a shell step in one line."""

from orch23.model.text import shorten_command
from orch23.steps.shell.spec import ShellStep

_MAX_LENGTH = 60


def show_shell(step: ShellStep) -> str:
    """Return the first line of the command, or its argv."""
    if isinstance(step.command, str):
        return step.command.strip().splitlines()[0][:_MAX_LENGTH]
    return shorten_command(" ".join(step.command))
