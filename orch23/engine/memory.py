"""What earlier builds of a pipeline left to the next: its lock file and its history, all of it or a part."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import digest_bytes
from orch23.model.errors import CorruptStateError
from orch23.model.record import LockFile
from orch23.store.beneath import read_regular
from orch23.store.codes import E_LOCK_DAMAGED
from orch23.store.history import History, read_history
from orch23.store.lock_file import Written, lock_digest, read_lock, read_some, write_lock, write_some


class Memory(Protocol):
    """The lock file of a pipeline, and what its runs left."""

    @property
    def lock_path(self) -> Path:
        """Give the lock file's place."""

    def read(self) -> tuple[LockFile, History]:
        """Return both as they are now.

        Raises:
            CorruptStateError: the lock file or the journal is damaged.

        """

    def write(self, lock: LockFile, pipeline_name: str) -> Written:
        """Let these be the records of the lock file; the sha256 of the result is empty if its bytes are not known."""


def lock_path(root: Path, pipeline_file: str) -> Path:
    """Return the lock file's place: beside the pipeline, `x.yaml` -> `x.lock`."""
    return (root / pipeline_file).with_suffix(".lock")


class WholeMemory(Struct, frozen=True):
    """All that there is."""

    root: Path
    logs: Path
    pipeline_file: str

    @property
    def lock_path(self) -> Path:
        """Give the lock file's place."""
        return lock_path(self.root, self.pipeline_file)

    def read(self) -> tuple[LockFile, History]:
        """Return both as they are now.

        Raises:
            CorruptStateError: the lock file or the journal is damaged.

        """
        place = self.lock_path
        history = read_history(self.logs, self.pipeline_file, lock_digest(place))
        return read_lock(place), history

    def write(self, lock: LockFile, pipeline_name: str) -> Written:
        """Let these be the records of the lock file.

        Raises:
            SafetyError: a directory of its path is a link.

        """
        return write_lock(self.root, self.lock_path.relative_to(self.root).as_posix(), lock, pipeline_name)


class PartialMemory(Struct):
    """The records of some stages, where the build before found nothing to do: it left nothing else.

    `sha256` is that of the lock file that the build before left, in hex. A file with the change
    time `ctime_ns` still is that one; if that is 0, it is hashed. `_data` are its bytes, once it was read.
    """

    root: Path
    pipeline_file: str
    stages: Collection[str]
    sha256: str
    ctime_ns: int = 0
    _data: bytes = b""

    @property
    def lock_path(self) -> Path:
        """Give the lock file's place."""
        return lock_path(self.root, self.pipeline_file)

    def read(self) -> tuple[LockFile, History]:
        """Return the records of the stages.

        Raises:
            CorruptStateError: the lock file is not the one that the build before left.

        """
        place = self.lock_path
        self._data = read_regular(place) or b""
        if not self._is_unchanged() and digest_bytes(self._data).sha256 != self.sha256:
            message = "the lock file was changed since the last build"
            hint = "build again: the whole of it is read then"
            raise CorruptStateError(Diagnostic(E_LOCK_DAMAGED, message, Location(str(place), 1, 1), hint))
        return read_some(place, self.stages, self._data, is_known=True), History()

    def write(self, lock: LockFile, pipeline_name: str) -> Written:
        """Let these be the records of the stages; those of others stay.

        The sha256 of the result is empty if the file was changed since it was read.

        Raises:
            SafetyError: a directory of its path is a link.

        """
        place = self.lock_path.relative_to(self.root).as_posix()
        return write_some(self.root, place, lock, pipeline_name, self._data, is_unchanged=self._is_unchanged())

    def _is_unchanged(self) -> bool:
        """Return whether the file's change time shows that it is the one that the build before left."""
        with contextlib.suppress(OSError):
            return self.ctime_ns != 0 and os.lstat(self.lock_path).st_ctime_ns == self.ctime_ns
        return False
