"""A content store in a temporary folder, which grows until it is removed as a whole."""

import os
from pathlib import Path

from msgspec import Struct

from orch23.store.content_store import DiskContentStore
from orch23.store.tree_removal import remove_tree


class ScratchContents(Struct, frozen=True):
    """A content store that nothing relies on later."""

    contents: DiskContentStore

    @property
    def added_bytes(self) -> int:
        """The size of all that was stored."""
        return self.contents.added_bytes

    def remove(self) -> None:
        """Remove the store with all its bytes."""
        remove_tree(self.contents.folder)


def open_scratch(folder: Path) -> ScratchContents:
    """Return a new, empty store below a folder."""
    return ScratchContents(DiskContentStore(folder / os.urandom(8).hex()))
