"""Give any content store transfers to and from open files, made of its chunks where it has none of its own."""

import os
from collections.abc import Iterable, Iterator
from typing import cast

from orch23.model.digest import Digest
from orch23.model.ports import ContentStore, DescriptorAccess, FileContentStore
from orch23.store.clone import CHUNK_BYTES
from orch23.store.durable import write_all


def with_transfers(contents: ContentStore) -> FileContentStore:
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
        return self._contents.put_chunks(chunks_of(descriptor))

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the chunks of a digest to an open file."""
        del name
        for chunk in self._contents.get_chunks(digest):
            write_all(descriptor, chunk)


def chunks_of(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from its beginning, without moving its position."""
    at = 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, at):
        at += len(chunk)
        yield chunk
