"""The project as one stage sees it: the port through which resolving looks at files."""

from typing import Protocol

from orch23.model.digest import FileEntry


class Tree(Protocol):
    """The files a stage may see: sources as on disk, outputs of others as their records say, chains by version."""

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path for this stage, or None."""

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a glob means for this stage; of those that are excluded no link is followed."""

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing: without what this pipeline made. `exclude` is as for `matching`."""

    def versions(self) -> dict[str, FileEntry]:
        """Return the base of a stage in a chain: the newest earlier version, or version 0, of each of its outputs."""

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry.

        Raises:
            MissingBytesError: neither the store nor the disk has them any more.

        """
