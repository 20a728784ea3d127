"""Get the promised bytes of a file from wherever they still are: the store, or else the workspace."""

import os
import stat
from pathlib import Path

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.model.ports import FileContentStore
from orch23.store.clone import copy_hashed
from orch23.store.durable import discard
from orch23.store.meter import Meter, silent
from orch23.store.workspace import Workspace


class Sources:
    """Files by path and promise. What it gives out was verified on the way."""

    def __init__(self, contents: FileContentStore, workspace: Workspace, meter: Meter = silent) -> None:
        """Take the two places, and who is told how far copying is."""
        self._contents = contents
        self._workspace = workspace
        self._meter = meter

    def of(self, workspace: Workspace) -> "Sources":
        """Return the same with another view of the workspace."""
        return Sources(self._contents, workspace, self._meter)

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
                found, _ = copy_hashed(source, descriptor, advance)
        finally:
            os.close(source)
        if found != entry.digest.sha256:
            discard(target)
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
            discard(self._target)
            raise
        if error is not None:
            discard(self._target)


def _create(target: Path, mode: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(target, flags, mode)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            target.unlink()
