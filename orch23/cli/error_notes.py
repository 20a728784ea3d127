"""Explain errors: missing files that are beside the pipeline, and vars that are set outside of it."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.discovery import MARKER, FoundProject
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity
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


def with_var_notes(
    diagnostics: Sequence[Diagnostic], origins: Mapping[str, str], sources: Mapping[str, str], file: str
) -> tuple[Diagnostic, ...]:
    """Return diagnostics about a pipeline file, with a note for each var that `--set` or a file of vars has set.

    `origins` are those of the vars, `sources` the texts by file. A diagnostic with related places stays as it is.
    """
    outside = {name: origin for name, origin in origins.items() if not origin.startswith(f"{file}:")}
    if not outside:
        return tuple(diagnostics)
    lines = sources.get(file, "").split("\n")
    return tuple(
        replace(one, related=tuple(_notes(one.location, lines, outside)))
        if one.location is not None and one.location.file == file and not one.related
        else one
        for one in diagnostics
    )


def _notes(place: Location, lines: Sequence[str], outside: Mapping[str, str]) -> Iterator[Related]:
    from orch23.language.expressions import members_used  # noqa: PLC0415 - as above
    from orch23.load.overrides import set_note  # noqa: PLC0415 - only for errors

    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    text = line[place.column - 1 : place.column - 1 + place.length]
    for name in sorted(members_used(text, "vars") & outside.keys()):
        yield set_note(name, _location(outside[name]))


def _location(origin: str) -> Location | None:
    """Return the place that an origin such as `vars.yaml:3` names; None for an option of the command line."""
    file, _, line = origin.rpartition(":")
    return Location(file, int(line), 1) if file and line.isdecimal() else None
