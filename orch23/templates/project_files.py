"""The files of a project that templates touch: looked at, written and removed, never through a link."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import SafetyError
from orch23.model.paths import unsafe_reason
from orch23.model.protected import sealed_reason
from orch23.store.beneath import directory, open_regular, read_all, replace_file, split
from orch23.templates.changes import Blocked, Change, File, Kind, There
from orch23.templates.codes import OUT_OF_BOUNDS

_RUN = 0o100


def look(root: Path, paths: Iterable[str]) -> dict[str, There]:
    """Return what the project has at some paths."""
    return {path: _look(root, path) for path in paths}


def apply(root: Path, changes: Iterable[Change]) -> None:
    """Write what changes, in the order given."""
    for change in changes:
        if change.after is not None:
            replace_file(root, change.path, change.after.data, 0o755 if change.after.executable else 0o644)
        elif change.kind is Kind.DELETE:
            names, name = split(change.path)
            with directory(root, names) as parent:
                os.unlink(name, dir_fd=parent)


def read_rendered(folder: Path) -> Mapping[str, File]:
    """Return the files of a rendered template, by path.

    Raises:
        SafetyError: one of them is no regular file, or would lie where no template may write.

    """
    found: dict[str, File] = {}
    wrong: list[Diagnostic] = []
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        why = _refused(path, name)
        if why is None:
            found[name] = File(path.read_bytes(), bool(path.stat().st_mode & _RUN))
            continue
        hint = "nothing was written; tell the template's author"
        wrong.append(Diagnostic(OUT_OF_BOUNDS, f"the template brings {name!r}, which {why}", hint=hint))
    if wrong:
        raise SafetyError(*wrong)
    return found


def _look(root: Path, path: str) -> There:
    names, name = split(path)
    try:
        with directory(root, names) as parent:
            descriptor = open_regular(name, parent)
            if descriptor is not None:
                executable = bool(os.fstat(descriptor).st_mode & _RUN)
                return File(read_all(descriptor), executable)
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return Blocked("a folder above it is a file")
    except SafetyError:
        return Blocked("a folder above it is a link")
    except OSError as error:
        return Blocked(f"cannot be read: {error.strerror}")
    return Blocked("is a link" if stat.S_ISLNK(mode) else "is a folder" if stat.S_ISDIR(mode) else "is no regular file")


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
