"""The proof that a stage was up to date: its key, its manifest, its outputs and the exchanges they came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orch23.model.digest import FileEntry
from orch23.model.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Written after verify passed: a verifying trace and, with the store, a constructive one (a la Carte).

    `stage` is only a label: the key has no name in it, so a renamed stage finds its record.
    `exchanges` are fingerprints; laid in this order on the base they give the outputs again.
    `originals` says, for outputs of a chain, what a person had at that path (None: nothing).
    A kept failure (`failed`) makes nothing fresh and restores nothing; its bytes are merely known.
    """

    stage: str
    key: str
    manifest: Manifest
    outputs: Mapping[str, FileEntry] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    originals: Mapping[str, FileEntry | None] = field(default_factory=dict)
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LockFile:
    """The committed records of one pipeline, by stage name."""

    records: Mapping[str, Record] = field(default_factory=dict)

    def originals(self) -> dict[str, FileEntry | None]:
        """Return the version 0 of every path that any record names."""
        found: dict[str, FileEntry | None] = {}
        for name in sorted(self.records):
            found.update(self.records[name].originals)
        return found
