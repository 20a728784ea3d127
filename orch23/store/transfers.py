"""Add transfers to and from open files to a content store of a plugin."""

import os
from collections.abc import Iterator
from typing import cast

from orch23.model.digest import Digest
from orch23.model.ports import ContentStore, DescriptorAccess, FileContentStore
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
