"""Explain errors about missing files that are beside the pipeline: paths are relative to the root of the project."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.found_project import MARKER, FoundProject
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.text import join_first
from orch23.report.diagnostics import visible

# Missing inputs, prompts, and files of responses. The first name in their messages is the path.
_MISSING = ("E822", "E831", "E404")
_PATH = re.compile(r"`([^`]+)`")
_MOST_PATHS = 3


def with_root_note(diagnostics: Sequence[Diagnostic], console: Console) -> tuple[Diagnostic, ...]:
    """Return diagnostics that name the files beside the pipeline that are meant, with one note on how to set the root.

    Without a project that the command found, or without such files, they stay as they are.
    """
    found = console.found[0] if console.found else None
    if found is None or found.pipeline is None or not any(one.code in _MISSING for one in diagnostics):
        return tuple(diagnostics)
    folder = found.pipeline.resolve().parent
    if folder == found.root or not folder.is_relative_to(found.root):
        return tuple(diagnostics)
    below = folder.relative_to(found.root).as_posix()
    meant = {n: path for n, one in enumerate(diagnostics) if (path := _path_beside(one, found.root, folder))}
    if not meant:
        return tuple(diagnostics)
    explained = [
        replace(one, hint=f"paths are relative to the root: did you mean `{below}/{meant[n]}`?", fix=None)
        if n in meant
        else one
        for n, one in enumerate(diagnostics)
    ]
    return (
        *explained,
        _note(list(dict.fromkeys(meant.values())), found, below, os.path.relpath(folder, console.here.resolve())),
    )


def _path_beside(one: Diagnostic, root: Path, folder: Path) -> str | None:
    """Return the path that a diagnostic misses below the root and that is below the directory of the pipeline."""
    name = _PATH.search(one.message) if one.code in _MISSING and one.location is not None else None
    if name is None or Path(name[1]).is_absolute() or ".." in Path(name[1]).parts:
        return None
    return name[1] if os.path.lexists(folder / name[1]) and not os.path.lexists(root / name[1]) else None


def _note(paths: list[str], found: FoundProject, below: str, folder: str) -> Diagnostic:
    names = join_first([f"`{path}`" for path in paths], _MOST_PATHS)
    verb = "is" if len(paths) == 1 else "are"
    root = visible(str(found.root))
    message = f"{names} {verb} in `{below}/`, but paths are relative to the root of the project, {root}"
    marker = shlex.quote(os.path.normpath(f"{folder}/{MARKER}"))
    where = "" if folder == "." else f" and work there: `orch23 -C {shlex.quote(folder)}`"
    hint = f"to make `{below}/` the root, `touch {marker}`{where}"
    return Diagnostic("W661", message, hint=hint, severity=Severity.NOTE)
