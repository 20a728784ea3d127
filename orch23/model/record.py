"""The proof that a stage was up to date: its key, its manifest, its outputs and the exchanges they came from."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from orch23.model.digest import FileEntry, digest_json
from orch23.model.manifest import Manifest


class Base(Struct, frozen=True):
    """The bytes that a run started from at a path, where its base had moved (ADR 19).

    `instead_of` is what it would have started from otherwise: the original, or the version of the item before; None
    where there was no file. The base is in force only as long as that is still so.
    """

    start: FileEntry
    instead_of: FileEntry | None = None


class Record(Struct, frozen=True, kw_only=True):
    """Written after verify passed: a verifying trace and, with the store, a constructive one (a la Carte).

    `stage` is only a label: the key has no name in it, so a renamed stage finds its record.
    `exchanges` are fingerprints; laid in this order on the base they give the outputs again.
    `originals` says, for outputs of a chain, what a person had at that path (None: nothing).
    `bases` are the paths where the run started from other bytes than these.
    `accepted` are the outputs whose bytes a user wrote, not a run.
    `git` maps the sha256 of outputs, originals and bases to their git blob ids, so that git can give the bytes back.
    `texts` is the digest of what the prompt was rendered from besides the contents of inputs.
    A kept failure, or what `reset` retained (`failed`), makes nothing fresh and restores nothing; its bytes are merely
    known.
    """

    stage: str
    key: str
    manifest: Manifest
    outputs: Mapping[str, FileEntry] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    originals: Mapping[str, FileEntry | None] = field(default_factory=dict)
    bases: Mapping[str, Base] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    git: Mapping[str, str] = field(default_factory=dict)
    texts: str = ""
    failed: bool = False


def same_result(one: Record, other: Record) -> bool:
    """Return whether two records have the same outputs and deleted the same files."""
    return (dict(one.outputs), one.deleted) == (dict(other.outputs), other.deleted)


def retained_key(key: str) -> str:
    """Return the key of what `reset` retains of a record with this key: no stage has it."""
    return digest_json({"retained": key})


class LockFile(Struct, frozen=True):
    """The committed records of one pipeline, by stage name.

    `retained` is what `reset` left of records: whose files these are, and what they started from. A stage has no entry
    there once it has a record again.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    retained: Mapping[str, Record] = field(default_factory=dict)

    def without(self, stages: Collection[str]) -> "LockFile":
        """Return the lock file without these stages, and without the items of each of them."""

        def stays(name: str) -> bool:
            return name not in stages and name.partition("@")[0] not in stages

        return LockFile(
            {name: record for name, record in self.records.items() if stays(name)},
            {name: record for name, record in self.retained.items() if stays(name)},
        )

    def owning(self) -> dict[str, Record]:
        """Return what is known of each stage: its record, else what was retained of it."""
        return {**self.retained, **self.records}

    def originals(self) -> dict[str, FileEntry | None]:
        """Return the original of every path that any record names."""
        found: dict[str, FileEntry | None] = {}
        for _, record in sorted(self.owning().items()):
            found.update(record.originals)
        return found
