"""The argv of a pytest step, the same on every machine."""

import shlex
from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.action import PYTHON, TOOLS_FOLDER, WORKING_DIRECTORY
from orch23.resolve.commands import EMPTY_CONFIG, REPORTER_MODULE
from orch23.steps.pytest.spec import PytestStep


class PytestCommand(Struct, frozen=True):
    """The argv and environment of a pytest step. Its tools are the plugin `REPORTER_MODULE` and `EMPTY_CONFIG`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


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


def _below_cwd(path: str) -> str:
    if path.startswith("/"):
        return path
    return WORKING_DIRECTORY if path in (".", "./") else f"{WORKING_DIRECTORY}/{path.removeprefix('./')}"
