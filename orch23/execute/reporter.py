"""The tools of an action that runs pytest: the plugin that reports, and an empty config."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from orch23.resolve.commands import EMPTY_CONFIG, REPORTER_MODULE

_FOLDER = Path(__file__).parent / "pytest_plugin"


@cache
def reporter_files() -> Mapping[str, bytes]:
    """Return the bytes of the files by name, as `Action.tools` has them. They are read once in a process."""
    return {name: (_FOLDER / name).read_bytes() for name in (f"{REPORTER_MODULE}.py", EMPTY_CONFIG)}
