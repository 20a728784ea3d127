"""Adapt content stores and result stores elsewhere, such as a remote cache, to the store's ports."""

import os
from collections.abc import Iterator, Sequence
from typing import cast

from orch23.model.digest import Digest
from orch23.model.ports import ContentStore, DescriptorAccess, FileContentStore, ResultIndex, ResultStore
from orch23.model.record import Record
from orch23.store.file_copy import CHUNK_BYTES
from orch23.store.safe_files import write_all


def with_file_access(contents: ContentStore) -> FileContentStore:
    """Return the store itself if it reads and writes open files, else an adapter around it that does."""
    if isinstance(contents, DescriptorAccess):
        return cast("FileContentStore", contents)
    return _Transfers(contents)


class _Transfers:
    """Adds access to open files to a content store that has only chunks."""

    def __init__(self, contents: ContentStore) -> None:
        self.has, self.check, self.sync = contents.has, contents.check, contents.sync
        self.get, self.get_chunks = contents.get, contents.get_chunks
        self.put, self.put_chunks = contents.put, contents.put_chunks

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open file by its chunks."""
        del name
        return self.put_chunks(descriptor_chunks(descriptor))

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the chunks of a digest to an open file."""
        del name
        for chunk in self.get_chunks(digest):
            write_all(descriptor, chunk)


def descriptor_chunks(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from its beginning; the position of the file does not change."""
    at = 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, at):
        at += len(chunk)
        yield chunk


class CombinedResults:
    """Local records with a second store of results by stage key. Safe for calls from several threads.

    The second store is used for a key without a local record. Its result becomes a local record when it is used, so
    that commands that only read write nothing. Results are put into both stores. Records of failures, of `reset` and of
    `release` are not results, and stay local.
    """

    def __init__(self, here: ResultIndex, elsewhere: ResultStore) -> None:
        """Use the local records first, then the results elsewhere."""
        self._here, self._elsewhere = here, elsewhere
        # Only keys are shared: all other lookups are local.
        self.by_core, self.by_identity, self.having = here.by_core, here.by_identity, here.having
        self.last, self.labelled, self.owners, self.survey = here.last, here.labelled, here.owners, here.survey
        self._found: dict[str, tuple[Record, ...]] = {}

    def has(self, key: str) -> bool:
        """See the port."""
        return bool(self.by_key(key))

    def by_key(self, key: str) -> Sequence[Record]:
        """See the port. The second store is called once for each key."""
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
        """Note that a record was used, and store it locally if it is from elsewhere."""
        if record.key in self._found and not self._here.has(record.key):
            self._here.add(record)
        self._here.use(record)

    def _share(self, record: Record) -> None:
        if not record.failed:
            self._elsewhere.put(record)
