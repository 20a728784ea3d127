"""Show the files of a project by their digests; hash a file only when its stat has changed."""

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path

from msgspec.structs import replace

from orch23.model.digest import FileEntry
from orch23.model.errors import SafetyError
from orch23.model.file_policy import GITIGNORE
from orch23.model.paths import OWN_FOLDERS, is_glob, is_own_file, normalize_pattern, static_prefix
from orch23.snapshot.stat_snapshot import LINK_TARGET, NO_ENTRY, RACY, FileState, StatSnapshot, is_racy, signature
from orch23.store.file_copy import FileProgress, hash_file, no_progress
from orch23.store.index import IndexFaultError, StoreIndex
from orch23.store.index_tables import FileStamp, HashedFile, pack_hashed_file, stamped_entry, unpack_hashed_file
from orch23.store.listing import FILE_KIND, FOLDER_KIND, LINK_KIND, DeclaredOutputs, Listing
from orch23.store.safe_files import is_temp, open_file, read_and_close, resolve_links, split_path, unsafe_path_error

FILES_TABLE = "files"
"""The table of the index with what files were when they were hashed, by a digest of their path."""
_TRIES = 8
_ROW_BYTES = 16


class Workspace:
    """The files below the root. Safe for calls from several threads.

    What the cache says of a file holds if its stamp is the same and its times lie at least two seconds before it was
    hashed: a file system's clock may be that coarse, so a younger file may change again and keep its stamp.
    """

    def __init__(
        self,
        root: Path,
        index: StoreIndex | None,
        now_ns: Callable[[], int] = time.time_ns,
        meter: FileProgress = no_progress,
    ) -> None:
        """Take the root and the index; without one nothing is remembered between processes."""
        self._root = root
        self._base = f"{root}/"
        self._earlier = _Earlier(index)
        self._now_ns = now_ns
        self._meter = meter
        self._seen: dict[str, HashedFile | None] = {}
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._there: dict[str, bool] = {}
        self._entries: dict[str, FileEntry] = {}
        self._opened: dict[str, FileStamp | None] = {}
        self._walked: dict[str, str] = {}
        self._missing: set[str] = set()
        self._links: dict[str, str] = {}
        self._dangling: set[str] = set()
        self._unsettled: set[str] = set()
        self._written: set[str] = set()
        self._wrote: set[str] = set()
        self._reads: set[str] | None = None

    def tracked(self, reads: set[str]) -> "Workspace":
        """Return a view of this workspace that notes in a set what is looked at through it, and shares all else.

        Files are noted by path, folders that are listed by their whole path.
        """
        one = copy(self)
        one._reads = reads  # noqa: SLF001 - of the same class
        return one

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path, or None if that is no regular file.

        Raises:
            SafetyError: the path has a bad segment, or a directory of it is a link.

        """
        stamp = self._stamp(path)
        if stamp is None:
            return None
        seen = self._known(path)
        if seen is None or seen.stamp != stamp or self._is_racy(seen):
            seen = self._hash(path)
        if seen is None:
            self._unsettled.add(path)
            return None
        first = self._entries.setdefault(path, seen.entry)
        if first is not seen.entry and first != seen.entry:
            self._unsettled.add(path)
        return seen.entry

    def input_entry(self, path: str) -> FileEntry | None:
        """Return what an input of this path is: the file there, or the one that its links lead to, or None.

        Raises:
            SafetyError: as for `real`.

        """
        with contextlib.suppress(SafetyError):
            entry = self.entry(path)
            if entry is not None:
                return entry
        real = self.resolved_path(path)
        if real is None or real == path:
            return None
        entry = self.entry(real)
        return None if entry is None else replace(entry, link=real)

    def resolved_path(self, path: str) -> str | None:
        """Return where a path leads to, link by link, as a path from the root; None where nothing is there.

        Raises:
            SafetyError: a link leads out of the project or into folders that are no inputs, or links lead in a circle.

        """
        return resolve_links(path, self._base, self._link)

    def _link(self, path: str) -> str | None:
        """Return where a link leads to; empty for what is none, None where nothing is."""
        whole = self._whole(path)
        self._note_read(whole)
        try:
            text = os.readlink(whole)
        except (FileNotFoundError, NotADirectoryError):
            self._dangling.add(path)
            return None
        except OSError as refused:
            if refused.errno != errno.EINVAL:
                raise
            return ""
        if self._links.setdefault(whole, text) != text:
            self._links[whole] = ""  # it changed meanwhile
        return text

    def read(self, path: str) -> bytes | None:
        """Return the bytes at a path, or None if that is no regular file.

        Raises:
            SafetyError: as for `entry`.

        """
        descriptor = self.open(path)
        return None if descriptor is None else read_and_close(descriptor)

    def open(self, path: str) -> int | None:
        """Return a descriptor of the file at a path, which the caller closes, or None if that is no regular file.

        Raises:
            SafetyError: as for `entry`.

        """
        self._note_read(path)
        descriptor = open_file(self._root, path)
        stamp = None if descriptor is None else _stamp_of(os.fstat(descriptor))
        self._note_presence(path, is_there=stamp is not None)
        if self._opened.setdefault(path, stamp) != stamp:
            self._unsettled.add(path)
        return descriptor

    def listing(
        self, pattern: str, outputs: DeclaredOutputs | None = None, exclude: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the paths of the files that a pattern means, sorted; with wildcards none that git ignores.

        `outputs` are files that stages make: these are listed although a `.gitignore` ignores them. A pattern that
        spells the name of an ignored folder means what lies in it. Links are followed below the root, but for those
        that `exclude` matches; one that leads nowhere is no file. A name that is not UTF-8 cannot be written in a
        pipeline, so it is no match of any pattern.

        Raises:
            SafetyError: as for `real`.

        """
        wanted = normalize_pattern(pattern)
        if not is_glob(wanted):
            return (wanted,) if self.input_entry(wanted) is not None else ()
        prefix = static_prefix(wanted)
        real = self.resolved_path(prefix) if prefix else ""
        if real is None or not OWN_FOLDERS.isdisjoint(prefix.split("/")):
            return ()
        real = f"{real}/" if real else ""
        return tuple(sorted(Listing(self, wanted, outputs, exclude).matches(prefix, real)))

    def writable_files(self, pattern: str) -> tuple[str, ...]:
        """Return the paths of the regular files that a pattern means, sorted: what a stage may write over.

        Also those that git ignores, and nothing that is or lies behind a link.
        """
        wanted = normalize_pattern(pattern)
        prefix = static_prefix(wanted)
        try:
            if not is_glob(wanted):
                return (wanted,) if self._stamp(wanted) is not None else ()
            if not OWN_FOLDERS.isdisjoint(prefix.split("/")) or (prefix and self.resolved_path(prefix) != prefix[:-1]):
                return ()
            return tuple(sorted(Listing(self, wanted, everything=True).matches(prefix, prefix)))
        except SafetyError:
            return ()

    def is_folder(self, path: str) -> bool:
        """Return whether a directory is at a path, for a message about a file that is not there."""
        try:
            return stat.S_ISDIR(os.lstat(self._whole(path)).st_mode)
        except OSError:
            return False

    def invalidate(self, paths: Iterable[str]) -> None:
        """Forget what was seen at these paths; the next look hashes them again."""
        for path in paths:
            if self._known(path) is not None:
                with self._lock:
                    self._seen[path] = None
                    self._changed.add(path)

    def announce_writes(self, paths: Iterable[str]) -> None:
        """Count these paths among `written_paths` from now on: the build is about to write them."""
        self._written.update(paths)

    def note_written(self, paths: Iterable[str]) -> None:
        """Take what is at these paths from now on for the work of this build, not for an edit; invalidate them."""
        changed = tuple(paths)
        self.invalidate(changed)
        for path in changed:
            self._there.pop(path, None)
            self._entries.pop(path, None)
            self._opened.pop(path, None)
            self._unsettled.discard(path)
            self._dangling.discard(path)
            for folder in _with_above(path.rpartition("/")[0]):
                self._dangling.discard(folder)
                if f"{folder}/" in self._walked:
                    self._walked[f"{folder}/"] = ""  # what it is now is found when it is listed again
            if "" in self._walked:
                self._walked[""] = ""
        self._written.update(changed)

    def note_written_file(self, path: str, sha256: str, file: os.stat_result) -> None:
        """Take what is at a path for the work of this build, as `written` does, and its digest for the one in hex.

        `file` is what was given that name: another file, or other times but that of the renaming, count as an edit.
        """
        self.note_written([path])
        now, then = self._look(path), _stamp_of(file)
        if now is not None and sha256 and now._replace(ctime_ns=then.ctime_ns) == then:
            with self._lock:
                self._seen[path] = HashedFile(now, stamped_entry(now, sha256), now.mtime_ns)
            self._wrote.add(path)

    def has_digest(self, path: str, sha256: str) -> bool:
        """Return whether a file has the bytes of a digest in hex. One that this process wrote is not hashed again.

        Should it be changed too soon after that for its times to show it, then `look_back` counts it as too young, so
        that the next build hashes it.

        Raises:
            SafetyError: as for `entry`.

        """
        seen = self._seen.get(path) if path in self._wrote else None
        if seen is not None and self._stamp(path) == seen.stamp:
            return seen.entry.digest.sha256 == sha256
        entry = self.entry(path)
        return entry is not None and entry.digest.sha256 == sha256

    @property
    def written_paths(self) -> Collection[str]:
        """Return the paths that were passed to `written` or `announce` so far."""
        return self._written

    def pending_index_rows(self) -> Mapping[bytes, bytes | None]:
        """Return the rows of the index that have changed: what a later process may believe; None where nothing."""
        with self._lock:
            now = self._now_ns()
            found = {path: self._seen.get(path) for path in self._changed}
            self._changed.clear()
        return {
            _row(path): None if seen is None or _is_racy(seen, now) else pack_hashed_file(seen)
            for path, seen in found.items()
        }

    def add_to_snapshot(self, looks: StatSnapshot) -> bool:
        """Add all that was looked at since this process began to `looks`; return False if some of it changed since.

        What is added is what was found first, on which decisions rest: a path at which something else was found later
        makes the whole unusable, unless this build wrote it (`written`). Of files that were hashed the digests count.
        A file that was only read must be the one that was opened, and at rest since before the time that the looks
        began at. A folder that was listed and is not the same any more is added as changed.
        """
        self._missing.clear()  # some may have been made since; those that are still missing are found again
        try:
            return self._add_files(looks) and self._add_folders(looks)
        except SafetyError:  # a folder became a link
            return False

    def _add_files(self, looks: StatSnapshot) -> bool:
        since = looks.since_ns
        for path in sorted(self._there):
            stamp = self._stamp(path)
            if path in self._unsettled:
                return False
            if stamp is None:
                looks.absent.append(path)
                continue
            opened = self._opened.get(path)
            if opened is not None and (opened != stamp or is_racy(last_change_ns(stamp), since)):
                return False
            known = self._known(path)
            if opened is not None and (known is None or known.stamp != stamp):
                known = self._hash(path)
            if known is None or known.stamp != stamp or self._entries.get(path, known.entry) != known.entry:
                return False
            looks.paths.append(path)
            looks.ctimes.append(0 if self._is_racy(known) else stamp.ctime_ns)
            digest = known.entry.digest
            detail = FileState(bytes.fromhex(digest.sha256), digest.size_bytes, executable=known.entry.executable)
            looks.details += detail.to_bytes()
        return True

    def _add_folders(self, looks: StatSnapshot) -> bool:
        folders = {path.rstrip("/") for path in self._walked}
        folders.update(path.rpartition("/")[0] for path in self._there)
        for folder in sorted({above for path in folders for above in _with_above(path)}):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = os.lstat(self._base + folder)
                looks.folders.append(folder)
                looks.inodes.extend((found.st_dev, found.st_ino))
        for folder, found_first in sorted(self._walked.items()):
            whole = self._whole(folder)
            if not looks.add_path(whole) or looks.outside[whole] != found_first:
                looks.outside[whole] = RACY
        for folder in (*self._missing, *self._dangling):
            looks.outside[self._whole(folder)] = NO_ENTRY
        looks.outside.update((whole, f"{LINK_TARGET}{text}") for whole, text in self._links.items())
        return all(self._links.values())

    def _stamp(self, path: str) -> FileStamp | None:
        stamp = self._look(path)
        self._note_presence(path, is_there=stamp is not None)
        self._note_read(path)
        return stamp

    def _note_presence(self, path: str, *, is_there: bool) -> None:
        """Remember whether a file is at a path when that is asked first; a different answer later unsettles it."""
        if self._there.setdefault(path, is_there) is not is_there:
            self._unsettled.add(path)

    def _note_read(self, path: str) -> None:
        if self._reads is not None:
            self._reads.add(path)

    def _whole(self, folder: str) -> str:
        return f"{self._base}{folder}".rstrip("/")

    def _look(self, path: str) -> FileStamp | None:
        names, name = split_path(path)
        above = ""
        try:
            for part in names:
                above += part
                mode = os.lstat(self._base + above).st_mode
                if stat.S_ISLNK(mode):
                    raise unsafe_path_error(path)
                above += "/"
            found = os.lstat(f"{self._base}{above}{name}")
        except FileNotFoundError:
            if above and not above.endswith("/"):  # a link that is put there later is an error, wherever it leads to
                self._missing.add(above)
                self._note_read(self._whole(above))
            return None
        except NotADirectoryError:
            return None
        return _stamp_of(found) if stat.S_ISREG(found.st_mode) else None

    def _is_racy(self, seen: HashedFile) -> bool:
        return _is_racy(seen, self._now_ns())

    def _hash(self, path: str) -> HashedFile | None:
        """Hash a file until it holds still for as long as that takes."""
        for _ in range(_TRIES):
            descriptor = open_file(self._root, path)
            if descriptor is None:
                return None
            try:
                began = self._now_ns()
                before = _stamp_of(os.fstat(descriptor))
                sha256, size = hash_file(descriptor, self._meter("hashing", path, before.size_bytes))
                after = _stamp_of(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            if before == after and size == after.size_bytes:
                seen = HashedFile(after, stamped_entry(after, sha256), began)
                with self._lock:
                    if self._seen.get(path) != seen:
                        self._changed.add(path)
                    self._seen[path] = seen
                return seen
        raise OSError(errno.EBUSY, "the file changes faster than it can be read", path)

    # ---- what a listing looks at --------------------------------------------------------------

    def scan(self, folder: str) -> Iterator[tuple[str, str]]:
        """Give the names of files, links and directories in a folder, each with what it is."""
        whole = self._whole(folder)
        if not self._walked.get(folder):
            self._walked[folder] = signature(whole)  # before it is listed: a file that comes meanwhile changes it
        self._note_read(whole)
        try:
            entries = os.scandir(self._base + folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                name = entry.name
                if is_temp(name) or not (name.isascii() or _is_utf8(name)):
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield name, FILE_KIND
                elif entry.is_dir(follow_symlinks=False):
                    yield name, FOLDER_KIND
                elif entry.is_symlink():
                    yield name, LINK_KIND

    def ignore_file(self, folder: str) -> bytes | None:
        """Return the bytes of the `.gitignore` of a folder, `""` or ending in `/`, or None."""
        path = folder + GITIGNORE
        return self.read(path) if self._stamp(path) is not None else None

    def is_own(self, path: str) -> bool:
        """Return whether orch23 wrote a file for itself."""

        def read() -> bytes:
            descriptor = open_file(self._root, path)
            return b"" if descriptor is None else read_and_close(descriptor)

        return is_own_file(path, read)

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at a path."""
        return self._stamp(path) is not None

    # ---- the cache -------------------------------------------------------------------------------

    def _known(self, path: str) -> HashedFile | None:
        """Return what a file was when it was hashed last, by this process or an earlier one."""
        try:
            return self._seen[path]
        except KeyError:
            pass
        seen = self._earlier.seen(path)
        with self._lock:
            return self._seen.setdefault(path, seen)


class _Earlier:
    """What earlier processes found files to be, by the index; nothing from the moment on that it cannot be read."""

    def __init__(self, index: StoreIndex | None) -> None:
        """Take the index, or None."""
        self._index, self._is_readable = index, index is not None

    def seen(self, path: str) -> HashedFile | None:
        """Return what a file was when it was hashed last, or None."""
        data = None
        if self._index is not None and self._is_readable:
            try:
                data = self._index.get(FILES_TABLE, _row(path))
            except IndexFaultError:
                self._is_readable = False
        return None if data is None else unpack_hashed_file(data)


def _row(path: str) -> bytes:
    """Return the key of a row: a digest, since a path may be a secret."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=_ROW_BYTES).digest()


def _stamp_of(found: os.stat_result) -> FileStamp:
    return FileStamp(
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, stat.S_IMODE(found.st_mode)
    )


def _with_above(folder: str) -> Iterator[str]:
    """Give a folder and those above it, without the root."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def last_change_ns(stamp: FileStamp) -> int:
    """Return when a file last changed, as far as its times say."""
    return max(stamp.mtime_ns, stamp.ctime_ns)


def _is_racy(seen: HashedFile, now_ns: int) -> bool:
    """Say whether the file may have changed since with the same stamp: it was too young, or some clock is wrong."""
    return is_racy(last_change_ns(seen.stamp), seen.hashed_at_ns) or seen.hashed_at_ns > now_ns


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
