"""Find the root of a project and its pipeline file."""

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import NotFoundError
from orch23.model.pipeline import DEFAULT_PIPELINE
from orch23.snapshot.store_registry import STORE_FOLDER as STORE
from orch23.snapshot.store_registry import is_registered

# The directory in which a pipeline is searched for if there is no pipeline.yaml.
PIPELINES: Final = "pipelines"
# A file that makes its directory the root of a project; it may be empty.
MARKER: Final = "orch23.toml"


class NotOwn(Struct, frozen=True):
    """A file that is not used because another user, with the id `owner`, can change it.

    That user owns the file itself (`is_file`) or its directory.
    """

    path: Path
    owner: int
    is_file: bool

    @property
    def reason(self) -> str:
        """Why the file is not used."""
        owned = "it" if self.is_file else "its directory"
        return f"{self.path} is not used: {owned} belongs to another user, {_user_name(self.owner)}"

    @property
    def way_out(self) -> str:
        """How to use it anyway."""
        return f"if you trust it, work there: `orch23 -C {shlex.quote(str(self.path.parent))}`"


class FoundProject(Struct, frozen=True, kw_only=True):
    """The project of a command line. `start` is the working directory, `root` the directory that paths are relative to.

    `pipeline` is the named or the default file; None without one. `searched` is the directory whose `pipeline.yaml` or
    `pipelines` has the default file; None if it was named. `stages` are the other names.
    `passed_over` are files of other users that would have marked the root or been the default pipeline; `refused` is
    the pipeline that would have been used but belongs to another user.
    """

    start: Path
    root: Path
    pipeline: Path | None
    searched: Path | None
    stages: tuple[str, ...]
    passed_over: tuple[NotOwn, ...] = ()
    refused: NotOwn | None = None

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """A warning, if a file of another user was ignored."""
        if not self.passed_over:
            return ()
        first = self.passed_over[0]
        hint = f"{first.way_out}; if not, an empty {MARKER} in your project ends the search"
        return (Diagnostic("W668", first.reason, hint=hint, severity=Severity.WARNING),)


def _user_name(number: int) -> str:
    import pwd  # noqa: PLC0415 - only below a project of another user

    try:
        return f"`{pwd.getpwuid(number).pw_name}`"
    except KeyError:
        return f"with the id {number}"


PIPELINE_SUFFIXES = (".yaml", ".yml")
# A larger pyproject.toml does not mark a root.
_MAX_BYTES = 1_048_576
# How many commands a hint shows.
_MOST_COMMANDS = 3


def find_project(here: Path, arguments: tuple[str, ...] = ()) -> FoundProject:
    """Return the project of `[PIPELINE] [STAGE...]`. The pipeline may be anywhere among the stages.

    The root is the nearest directory, from `here` upwards, with an orch23.toml or `[tool.orch23]`; else with a `.git`;
    else with the pipeline; else, without a pipeline, with a store of this user; else `here`. If no pipeline is named,
    it is the nearest `pipeline.yaml` up to the root; else, in the nearest `pipelines` with pipelines, the only one.

    A parent directory counts only if it and the file belong to this user: pipelines run commands, and other users can
    put files into directories such as /tmp. `here` always counts, since the user chose it. `name[*]`, which names all
    items of a foreach in `needs`, is returned as `name`.
    """
    start = here.resolve()
    named, stages = _split(arguments)
    # Only for the warning: the search goes on above a file of another user (ADR 32).
    passed_over: list[NotOwn] = []
    # A marker wins even over a nearer `.git`: a repository may be a part of a project.
    mark = _nearest(start, _marker, passed_over) or _nearest(start, _repository, passed_over)
    root, pipeline, refused, searched = None if mark is None else mark.parent, None, None, None
    if named is not None:
        pipeline, folder = here / named, start
        if root is None:
            folder, refused = _folder_of_named(start, pipeline)
    # `here` itself is used even if another user owns it: the user chose it, with `cd` or `-C`.
    elif _is_file(here / DEFAULT_PIPELINE):
        pipeline, folder, searched = here / DEFAULT_PIPELINE, start, start
    else:
        others: list[NotOwn] = []
        pipeline = _nearest(start, _default_pipeline, others, root)
        if pipeline is not None:
            searched = pipeline.parent
        elif (found := _nearest(start, _pipeline_folder, others, root)) is not None:
            pipeline = _only_pipeline(found.parent, start, others)
            searched = None if pipeline is None else found.parent
        # A store counts only without a pipeline: it may be a leftover (ADR 32).
        folder = searched or _with_store(start)
        passed_over += others
        refused = others[0] if pipeline is None and others else None
    return FoundProject(
        start=start,
        root=folder if root is None else root,
        pipeline=None if refused is not None else pipeline,
        searched=searched,
        stages=tuple(name.removesuffix("[*]") for name in stages),
        passed_over=tuple(passed_over),
        refused=refused,
    )


def required_pipeline(found: FoundProject) -> Path:
    """Return the pipeline of a project.

    Raises:
        NotFoundError: there is none, or it belongs to another user.
    """
    if found.pipeline is not None:
        return found.pipeline
    if found.refused is not None:
        raise NotFoundError(Diagnostic("E661", found.refused.reason, hint=found.refused.way_out))
    message = f"there is no {DEFAULT_PIPELINE} here, or in a parent directory"
    import click  # noqa: PLC0415 - only for errors

    context = click.get_current_context(silent=True)
    command = "orch23 build" if context is None else context.command_path
    near = _nearest(found.start, _pipeline_folder, [], found.root)
    above = "" if near is None else os.path.relpath(near.parent, found.start)
    existing = [] if near is None else [os.path.normpath(f"{above}/{name}") for name in _pipelines(near.parent)]
    hint = "create one with `orch23 init`"
    if existing:
        having = [name for name in existing if _may_have(found.start / name, found.stages)] or existing
        # Only one of many pipelines is shown: a line of twenty commands is not read.
        named = having if len(having) <= _MOST_COMMANDS else ["PIPELINE", having[0]]
        commands = [f"`{' '.join((command, name, *found.stages))}`" for name in named]
        hint = f"name one: {(', ' if named is having else ', such as ').join(commands)}"
    if len(existing) > 1:
        message = f"there is no {DEFAULT_PIPELINE}, and more than one pipeline: {', '.join(existing)}"
    raise NotFoundError(Diagnostic("E661", message, hint=hint), *found.warnings)


def _may_have(pipeline: Path, stages: tuple[str, ...]) -> bool:
    """Return whether a pipeline seems to declare stages. Its text is searched, since it may not be valid."""
    import re  # noqa: PLC0415 - only for errors

    try:
        text = pipeline.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return all(re.search(rf"[\s{{,'\"]{re.escape(name.partition('@')[0])}['\"]?\s*:", text) for name in stages)


def is_project_root(folder: Path) -> bool:
    """Return whether a directory has an orch23.toml or a `[tool.orch23]`."""
    return _marker(folder) is not None


def _split(arguments: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    for position, argument in enumerate(arguments):
        if argument.endswith(PIPELINE_SUFFIXES) and "@" not in argument:
            return argument, (*arguments[:position], *arguments[position + 1 :])
    return None, arguments


def _nearest(
    start: Path, find: Callable[[Path], Path | None], passed_over: list[NotOwn], last: Path | None = None
) -> Path | None:
    """Return what `find` finds in the nearest directory, up to `last`; add files of other users to `passed_over`."""
    for folder in (start, *start.parents):
        found = find(folder)
        if found is not None:
            with suppress(OSError):  # it was removed meanwhile
                other = None if folder == start else _not_own(found)
                if other is None:
                    return found
                passed_over.append(other)
        if folder == last:
            break
    return None


def _marker(folder: Path) -> Path | None:
    own, shared = folder / MARKER, folder / "pyproject.toml"
    if _is_file(own):
        return own
    return shared if _has_table(shared) else None


def _repository(folder: Path) -> Path | None:
    found = os.path.exists(folder / ".git")  # noqa: PTH110 - `Path.exists` raises for a folder that cannot be read
    return folder / ".git" if found else None


def _default_pipeline(folder: Path) -> Path | None:
    return folder / DEFAULT_PIPELINE if _is_file(folder / DEFAULT_PIPELINE) else None


def _pipeline_folder(folder: Path) -> Path | None:
    return folder / PIPELINES if _pipelines(folder) else None


def _only_pipeline(folder: Path, start: Path, passed_over: list[NotOwn]) -> Path | None:
    """Return the only file in `pipelines` of a directory; one of another user, in a parent, is added to the list."""
    names = _pipelines(folder)
    if len(names) != 1:
        return None
    other = None if folder == start else _not_own(folder / names[0])
    if other is None:
        return folder / names[0]
    passed_over.append(other)
    return None


def _folder_of_named(start: Path, pipeline: Path) -> tuple[Path, NotOwn | None]:
    """Return the parent of `start` that has the named pipeline, else `start`; and why that parent is not used."""
    try:
        whole = pipeline.resolve()
    except (OSError, RuntimeError, ValueError):  # it is reported when it is read
        return start, None
    if whole.parent not in start.parents:
        return start, None
    owner = whole.parent.stat().st_uid
    return (whole.parent, None) if owner == os.geteuid() else (start, NotOwn(whole, owner, is_file=False))


def _with_store(start: Path) -> Path:
    for folder in (start, *start.parents):
        store = folder / STORE
        if is_registered(str(store)) and (folder == start or _not_own(store) is None):
            return folder
        # A store here that is not the user's: opening it reports that.
        if folder == start and store.is_dir():
            break
    return start


def _not_own(path: Path) -> NotOwn | None:
    """Return why a file of a parent directory is not used; None if the user owns it and its directory.

    Of a link, the user must own both the link and its target.
    """
    # Someone who can write the directory can replace the file, so both owners count.
    user = os.geteuid()
    folder = path.parent.stat().st_uid
    other = next((owner for owner in (path.lstat().st_uid, path.stat().st_uid) if owner != user), None)
    if other is not None:
        return NotOwn(path, other, is_file=True)
    return None if folder == user else NotOwn(path, folder, is_file=False)


def _pipelines(here: Path) -> list[str]:
    """Return the paths of the pipelines in `pipelines`. Names with more than one dot are not pipelines."""
    try:
        names = [path.name for path in (here / PIPELINES).iterdir()]
    except OSError:
        return []
    names = sorted(name for name in names if name.endswith(PIPELINE_SUFFIXES) and name.count(".") == 1)
    return [path for path in (f"{PIPELINES}/{name}" for name in names) if _is_file(here / path)]


# Not `Path.is_file`, which raises for a folder that cannot be read.
_is_file = os.path.isfile


def _has_table(path: Path) -> bool:
    if not _is_file(path):  # to open a pipe would block
        return False
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    # The search for the word is fast. Most pyproject.toml files need no TOML parser.
    if "orch23" not in text or len(text) > _MAX_BYTES:
        return False
    from orch23.model import parsing  # noqa: PLC0415 - only where a project has such a file

    try:
        tool = parsing.parse_toml(text).get("tool")
    except (ValueError, RecursionError):
        return False
    return isinstance(tool, dict) and "orch23" in tool
