"""Find the project a command is about: its root, its pipeline file."""

from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError

SUFFIXES = (".yaml", ".yml")


def find_root(start: Path) -> Path:
    """Return the nearest folder at or above `start` that says it is an orch23 project, else a git one, else `start`."""
    folders = (start, *start.parents)
    for folder in folders:
        if is_marked(folder):
            return folder
    return next((folder for folder in folders if (folder / ".git").exists()), start)


def is_marked(folder: Path) -> bool:
    """Say whether a folder says of itself that it is the root of an orch23 project."""
    return (folder / "orch23.toml").is_file() or _has_table(folder / "pyproject.toml")


def split_arguments(arguments: tuple[str, ...], here: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the pipeline file and the stages of `[PIPELINE] [STAGE...]`; the file may stand anywhere among them.

    `name[*]`, which is how `needs` may name all items of a foreach, is returned as `name`.

    Raises:
        NotFoundError: no pipeline was named and there is no `pipeline.yaml` here.

    """
    for position, argument in enumerate(arguments):
        if argument.endswith(SUFFIXES) and "@" not in argument:
            return here / argument, plain_names((*arguments[:position], *arguments[position + 1 :]))
    from orch23.model.pipeline import DEFAULT_FILE  # noqa: PLC0415 - heavy

    default = here / DEFAULT_FILE
    if not default.is_file():
        hint = f"name a pipeline: `orch23 build {_a_pipeline(here)}`"
        raise NotFoundError(Diagnostic("E661", f"there is no {DEFAULT_FILE} here", hint=hint))
    return default, plain_names(arguments)


def plain_names(stages: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of stages in which `name[*]` is `name`: on a command line both mean all items."""
    return tuple(name.removesuffix("[*]") for name in stages)


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
