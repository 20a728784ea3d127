"""Get the promised bytes of a file from wherever they still are: the store, or else the workspace."""

import os
import stat
from pathlib import Path

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError
from orch23.store.clone import copy_hashed
from orch23.store.contents import Contents, create_file
from orch23.store.durable import discard
from orch23.store.meter import Advance, Meter, silent
from orch23.store.workspace import Workspace


class Sources:
    """Files by path and promise. What it gives out was verified on the way."""

    def __init__(self, contents: Contents, workspace: Workspace, meter: Meter = silent) -> None:
        """Take the two places, and who is told how far copying is."""
        self._contents = contents
        self._workspace = workspace
        self._meter = meter

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        """Make `target` a file of the promised bytes and mode; say False if neither place has them (any more)."""
        if self._contents.has(entry.digest):
            try:
                self._contents.copy_to(entry.digest, target, executable=entry.executable)
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
                return self._contents.read(entry.digest)
            except MissingBytesError:
                pass
        data = self._workspace.read(entry.link or path)
        if data is None or digest_bytes(data) != entry.digest:
            raise MissingBytesError(entry.digest.sha256)
        return data

    def _copy_from_workspace(self, path: str, entry: FileEntry, target: Path) -> bool:
        source = self._workspace.open(entry.link or path)
        if source is None:
            return False
        try:
            if bool(os.fstat(source).st_mode & stat.S_IXUSR) != entry.executable:
                return False
            advance = self._meter("copying", path, entry.digest.size_bytes)
            found = _copy(source, target, 0o777 if entry.executable else 0o666, advance)
        finally:
            os.close(source)
        if found != entry.digest.sha256:
            discard(target)
        return found == entry.digest.sha256


def _copy(source: int, target: Path, mode: int, advance: Advance) -> str:
    """Copy a descriptor to a new file and return the sha256 of what was copied."""
    descriptor = create_file(target, mode)
    try:
        try:
            found, _ = copy_hashed(source, descriptor, advance)
        finally:
            os.close(descriptor)
    except BaseException:
        discard(target)
        raise
    return found
