"""Read input files: expected bytes from the store or the workspace, and the texts of prompts."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.ports import FileContentStore
from orch23.store.file_copy import FileProgress, copy_and_hash, no_progress
from orch23.store.safe_files import try_unlink
from orch23.store.workspace import Workspace


class InputFiles:
    """Files by path and promise. What it gives out was verified on the way."""

    def __init__(self, contents: FileContentStore, workspace: Workspace, meter: FileProgress = no_progress) -> None:
        """Take the two places, and who is told how far copying is."""
        self._contents = contents
        self._workspace = workspace
        self._meter = meter

    def with_workspace(self, workspace: Workspace) -> "InputFiles":
        """Return the same with another view of the workspace."""
        return InputFiles(self._contents, workspace, self._meter)

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        """Make `target` a file of the promised bytes and mode; say False if neither place has them (any more)."""
        if self._contents.has(entry.digest):
            try:
                self._copy_from_contents(entry, target)
            except MissingBytesError:
                pass
            else:
                return True
        return self._copy_from_workspace(path, entry, target)

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the promised bytes.

        Raises:
            MissingBytesError: neither place has them (any more).

        """
        if self._contents.has(entry.digest):
            try:
                return self._contents.get(entry.digest)
            except MissingBytesError:
                pass
        data = self._workspace.read(entry.link or path)
        if data is None or digest_bytes(data) != entry.digest:
            raise MissingBytesError(entry.digest.sha256)
        return data

    def _copy_from_contents(self, entry: FileEntry, target: Path) -> None:
        with NewFile(target, executable=entry.executable) as descriptor:
            self._contents.copy_to(entry.digest, descriptor, target.name)

    def _copy_from_workspace(self, path: str, entry: FileEntry, target: Path) -> bool:
        source = self._workspace.open(entry.link or path)
        if source is None:
            return False
        try:
            if bool(os.fstat(source).st_mode & stat.S_IXUSR) != entry.executable:
                return False
            advance = self._meter("copying", path, entry.digest.size_bytes)
            with NewFile(target, executable=entry.executable) as descriptor:
                found, _ = copy_and_hash(source, descriptor, advance)
        finally:
            os.close(source)
        if found != entry.digest.sha256:
            try_unlink(target)
        return found == entry.digest.sha256


class NewFile:
    """Create a file in place of what is at a path, and yield it, open for reading and writing, as a context manager.

    No other file's inode is written: a file or link at the path is unlinked first. If the block raises, the file is
    deleted.
    """

    __slots__ = ("_descriptor", "_mode", "_target")

    def __init__(self, target: Path, *, executable: bool) -> None:
        """Take the path and the mode of the file."""
        self._target, self._mode, self._descriptor = target, 0o777 if executable else 0o666, -1

    def __enter__(self) -> int:
        """Create the file and return its descriptor."""
        self._descriptor = _create(self._target, self._mode)
        return self._descriptor

    def __exit__(self, error: object, *_: object) -> None:
        """Close the file, and delete it after an error."""
        try:
            os.close(self._descriptor)
        except OSError:
            try_unlink(self._target)
            raise
        if error is not None:
            try_unlink(self._target)


def _create(target: Path, mode: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(target, flags, mode)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            target.unlink()


MAX_AUTHOR_FILE_BYTES = 1_048_576


class ReadableFiles(Protocol):
    """Files by path: the workspace, or what stands for it."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes at a path, or None if that is no regular file."""


class AuthorFiles(Struct, frozen=True):
    """The author's files of one project; a link out of it is not followed.

    Of each file the text that was read first is returned each time: a stage is keyed by a prompt and asked with it
    later, and a file that is saved in between must not be kept as the answer to the text before. A file that a stage
    of this build wrote (`is_written`) is returned as it is.
    """

    root: Path
    workspace: ReadableFiles
    is_written: Callable[[str], bool] = lambda _path: False
    _first: dict[str, bytes | None] = field(default_factory=dict)

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        """Return a file's text, or None and what is wrong."""
        data = self.workspace.read(path)  # each time, so that the workspace sees whether the file changed
        if not self.is_written(path):
            data = self._first.setdefault(path, data)
        if data is None:
            hint = "paths are relative to the root of the project; a link or a directory does not count"
            return None, Diagnostic("E831", f"`{path}` does not exist, or is no regular file", hint=hint)
        if len(data) > MAX_AUTHOR_FILE_BYTES:
            return None, Diagnostic(
                "E831", f"`{path}` is over {MAX_AUTHOR_FILE_BYTES:,} bytes", hint="a prompt is not that long"
            )
        try:
            return data.decode("utf-8"), None
        except UnicodeDecodeError as error:
            return None, Diagnostic("E831", f"`{path}` is not UTF-8 text (byte {error.start})", hint="save it as UTF-8")
