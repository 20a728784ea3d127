"""Say whose the bytes at a path are: a run's, a user's who had them accepted, or git's. Reads; never writes."""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from msgspec import Struct, field

from orch23.engine.locked import Locked
from orch23.model.digest import FileEntry, digest_bytes, git_blob_id
from orch23.model.errors import Orch23Error
from orch23.model.pipeline import Pipeline
from orch23.model.record import Record
from orch23.store.opening import Store


class Git(Protocol):
    """What git has of the project."""

    was_asked: bool
    """Whether any of the questions below was asked since this was set to false."""

    def committed(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return the blob ids that HEAD has at these paths; a path that is not in its tree is left out."""

    def bytes_of(self, blob_id: str) -> bytes | None:
        """Return the bytes of a blob, or None."""

    def bytes_at(self, path: str) -> Iterator[bytes]:
        """Give the bytes that HEAD has at a path, and those that the index has."""


class NoGit:
    """A project without git: nothing is committed."""

    was_asked: bool = False

    def committed(self, paths: Collection[str]) -> Mapping[str, str]:
        """Return nothing."""
        del paths
        return {}

    def bytes_of(self, blob_id: str) -> bytes | None:
        """Return nothing."""
        del blob_id
        return None

    def bytes_at(self, path: str) -> Iterator[bytes]:
        """Give nothing."""
        del path
        return iter(())


RELEASED = "released"
"""The kind of a record that says whose bytes are by now: those of the user, who released them."""


class Ownership(Struct):
    """Answers by the records of the store and of one lock file, and by git where these do not decide."""

    store: Store
    pipeline: Pipeline
    locked: Locked
    git: Git
    _committed: dict[str, str | None] = field(default_factory=dict)
    _blobs: dict[str, str] | None = None

    def records_of(self, path: str, entry: FileEntry) -> Iterator[Record]:
        """Give the records whose output at a path is this very file."""
        yield from self.locked.having(path, entry)
        yield from self.store.records.having(path, entry)

    def is_known(self, path: str, entry: FileEntry) -> bool:
        """Return whether some record, of any key, has these bytes at this path."""
        return next(self.records_of(path, entry), None) is not None

    def is_accepted(self, path: str, entry: FileEntry) -> bool:
        """Return whether a user wrote these bytes and had them accepted, or took them over with `orch23 release`."""
        return any(path in self._accepted(record) for record in self.records_of(path, entry))

    def is_released(self, path: str, entry: FileEntry) -> bool:
        """Return whether these bytes were released by `orch23 release`."""
        return any(record.manifest.get("kind") == RELEASED for record in self.store.records.having(path, entry))

    def is_committed(self, path: str) -> bool:
        """Return whether the path is in the tree of HEAD, with whatever bytes."""
        return self._blob(path) is not None

    def equals_head(self, path: str, entry: FileEntry) -> bool:
        """Return whether the file on disk is this one, and HEAD has the same bytes."""
        blob = self._blob(path)
        data = self.store.workspace.read(path) if blob is not None else None
        if blob is None or data is None or digest_bytes(data) != entry.digest:
            return False
        return git_blob_id(data, like=blob) == blob

    def look_up(self, paths: Collection[str]) -> None:
        """Ask git for many paths in one call; later questions about them ask no more."""
        missing = [path for path in paths if path not in self._committed]
        if missing:
            found = self.git.committed(missing)
            self._committed.update((path, found.get(path)) for path in missing)

    def bytes_from_git(self, path: str, entry: FileEntry) -> bytes | None:
        """Return the bytes of a file that only git may still have: by a recorded blob id, else by its path."""
        blob = self._blob_ids().get(entry.digest.sha256)
        found = [data] if blob is not None and (data := self.git.bytes_of(blob)) is not None else []
        return next((data for data in (*found, *self.git.bytes_at(path)) if digest_bytes(data) == entry.digest), None)

    def _blob(self, path: str) -> str | None:
        self.look_up((path,))
        return self._committed[path]

    def _blob_ids(self) -> Mapping[str, str]:
        if self._blobs is None:
            everything = (*self.locked.records, *(held.record for held in self.store.records.survey()))
            self._blobs = {sha256: blob for record in everything for sha256, blob in record.git.items()}
        return self._blobs

    def _accepted(self, record: Record) -> Collection[str]:
        """Return the outputs of a record that a user wrote; of an older record the exchange tells, and it means all."""
        if record.accepted or len(record.exchanges) != 1:
            return record.accepted
        for folder in (*self.pipeline.transcript_folders, None):
            try:
                exchange = self.store.exchanges.get(record.exchanges[0], folder)
            except Orch23Error:  # a damaged transcript is reported where its response is needed
                continue
            if exchange is not None:
                return tuple(record.outputs) if exchange.outcome == "accepted_by_hand" else ()
        return ()
