"""Changes of a template to the files of a project: decide them, read and write the files."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError
from orch23.model.file_policy import sealed_reason
from orch23.model.paths import unsafe_reason
from orch23.store.safe_files import open_directory, open_regular, read_and_close, replace_file, split_path
from orch23.templates.codes import FORBIDDEN_PATH

NEW_SUFFIX = ".new"


class TemplateFile(Struct, frozen=True):
    """The bytes of a file, and whether it may be run."""

    data: bytes
    executable: bool = False


class NotAFile(Struct, frozen=True):
    """What is at a path and is no regular file."""

    what: str


PathState: TypeAlias = TemplateFile | NotAFile | None
"""What the project has at a path."""

MergeTexts: TypeAlias = Callable[[bytes, bytes, bytes], tuple[bytes | None, tuple[int, ...]]]
"""Mine, base, theirs -> the merged text (None if it is not to merge) and the lines at which conflicts begin."""


class MergeFunctions(Struct, frozen=True):
    """How texts come together, and the free path beside a path, for a file that is no text."""

    texts: MergeTexts
    beside: Callable[[str], str]


class ChangeKind(StrEnum):
    """What becomes of a file."""

    CREATE = "create"
    SAME = "same"
    UPDATE = "update"
    MERGE = "merge"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    KEEP = "keep"
    CONFLICT = "conflict"


class ExistingPolicy(StrEnum):
    """What is to be done with files of other content that `init` finds."""

    STOP = "stop"
    KEEP = "keep"
    OVERWRITE = "overwrite"


class TemplateChange(Struct, frozen=True, kw_only=True):
    """What becomes of one path. `after` is what is written there, None for nothing or, with DELETE, a removal."""

    path: str
    kind: ChangeKind
    before: PathState = None
    after: TemplateFile | None = None
    lines: tuple[int, ...] = ()
    note: str = ""

    @property
    def changes(self) -> bool:
        """Say whether the project is another afterwards."""
        return self.after is not None or self.kind is ChangeKind.DELETE


def init_changes(
    rendered: Mapping[str, TemplateFile], there: Mapping[str, PathState], existing: ExistingPolicy
) -> tuple[TemplateChange, ...]:
    """Return what a template changes in a project that does not have it yet."""
    return tuple(_laid(path, file, there.get(path), existing) for path, file in sorted(rendered.items()))


def update_changes(
    base: Mapping[str, TemplateFile],
    theirs: Mapping[str, TemplateFile],
    there: Mapping[str, PathState],
    merging: MergeFunctions,
) -> tuple[TemplateChange, ...]:
    """Return what a newer version changes in a project that has an older one, and edits of its own."""
    paths = sorted(base.keys() | theirs.keys())
    changes = (_updated(path, base.get(path), theirs.get(path), there.get(path), merging) for path in paths)
    return tuple(one for part in changes for one in part)


def _laid(path: str, file: TemplateFile, mine: PathState, existing: ExistingPolicy) -> TemplateChange:
    if mine is None:
        return TemplateChange(path=path, kind=ChangeKind.CREATE, after=file)
    if isinstance(mine, NotAFile):
        return TemplateChange(path=path, kind=ChangeKind.CONFLICT, before=mine, note=mine.what)
    if mine.data == file.data:
        return TemplateChange(path=path, kind=ChangeKind.SAME, before=mine)
    match existing:
        case ExistingPolicy.KEEP:
            return TemplateChange(path=path, kind=ChangeKind.KEEP, before=mine)
        case ExistingPolicy.OVERWRITE:
            return TemplateChange(path=path, kind=ChangeKind.OVERWRITE, before=mine, after=file)
        case ExistingPolicy.STOP:
            return TemplateChange(path=path, kind=ChangeKind.CONFLICT, before=mine)


def _updated(
    path: str, base: TemplateFile | None, theirs: TemplateFile | None, mine: PathState, merging: MergeFunctions
) -> tuple[TemplateChange, ...]:
    if theirs in (base, mine):
        return (TemplateChange(path=path, kind=ChangeKind.SAME, before=mine),)
    if isinstance(mine, NotAFile):
        return (TemplateChange(path=path, kind=ChangeKind.CONFLICT, before=mine, note=mine.what),)
    if mine is None:
        if base is None:
            return (TemplateChange(path=path, kind=ChangeKind.CREATE, after=theirs),)
        return (TemplateChange(path=path, kind=ChangeKind.KEEP, note="you removed it"),)
    if theirs is None:
        if base is not None and mine.data == base.data:
            return (TemplateChange(path=path, kind=ChangeKind.DELETE, before=mine),)
        return (
            TemplateChange(
                path=path, kind=ChangeKind.KEEP, before=mine, note="the template has it no longer; you edited it"
            ),
        )
    if base is not None and mine.data == base.data:
        return (TemplateChange(path=path, kind=ChangeKind.UPDATE, before=mine, after=theirs),)
    return _merged(path, base, theirs, mine, merging)


def _merged(
    path: str, base: TemplateFile | None, theirs: TemplateFile, mine: TemplateFile, merging: MergeFunctions
) -> tuple[TemplateChange, ...]:
    if mine.data == theirs.data:
        return (TemplateChange(path=path, kind=ChangeKind.SAME, before=mine),)
    data, lines = merging.texts(mine.data, base.data if base is not None else b"", theirs.data)
    if data is None:
        beside = TemplateChange(path=merging.beside(path), kind=ChangeKind.CREATE, after=theirs)
        return (
            TemplateChange(path=path, kind=ChangeKind.CONFLICT, before=mine, note=f"no text; see {beside.path}"),
            beside,
        )
    kept = data == mine.data
    kind = ChangeKind.CONFLICT if lines else ChangeKind.KEEP if kept else ChangeKind.MERGE
    after = None if kept else TemplateFile(data, mine.executable or theirs.executable)
    return (TemplateChange(path=path, kind=kind, before=mine, after=after, lines=lines),)


_RUN = 0o100


def read_paths(root: Path, paths: Iterable[str]) -> dict[str, PathState]:
    """Return what the project has at some paths."""
    return {path: _look(root, path) for path in paths}


def apply_changes(root: Path, changes: Iterable[TemplateChange]) -> None:
    """Write what changes, in the order given."""
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
        SafetyError: one of them is no regular file, or would lie where no template may write.

    """
    found: dict[str, TemplateFile] = {}
    wrong: list[Diagnostic] = []
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        why = _refused(path, name)
        if why is None:
            found[name] = TemplateFile(path.read_bytes(), bool(path.stat().st_mode & _RUN))
            continue
        hint = "nothing was written; tell the template's author"
        wrong.append(Diagnostic(FORBIDDEN_PATH, f"the template brings {name!r}, which {why}", hint=hint))
    if wrong:
        raise SafetyError(*wrong)
    return found


def _look(root: Path, path: str) -> PathState:
    names, name = split_path(path)
    try:
        with open_directory(root, names) as parent:
            descriptor = open_regular(name, parent)
            if descriptor is not None:
                executable = bool(os.fstat(descriptor).st_mode & _RUN)
                return TemplateFile(read_and_close(descriptor), executable)
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return NotAFile("a folder above it is a file")
    except SafetyError:
        return NotAFile("a folder above it is a link")
    except OSError as error:
        return NotAFile(f"cannot be read: {error.strerror}")
    return NotAFile(
        "is a link" if stat.S_ISLNK(mode) else "is a folder" if stat.S_ISDIR(mode) else "is no regular file"
    )


def _below(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        yield from (Path(here) / name for name in sorted((*files, *links)))


def _refused(path: Path, name: str) -> str | None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return "is no regular file"
    if sealed_reason(name) is not None:
        return "is where no template may write"
    return unsafe_reason(name)
