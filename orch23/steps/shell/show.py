"""How a shell step is named."""

from orch23.resolve.commands import short_command
from orch23.steps.shell.spec import ShellStep

_MOST = 60


def show(step: ShellStep) -> str:
    """Return the first line of the command, or its argv."""
    if isinstance(step.command, str):
        return step.command.strip().splitlines()[0][:_MOST]
    return short_command(" ".join(step.command))
