"""Write results to the files that the command line names.

A clone can bring a link with the name of a report. So links are followed only outside of the project and of git
repositories, where they are the user's own.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from orch23.cli.console import Console
from orch23.cli.discovery import find_project
from orch23.store.safe_files import (
    make_directories,
    make_folder,
    open_directory,
    replace_file,
    split_path,
    unsafe_path_error,
)


class NamedFile(Struct, frozen=True):
    """A file that the user names: its absolute path, and the path below `anchor`, which has no link that is followed.

    `may_be_device`: it is outside of the project, where it may be a device or a pipe, such as /dev/stdout.
    """

    path: Path
    anchor: Path
    below: str
    may_be_device: bool

    def check(self) -> None:
        """Create the missing folders, and check that there is a regular file, or none.

        Raises:
            OSError: there is something else, or a folder cannot be created.
            SafetyError: there is a link on the path.
        """
        names, name = split_path(self.below)
        make_folder(self.anchor)
        make_directories(self.anchor, names)
        with open_directory(self.anchor, names) as folder, contextlib.suppress(FileNotFoundError):
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(kind):
                raise unsafe_path_error(self.below)
            if not stat.S_ISREG(kind):
                raise OSError(errno.EEXIST, "is not a regular file", str(self.path))

    def write(self, text: str) -> None:
        """Write a text, whole or not at all. Raises as `check`."""
        data = text.encode("utf-8", "backslashreplace")
        if not self.may_be_device or self.path.is_file() or not self.path.exists():
            self.check()
            replace_file(self.anchor, self.below, data, 0o644)
        else:
            with self.appending() as file:
                file.write(data)

    def appending(self) -> BinaryIO:
        """Return the file, open for appending. A pipe that no process reads is an error: opening it would wait."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self.path, flags | (0 if self.may_be_device else os.O_NOFOLLOW), 0o666)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "ab")


def named_file(here: Path, name: str) -> NamedFile:
    """Return the file of a name that is relative to the working directory `here`."""
    root = find_project(here).root.resolve()
    path = Path(os.path.normpath(here.resolve() / name))
    # The outermost folder that is in the project: a link that leads there is outside, and the user's own.
    inside = (one for one in reversed(path.parents) if _real(one).is_relative_to(root) or os.path.lexists(one / ".git"))
    if (anchor := next(inside, None)) is not None:
        return NamedFile(path, _real(anchor), path.relative_to(anchor).as_posix(), may_be_device=False)
    real = _real(path)
    return NamedFile(path, real.parent, real.name, may_be_device=True)


def _real(path: Path) -> Path:
    # Not `Path.resolve`, which raises RuntimeError for links that lead to each other.
    return Path(os.path.realpath(path))


def write_named_file(console: Console, name: str, text: str) -> None:
    """Write a text to a file, whole or not at all; missing folders are created.

    Raises:
        UsageError: of click, if the file cannot be written.
        SafetyError: its path leads through a link in the project.
    """
    try:
        named_file(console.here, name).write(text)
    except OSError as error:
        import click  # noqa: PLC0415 - only for errors

        message = f"cannot write {name}: {error.strerror}"
        raise click.UsageError(message) from error
