"""Commands as people read them, and the names that orch23 adds to a pytest command."""

import shlex

from orch23.model.action import PYTHON

SHELL = ("bash", "-euo", "pipefail", "-c")
"""What runs a command that is one text."""

_MOST_SHOWN, _HEAD, _TAIL = 400, 240, 80
REPORTER_MODULE = "orch23_reporter"
EMPTY_CONFIG = "orch23.ini"


def display_command(argv: tuple[str, ...]) -> str:
    """Return a command as a person would type it, without what orch23 added to a pytest command."""
    if REPORTER_MODULE in argv:
        own = argv.index("addopts=") + 1
        return shlex.join((PYTHON, "-m", "pytest", *argv[own:]))
    return shlex.join(argv)


def short_command(command: str) -> str:
    """Return a command as it is printed: of a long one its beginning and its end."""
    if len(command) <= _MOST_SHOWN:
        return command
    return f"{command[:_HEAD]}... {len(command) - _HEAD - _TAIL:,} characters ...{command[-_TAIL:]}"
