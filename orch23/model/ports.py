"""Ports to storage and execution: content store, result store, executor.

No path of this machine is in them, so that a remote cache and a remote worker can implement them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from orch23.model.action import Action, ActionOutcome
from orch23.model.digest import Digest, FileEntry
from orch23.model.record import Record
from orch23.model.text import LineListener


class ContentStore(Protocol):
    """Bytes by digest. Safe for calls from several threads.

    Bytes that do not have their digest are never returned. `get`, `get_chunks` and `check` find them by `sha256`, so
    that a caller that knows no more than that sets any size; only `has` compares sizes.
    """

    def has(self, digest: Digest) -> bool:
        """Return whether there are bytes of this digest and size. They are verified when they are read."""

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are missing or damaged. Damaged bytes count as missing until they are put again.

        """

    def put(self, data: bytes) -> Digest:
        """Store some bytes and return their digest."""

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        """Yield the bytes of a digest in order, in pieces, so that memory does not grow with them.

        They are verified when the last piece was yielded: use what was read only if the iterator ended.

        Raises:
            MissingBytesError: as for `get`.

        """

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        """Store what the chunks make together and return its digest. Nothing is stored if they raise."""

    def check(self, digest: Digest) -> None:
        """Read and verify all bytes of a digest, also if they were verified before.

        Raises:
            MissingBytesError: as for `get`.

        """

    def sync(self) -> None:
        """Make everything that was put so far durable. A put is not durable by itself."""


@runtime_checkable
class DescriptorAccess(Protocol):
    """Transfers between a content store and open files. An implementation on this machine can share blocks."""

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open regular file, from its beginning, and return their digest.

        The file may change meanwhile: the digest is that of the stored bytes. `name` is used to show progress.
        """

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the bytes of a digest to an empty file that is open for reading and writing.

        Raises:
            MissingBytesError: they are missing or damaged. Delete the file: what was written is not verified.

        """


class FileContentStore(ContentStore, DescriptorAccess, Protocol):
    """A content store with transfers to and from open files. `store.transfers` adds these to any content store."""


class ResultStore(Protocol):
    """Records of results by stage key: what a remote cache implements. Safe for calls from several threads.

    It is believed as the records of this machine are: a result that it returns is not verified again. One that cannot
    be reached has no records, and its `put` does nothing: no build fails for that, so no method raises.
    """

    def has(self, key: str) -> bool:
        """Return whether there is a record of a stage key, not counting retained failures."""

    def by_key(self, key: str) -> Sequence[Record]:
        """Return the records of a stage key, newest first, without retained failures."""

    def put(self, record: Record) -> None:
        """Store a record durably as the newest of its key."""


class StoredRecord(Protocol):
    """A record as an index returns it in a survey."""

    @property
    def record(self) -> Record:
        """Return the record."""


class ResultIndex(ResultStore, Protocol):
    """Result records with the indexes of a project: by core, identity, stage and path. It is local to a machine.

    What is returned is ordered from the newest to the oldest, and includes retained failures if not stated otherwise.
    """

    def by_core(self, core: str) -> Sequence[Record]:
        """Return the records whose manifests differ only in verification, without retained failures."""

    def by_identity(self, identity: str) -> Sequence[Record]:
        """Return the records of what is the same stage under any name."""

    def last(self, stage: str) -> Record | None:
        """Return the newest record of a stage name that is not a retained failure."""

    def labelled(self, stage: str) -> Sequence[Record]:
        """Return the records of a stage name."""

    def owners(self, path: str) -> Sequence[Record]:
        """Return the records that have an output at a path."""

    def having(self, path: str, entry: FileEntry) -> Sequence[Record]:
        """Return the records whose output at a path has these bytes and this mode."""

    def survey(self) -> Sequence[StoredRecord]:
        """Return all records, the least recently used first."""

    def add(self, record: Record) -> None:
        """Store a record as the newest. It is durable after the next sync of the store."""

    def use(self, record: Record) -> None:
        """Note that a record was used. This never fails."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What an executor of a plugin is made with.

    `contents` has the inputs of actions and takes their outputs; `workers` is how many stages run at once; `redact`
    returns a text without secrets, and has to be used on what a process prints before it is shown.
    """

    contents: ContentStore
    workers: int
    environ: Mapping[str, str]
    redact: Callable[[str], str]


class Executor(Protocol):
    """Runs actions, on this machine or elsewhere. The inputs and the results are in a content store, by digest."""

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """Run an action to its end, in the calling thread, and return its outcome. Never raises.

        `hear` gets each line that the process prints, while it runs; a long one is cut when it is shown. An executor
        that cannot tell may leave that out.
        """

    def cancel(self) -> None:
        """Kill all running actions and start no more: their outcomes are `Cancelled`."""

    def close(self) -> None:
        """Release all resources. A second call has no effect."""
