"""What earlier builds of a pipeline left to the next: its lock file and its history, all of it or a part."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orch23.model.record import LockFile
from orch23.store.history import History, read_history
from orch23.store.lock_file import lock_digest, read_lock, write_lock
from orch23.store.lock_part import read_part, write_part


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

    def write(self, lock: LockFile, pipeline_name: str) -> None:
        """Let these be the records of the lock file."""


def lock_path(root: Path, pipeline_file: str) -> Path:
    """Return the lock file's place: beside the pipeline, `x.yaml` -> `x.lock`."""
    return (root / pipeline_file).with_suffix(".lock")


@dataclass(frozen=True, slots=True)
class WholeMemory:
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

    def write(self, lock: LockFile, pipeline_name: str) -> None:
        """Let these be the records of the lock file.

        Raises:
            SafetyError: a directory of its path is a link.

        """
        write_lock(self.root, self.lock_path.relative_to(self.root).as_posix(), lock, pipeline_name)


@dataclass(frozen=True, slots=True)
class PartialMemory:
    """The records of some stages, where the build before found nothing to do: it left nothing else."""

    root: Path
    pipeline_file: str
    stages: Collection[str]

    @property
    def lock_path(self) -> Path:
        """Give the lock file's place."""
        return lock_path(self.root, self.pipeline_file)

    def read(self) -> tuple[LockFile, History]:
        """Return the records of the stages.

        Raises:
            CorruptStateError: the lock file does not hold each of them once, as it was written.

        """
        return read_part(self.lock_path, self.stages), History()

    def write(self, lock: LockFile, pipeline_name: str) -> None:
        """Let these be the records of the stages; those of others stay.

        Raises:
            SafetyError: a directory of its path is a link.

        """
        write_part(self.root, self.lock_path.relative_to(self.root).as_posix(), lock, pipeline_name)
