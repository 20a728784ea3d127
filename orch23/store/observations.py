"""Note what a process read of a project, so that a snapshot shows whether it has changed since."""

import contextlib
import os
from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.digest import FileEntry
from orch23.model.paths import with_above
from orch23.snapshot.signatures import LINK_TARGET, NO_ENTRY, RACY, is_racy_signature, signature
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.safe_files import FileStamp


class Observations(Struct):
    """The first result of each read of the project at `base`, which ends in `/`: decisions are based on it.

    A path for which a later read found something else is unsettled. `note_written` forgets what this build changes.
    `present` has whether a file is at each path that was searched, `missing` the paths without anything to which links
    lead, and `missing_folders` those that are missing, since a link there later would be an error.
    """

    base: str
    entries: dict[str, FileEntry] = field(default_factory=dict)
    opened: dict[str, FileStamp | None] = field(default_factory=dict)
    present: dict[str, bool] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    missing_folders: set[str] = field(default_factory=set)
    unsettled: set[str] = field(default_factory=set)
    _listed: dict[str, str] = field(default_factory=dict)
    _entries: dict[str, str] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)

    def note_presence(self, path: str, *, is_there: bool) -> None:
        """Note whether there is a file at a path."""
        if self.present.setdefault(path, is_there) is not is_there:
            self.unsettled.add(path)

    def note_entry(self, path: str, entry: FileEntry | None) -> None:
        """Note the entry of a file; None if it was deleted before it could be hashed."""
        first = entry if entry is None else self.entries.setdefault(path, entry)
        # The same object in most cases, which costs less to compare.
        if entry is None or (first is not entry and first != entry):
            self.unsettled.add(path)

    def note_unchanged(self, files: Mapping[str, FileEntry]) -> None:
        """Note the entries of files that are as they were hashed."""
        self.unsettled |= {path for path in files if not self.present.setdefault(path, True)}
        self.unsettled |= {path for path, entry in files.items() if self.entries.setdefault(path, entry) != entry}

    def note_opened(self, path: str, stamp: FileStamp | None) -> None:
        """Note the stamp of a file that was opened; None if there is no file."""
        if self.opened.setdefault(path, stamp) != stamp:
            self.unsettled.add(path)

    def note_link(self, link: str, text: str) -> None:
        """Note the target of the link at an absolute path. If it changes, no snapshot can be made."""
        if self._links.setdefault(link, text) != text:
            self._links[link] = ""

    def note_listed(self, folder: str, now_ns: int) -> bool:
        """Note that a folder, `""` or ending in `/`, is about to be listed; return whether `note_entries` needs it."""
        if not self._listed.get(folder):
            # Taken before the listing, so that a file added meanwhile changes it.
            self._listed[folder] = signature(self._absolute(folder))
            self._entries.pop(folder, None)
            if not is_racy_signature(self._listed[folder], now_ns):
                return False
            self._entries[folder] = ""
        return folder in self._entries

    def note_entries(self, folder: str, entries: str) -> None:
        """Note the entries of a folder that was too young to trust its times, as a signature."""
        first = self._entries[folder] or entries
        self._entries[folder] = entries if first == entries else RACY

    def note_written(self, path: str) -> None:
        """Forget a path that this build wrote, and the signatures of the folders above it."""
        self.present.pop(path, None)
        self.entries.pop(path, None)
        self.opened.pop(path, None)
        self.unsettled.discard(path)
        self.missing.discard(path)
        above = tuple(with_above(path.rpartition("/")[0]))
        self.missing.difference_update(above)
        # The signature of a folder is taken when it is listed again.
        for folder in ("", *(f"{one}/" for one in above)):
            if folder in self._listed:
                self._listed[folder] = ""

    def add_folders(self, snapshot: StatSnapshot) -> bool:
        """Add the folders and links to a snapshot; return False if a link has changed."""
        folders = {path.rstrip("/") for path in self._listed}
        folders |= {path.rpartition("/")[0] for path in self.present}
        for folder in sorted({above for path in folders for above in with_above(path)}):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = os.lstat(self.base + folder)
                snapshot.folders.append(folder)
                snapshot.inodes.extend((found.st_dev, found.st_ino))
        for folder, found_first in sorted(self._listed.items()):
            whole = self._absolute(folder)
            now = signature(whole)
            snapshot.outside[whole] = RACY if now != found_first else self._entries.get(folder) or now
        for path in (*self.missing_folders, *self.missing):
            snapshot.outside[self._absolute(path)] = NO_ENTRY
        snapshot.outside.update((link, f"{LINK_TARGET}{text}") for link, text in self._links.items())
        return all(self._links.values())

    def _absolute(self, path: str) -> str:
        return f"{self.base}{path}".rstrip("/")
