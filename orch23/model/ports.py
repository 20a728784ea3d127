"""Ports to storage, execution and reports: content store, records, shared cache, executor, sink.

They contain no path of this machine, so that a remote cache and a remote worker can implement them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from orch23.model.action import Action, ActionOutcome
from orch23.model.digest import Digest, FileEntry
from orch23.model.record import Record
from orch23.model.sink import Sink  # noqa: F401 - plugins import it from here
from orch23.model.text import LineListener


class RunningActions:
    """Where actions run on other machines, so that the build after a killed one finds them. Never raises.

    Safe for calls from several threads. `engine` names the engine with its address, `place` the execution there. This
    class keeps nothing: it is for an executor without a project.
    """

    def take(self, engine: str, action: Digest) -> str:
        """Return the place of an action that an earlier build left running, only once; empty if there is none."""
        del engine, action
        return ""

    def note(self, engine: str, action: Digest, place: str) -> None:
        """Keep a place until it is forgotten."""

    def forget(self, engine: str, place: str) -> None:
        """Remove a place: its result was fetched, or it was cancelled or lost."""


NOTHING_RUNS = RunningActions()


class ContentStore(Protocol):
    """Bytes by digest. Safe for calls from several threads.

    Bytes that do not have their digest are never returned. `get`, `get_chunks` and `check` find bytes by `sha256`: a
    caller that does not know the size may set any; only `has` compares sizes.
    """

    def has(self, digest: Digest) -> bool:
        """Return whether the store has bytes of this digest and size. They are verified when they are read."""

    def absent(self, digests: Iterable[Digest]) -> list[Digest]:
        """Return the digests for which `has` is false."""

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of a digest.

        Raises:
            MissingBytesError: they are missing or damaged. Damaged bytes are missing until they are stored again.
        """

    def put(self, data: bytes) -> Digest:
        """Store some bytes and return their digest."""

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        """Yield the bytes of a digest in order, in pieces, so that memory does not grow with them.

        They are verified after the last piece: use them only if the iterator ended without an error.

        Raises:
            MissingBytesError: as for `get`.
        """

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        """Store the joined chunks and return their digest. Nothing is stored if the iteration raises."""

    def check(self, digest: Digest) -> None:
        """Read and verify all bytes of a digest, also if they were verified before.

        Raises:
            MissingBytesError: as for `get`.
        """

    def sync(self) -> None:
        """Make everything that was put so far durable. A put is not durable by itself."""


class FileContentStore(ContentStore, Protocol):
    """A content store with transfers to and from open files, of which it may share the blocks (ADR 30)."""

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        """Store the bytes of an open regular file, from its beginning, and return their digest.

        The file may change meanwhile: the digest is computed from the stored bytes. `name` is used to show progress.
        """

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        """Write the bytes of a digest to an empty file that is open for reading and writing.

        Raises:
            MissingBytesError: they are missing or damaged. Delete the file: what was written is not verified.
        """


class ResultIndex(Protocol):
    """Result records with the indexes of a project: by key, core, identity, stage and path. Local to a machine.

    What is returned is ordered from the newest to the oldest, and includes retained failures if not stated otherwise.
    Safe for calls from several threads.
    """

    def by_key(self, key: str) -> Sequence[Record]:
        """Return the records of a stage key, without retained failures."""

    def proven(self, key: str) -> Sequence[Record]:
        """Return the records of a key that builds of this user made, with retained failures. Others make claims."""

    def by_core(self, core: str) -> Sequence[Record]:
        """Return the records whose manifests differ in verification only, without retained failures."""

    def by_identity(self, identity: str) -> Sequence[Record]:
        """Return the records of the same stage under any name."""

    def labelled(self, stage: str) -> Sequence[Record]:
        """Return the records of a stage name."""

    def owners(self, path: str) -> Sequence[Record]:
        """Return the records that have an output at a path."""

    def having(self, path: str, entry: FileEntry) -> Sequence[Record]:
        """Return the records whose output at a path has these bytes and this mode."""

    def everything(self) -> Sequence[Record]:
        """Return all records, the least recently used first."""

    def put(self, record: Record, *, durable: bool = True) -> None:
        """Store a record as the newest of its key; unless `durable`, it is so after the next sync of the store."""

    def use(self, record: Record) -> None:
        """Note that a record was used. This never fails."""


ChunkSource: TypeAlias = Callable[[], Iterable[bytes]]
"""Returns the bytes of a blob in chunks, from its beginning. It is called again if an upload is tried again."""


class SharedCache(Protocol):
    """Results of actions, and blobs by digest, that several machines share (ADR 56): a backend of `cache.client`.

    Safe for calls from several threads. A backend makes one try, and verifies nothing: the client above it retries
    and verifies. Every method raises `CacheFault` if the cache cannot be reached or its reply makes no sense.
    """

    def entry(self, digest: Digest) -> bytes | None:
        """Return the bytes of the ActionResult of an Action, by the digest of the Action; None if there are none."""

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        """Store the ActionResult of an Action. An entry that exists stays, if the cache can enforce that.

        `replace` is for an entry that cannot be used, such as one whose blobs were evicted: it would stay for ever.
        """

    def missing(self, digests: Collection[Digest]) -> Collection[Digest]:
        """Return the digests without a blob of their size. Their bytes are not verified."""

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        """Return the chunks of a blob from an offset on, of a few MiB at most and not verified; None if there is none.

        The iterator raises `CacheFault` as well. It is a generator, to close if it is not read to its end.
        """

    def put_blob(self, digest: Digest, chunks: ChunkSource) -> None:
        """Store a blob. If the chunks raise, it raises, and nothing is stored."""

    def discard(self, digest: Digest) -> None:
        """Remove a blob whose bytes are wrong, so that a put stores it again.

        A cache that verifies each upload, or replaces a blob by each upload, does nothing.
        """

    def close(self) -> None:
        """Release all resources. A second call has no effect."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """The arguments for an executor of a plugin.

    `contents` has the inputs of actions and gets their outputs; `workers` is the maximum of parallel stages; `redact`
    returns a text without secrets, and must be used on the output of a process before it is shown. `scheduler` and
    `cache` are the addresses of `--scheduler` and `--cache`, or empty; `open_cache` opens the servers of both with the
    credentials of the user. `warn` shows a text to the user. `running` keeps where actions run, if that is to be kept.
    """

    contents: ContentStore
    workers: int
    environ: Mapping[str, str]
    redact: Callable[[str], str]
    open_cache: Callable[[str], SharedCache]
    scheduler: str = ""
    cache: str = ""
    warn: Callable[[str], object] = str
    running: RunningActions | None = None


class Executor(Protocol):
    """Runs actions, on this machine or elsewhere. The inputs and the results are in a content store, by digest."""

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """Run an action to its end, in the calling thread, and return its outcome. Never raises.

        `hear` gets each line that the process prints, while it runs; long lines are cut when shown. An executor
        that cannot do this may ignore it.
        """

    def cancel(self) -> None:
        """Kill all running actions and start no more: their outcomes are `Cancelled`."""

    def close(self) -> None:
        """Release all resources. A second call has no effect."""
