"""Changes of a template to the files of a project: decide them, read and write the files."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError
from orch23.model.file_policy import sealed_reason
from orch23.model.paths import unsafe_reason
from orch23.store.safe_files import open_directory, open_regular, read_and_close, replace_file, split_path

NEW_SUFFIX = ".new"


class TemplateFile(Struct, frozen=True):
    """The bytes of a file, and whether it is executable."""

    data: bytes
    executable: bool = False


class NotAFile(Struct, frozen=True):
    """A path with something that is not a regular file; `what` completes the sentence "the path ..."."""

    what: str


# What the project has at a path; None for nothing.
PathState: TypeAlias = TemplateFile | NotAFile | None


class MergeFunctions(Struct, frozen=True):
    """How to merge texts, and how to name a free path beside a path, for a file that is not a text."""

    # Mine, base, theirs -> the merged text (None if one of them is not a text) and the first lines of its conflicts.
    texts: Callable[[bytes, bytes, bytes], tuple[bytes | None, tuple[int, ...]]]
    beside: Callable[[str], str]


class ChangeKind(StrEnum):
    """What `init` or `template update` does with a file."""

    CREATE = "create"
    SAME = "same"
    UPDATE = "update"
    MERGE = "merge"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    KEEP = "keep"
    CONFLICT = "conflict"


class TemplateChange(Struct, frozen=True, kw_only=True):
    """The change of one path. `after` is the file to write; with None nothing is written, and DELETE removes it."""

    path: str
    kind: ChangeKind
    before: PathState = None
    after: TemplateFile | None = None
    lines: tuple[int, ...] = ()
    note: str = ""

    @property
    def changes(self) -> bool:
        """Return whether the project is different afterwards."""
        return self.after is not None or self.kind is ChangeKind.DELETE


def init_change(path: str, file: TemplateFile, mine: PathState, existing: ChangeKind) -> TemplateChange:
    """Return what a template that a project does not have yet changes at a path.

    `existing` is what happens to a file with other content: CONFLICT, KEEP or OVERWRITE.
    """
    if mine is None:
        return TemplateChange(path=path, kind=ChangeKind.CREATE, after=file)
    if isinstance(mine, NotAFile):
        return TemplateChange(path=path, kind=ChangeKind.CONFLICT, before=mine, note=mine.what)
    kind = ChangeKind.SAME if mine.data == file.data else existing
    after = file if kind is ChangeKind.OVERWRITE else None
    return TemplateChange(path=path, kind=kind, before=mine, after=after)


def update_changes(
    path: str, base: TemplateFile | None, theirs: TemplateFile | None, mine: PathState, merging: MergeFunctions
) -> tuple[TemplateChange, ...]:
    """Return what a newer version changes at a path, in a project with an older one (`base`) and edits of its own."""
    change = partial(TemplateChange, path=path, before=mine)
    # The template did not change the file, or the project has the new version already.
    if theirs in (base, mine):
        return (change(kind=ChangeKind.SAME),)
    if isinstance(mine, NotAFile):
        return (change(kind=ChangeKind.CONFLICT, note=mine.what),)
    if mine is None:
        if base is None:
            return (change(kind=ChangeKind.CREATE, after=theirs),)
        # A file that the user removed does not come back with an update.
        return (change(kind=ChangeKind.KEEP, note="you removed it"),)
    is_unedited = base is not None and mine.data == base.data
    if theirs is None:
        if is_unedited:
            return (change(kind=ChangeKind.DELETE),)
        return (change(kind=ChangeKind.KEEP, note="removed from the template, but you edited it"),)
    if is_unedited:
        return (change(kind=ChangeKind.UPDATE, after=theirs),)
    return _merge_changes(path, base, theirs, mine, merging)


def _merge_changes(
    path: str, base: TemplateFile | None, theirs: TemplateFile, mine: TemplateFile, merging: MergeFunctions
) -> tuple[TemplateChange, ...]:
    change = partial(TemplateChange, path=path, before=mine)
    if mine.data == theirs.data:
        return (change(kind=ChangeKind.SAME),)
    data, lines = merging.texts(mine.data, base.data if base is not None else b"", theirs.data)
    # A file that is not text cannot have conflict markers: the user gets both versions.
    if data is None:
        beside = TemplateChange(path=merging.beside(path), kind=ChangeKind.CREATE, after=theirs)
        return change(kind=ChangeKind.CONFLICT, note=f"not a text file; see {beside.path}"), beside
    clean = ChangeKind.KEEP if data == mine.data else ChangeKind.MERGE
    after = None if data == mine.data else TemplateFile(data, mine.executable or theirs.executable)
    return (change(kind=ChangeKind.CONFLICT if lines else clean, after=after, lines=lines),)


_EXECUTABLE = 0o100


def read_paths(root: Path, paths: Iterable[str]) -> dict[str, PathState]:
    """Return what the project has at each path."""
    return {path: _state(root, path) for path in paths}


def apply_changes(root: Path, changes: Iterable[TemplateChange]) -> None:
    """Write and delete the files of the changes, in their order."""
    for change in changes:
        if change.after is not None:
            replace_file(root, change.path, change.after.data, 0o755 if change.after.executable else 0o644)
        elif change.kind is ChangeKind.DELETE:
            names, name = split_path(change.path)
            with open_directory(root, names) as parent:
                os.unlink(name, dir_fd=parent)


def read_rendered(folder: Path) -> Mapping[str, TemplateFile]:
    """Return the files of a rendered template, by path.

    Raises:
        SafetyError: one of them is not a regular file, or has a path that a template may not write.
    """
    files: dict[str, TemplateFile] = {}
    errors: list[Diagnostic] = []
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        fault = _fault(path, name)
        if fault is None:
            files[name] = TemplateFile(path.read_bytes(), bool(path.stat().st_mode & _EXECUTABLE))
        else:
            hint = "nothing was written; report it to the author of the template"
            errors.append(Diagnostic("E670", f"the template has {name!r}, which {fault}", hint=hint))
    if errors:
        raise SafetyError(*errors)
    return files


def _state(root: Path, path: str) -> PathState:
    names, name = split_path(path)
    try:
        with open_directory(root, names) as parent:
            descriptor = open_regular(name, parent)
            if descriptor is not None:
                executable = bool(os.fstat(descriptor).st_mode & _EXECUTABLE)
                return TemplateFile(read_and_close(descriptor), executable)
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return NotAFile("a folder above it is a file")
    except SafetyError:  # a link could lead out of the project
        return NotAFile("a folder above it is a link")
    except OSError as error:
        return NotAFile(f"cannot be read: {error.strerror}")
    kinds = {stat.S_IFLNK: "is a link", stat.S_IFDIR: "is a folder"}
    return NotAFile(kinds.get(stat.S_IFMT(mode), "is not a regular file"))


def _below(folder: Path) -> Iterator[Path]:
    # `os.walk` counts links to folders among the folders, but a template may not have any link.
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        yield from (Path(here) / name for name in sorted((*files, *links)))


def _fault(path: Path, name: str) -> str | None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return "is not a regular file"
    if sealed_reason(name) is not None:
        return "is a path that a template may not write"
    return unsafe_reason(name)
