"""Adapt content stores and result stores elsewhere, such as a remote cache, to the store's ports."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from orch23.model.digest import Digest, FileEntry
from orch23.model.ports import ContentStore, DescriptorAccess, FileContentStore, ResultIndex, ResultStore, StoredRecord
from orch23.model.record import Record
from orch23.store.file_copy import CHUNK_BYTES
from orch23.store.safe_files import write_all


def with_file_access(contents: ContentStore) -> FileContentStore:
    """Return the store itself if it transfers files, else one around it that does."""
    if isinstance(contents, DescriptorAccess):
        return cast("FileContentStore", contents)
    return _Transfers(contents)


class _Transfers:
    """A content store that reads files into chunks and writes chunks to files."""

    def __init__(self, contents: ContentStore) -> None:
        """Take the store that has the bytes."""
        self._contents = contents

    def has(self, digest: Digest) -> bool:
        """See the port."""
        return self._contents.has(digest)

    def get(self, digest: Digest) -> bytes:
        """See the port."""
        return self._contents.get(digest)

    def put(self, data: bytes) -> Digest:
        """See the port."""
        return self._contents.put(data)

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        """See the port."""
        return self._contents.get_chunks(digest)

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        """See the port."""
        return self._contents.put_chunks(chunks)

    def check(self, digest: Digest) -> None:
        """See the port."""
        self._contents.check(digest)

    def sync(self) -> None:
        """See the port."""
        self._contents.sync()

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open file by its chunks."""
        del name
        return self._contents.put_chunks(descriptor_chunks(descriptor))

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the chunks of a digest to an open file."""
        del name
        for chunk in self._contents.get_chunks(digest):
            write_all(descriptor, chunk)


def descriptor_chunks(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from its beginning, without moving its position."""
    at = 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, at):
        at += len(chunk)
        yield chunk


class CombinedResults:
    """Records with a second place for results by stage key. Safe for calls from several threads.

    The other place is asked for a key that has no record here. What it returns is written here once it is used, so
    that a command that only reads writes nothing. Results are put into both. Records of failures, of `reset` and of
    `release` are not results, and stay here.
    """

    def __init__(self, here: ResultIndex, elsewhere: ResultStore) -> None:
        """Take the records of this machine, and the other place."""
        self._here, self._elsewhere = here, elsewhere
        self._found: dict[str, tuple[Record, ...]] = {}

    def has(self, key: str) -> bool:
        """See the port."""
        return bool(self.by_key(key))

    def by_key(self, key: str) -> Sequence[Record]:
        """See the port. The other place is asked once for each key."""
        known = self._here.by_key(key)
        if known:
            return known
        if key not in self._found:
            found = self._elsewhere.by_key(key)
            self._found[key] = tuple(one for one in found if one.key == key and not one.failed)
        return self._found[key]

    def put(self, record: Record) -> None:
        """See the port."""
        self._here.put(record)
        self._share(record)

    def add(self, record: Record) -> None:
        """See the port."""
        self._here.add(record)
        self._share(record)

    def use(self, record: Record) -> None:
        """Note that a record was used, and keep it here if it is from elsewhere."""
        if record.key in self._found and not self._here.has(record.key):
            self._here.add(record)
        self._here.use(record)

    def _share(self, record: Record) -> None:
        if not record.failed:
            self._elsewhere.put(record)

    def by_core(self, core: str) -> Sequence[Record]:
        """See the port."""
        return self._here.by_core(core)

    def by_identity(self, identity: str) -> Sequence[Record]:
        """See the port."""
        return self._here.by_identity(identity)

    def last(self, stage: str) -> Record | None:
        """See the port."""
        return self._here.last(stage)

    def labelled(self, stage: str) -> Sequence[Record]:
        """See the port."""
        return self._here.labelled(stage)

    def owners(self, path: str) -> Sequence[Record]:
        """See the port."""
        return self._here.owners(path)

    def having(self, path: str, entry: FileEntry) -> Sequence[Record]:
        """See the port."""
        return self._here.having(path, entry)

    def survey(self) -> Sequence[StoredRecord]:
        """See the port."""
        return self._here.survey()
