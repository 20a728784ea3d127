"""The argv of shell and pytest steps, the same on every machine."""

import shlex
from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.action import PYTHON, TOOLS_FOLDER, WORKING_DIRECTORY
from orch23.model.pipeline import PytestStep, ShellStep

SHELL = ("bash", "-euo", "pipefail", "-c")
"""What runs a command that is one text."""

_MOST_SHOWN, _HEAD, _TAIL = 400, 240, 80
REPORTER_MODULE = "orch23_reporter"
EMPTY_CONFIG = "orch23.ini"


class PytestCommand(Struct, frozen=True):
    """The argv and environment of a pytest step. Its tools are the plugin `REPORTER_MODULE` and `EMPTY_CONFIG`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def shell_command(step: ShellStep) -> tuple[str, ...]:
    """Return the argv of a shell step: its own, or bash with every error fatal."""
    if isinstance(step.command, str):
        return (*SHELL, step.command)
    return step.command


def pytest_command(step: PytestStep) -> PytestCommand:
    """Return the command that runs pytest with our plugin, and with nothing that the tested tree could say of it.

    `-P` keeps a local pytest.py out; the config, the root and the python path are named, since pytest would look
    for them in the tree; the cut-off for conftest files is the root, since it would follow the config.
    """
    config = step.config if step.config is not None else f"{TOOLS_FOLDER}/{EMPTY_CONFIG}"
    plugins = tuple(part for name in step.plugins for part in ("-p", name))
    # An absolute path each: pytest takes relative ones from the config's folder, not from the root.
    python_path = " ".join(shlex.quote(_below_cwd(path)) for path in step.pythonpath)
    return PytestCommand(
        argv=(
            *(PYTHON, "-P", "-m", "pytest"),
            *("-p", "no:cacheprovider", "-p", REPORTER_MODULE),
            *plugins,
            *("-c", config, "--rootdir=.", "--confcutdir=."),
            *("-o", f"pythonpath={python_path}", "-o", "addopts="),
            *step.args,
            *step.paths,
        ),
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


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


def _below_cwd(path: str) -> str:
    if path.startswith("/"):
        return path
    return WORKING_DIRECTORY if path in (".", "./") else f"{WORKING_DIRECTORY}/{path.removeprefix('./')}"
