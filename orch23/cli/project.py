"""Find the project a command is about: its root, its pipeline file."""

import os
from collections.abc import Iterator
from pathlib import Path

from orch23.cli.options import plain_names
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError
from orch23.model.pipeline import DEFAULT_FILE

SUFFIXES = (".yaml", ".yml")


def find_root(start: Path) -> Path:
    """Return the nearest folder at or above `start` that says it is an orch23 project, else a git one, else `start`."""
    return _declared_root(start) or start


def root_without_pipeline(start: Path) -> Path:
    """Return the root of the project around a folder, for a command line that names no pipeline.

    Without a declared root it is the folder itself if it has a store, else the nearest with a pipeline of this user.
    """
    root = _declared_root(start)
    if root is not None or (start / ".orch23").exists():
        return root or start
    return next((path.parent for path in _default_pipelines(start, root) if _is_own(path)), start)


def names_pipeline(arguments: tuple[str, ...]) -> bool:
    """Return whether one of `[PIPELINE] [STAGE...]` is a pipeline file."""
    return any(map(_is_file, arguments))


def _is_file(argument: str) -> bool:
    return argument.endswith(SUFFIXES) and "@" not in argument


def _declared_root(start: Path) -> Path | None:
    folders = (start, *start.parents)
    marked = next((folder for folder in folders if is_marked(folder)), None)
    return marked or next((folder for folder in folders if (folder / ".git").exists()), None)


def is_marked(folder: Path) -> bool:
    """Say whether a folder says of itself that it is the root of an orch23 project."""
    return (folder / "orch23.toml").is_file() or _has_table(folder / "pyproject.toml")


def split_arguments(arguments: tuple[str, ...], here: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the pipeline file and the stages of `[PIPELINE] [STAGE...]`; the file may stand anywhere among them.

    `name[*]`, which is how `needs` may name all items of a foreach, is returned as `name`.

    Raises:
        NotFoundError: no pipeline was named, and there is no `pipeline.yaml` of this user here or above.

    """
    for position, argument in enumerate(arguments):
        if _is_file(argument):
            return here / argument, plain_names((*arguments[:position], *arguments[position + 1 :]))
    default = here / DEFAULT_FILE
    if default.is_file():
        return default, plain_names(arguments)
    start = here.resolve()
    above = next(_default_pipelines(start, _declared_root(start)), None)
    if above is not None and _is_own(above):
        return above, plain_names(arguments)
    if above is not None:
        hint = f"name it, if you trust it: `orch23 build {os.path.relpath(above, here)}`"
        message = f"there is no {DEFAULT_FILE} here, and {above} belongs to another user"
        raise NotFoundError(Diagnostic("E661", message, hint=hint))
    hint = f"name a pipeline: `orch23 build {_a_pipeline(here)}`"
    raise NotFoundError(Diagnostic("E661", f"there is no {DEFAULT_FILE} here, or in a folder above", hint=hint))


def _default_pipelines(start: Path, root: Path | None) -> Iterator[Path]:
    """Give the pipelines that need not be named, the nearest first, up to the declared root if there is one."""
    for folder in (start, *start.parents):
        if (folder / DEFAULT_FILE).is_file():
            yield folder / DEFAULT_FILE
        if folder == root:
            return


def _is_own(path: Path) -> bool:
    """Say whether a file and its folder belong to this user: a pipeline runs commands, and /tmp is everybody's."""
    try:
        return all(one.stat().st_uid == os.geteuid() for one in (path, path.parent))
    except OSError:
        return False


def _a_pipeline(here: Path) -> str:
    """Return the path of a pipeline where templates lay them, or of one that there could be."""
    found = sorted(path.name for path in here.glob("pipelines/*.yaml") if path.name.count(".") == 1)
    return f"pipelines/{found[0] if found else 'quickstart.yaml'}"


def _has_table(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if "orch23" not in text:
        return False
    from orch23.model import toml_text  # noqa: PLC0415 - only where a project has such a file

    try:
        tool = toml_text.loads(text).get("tool")
    except (ValueError, RecursionError):
        return False
    return isinstance(tool, dict) and "orch23" in tool
