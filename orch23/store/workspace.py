"""Show the files of a project by their digests; hash a file only when its stat has changed."""

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic, Location, quoted_names
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.errors import SafetyError
from orch23.model.file_policy import GITIGNORE
from orch23.model.paths import OWN_FOLDERS, is_glob, is_own_file, normalize_pattern, static_prefix
from orch23.snapshot.signatures import entries_signature, is_racy, lstat_or_none
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.file_copy import FileProgress, hash_file, no_progress
from orch23.store.index import EarlierHashes, HashedFile, StoreIndex, file_row, pack_hashed_file, stamped_entry
from orch23.store.listing import (
    FILE_KIND,
    FOLDER_KIND,
    LINK_KIND,
    DeclaredOutputs,
    Listing,
    find_input,
    list_files,
    resolve_links,
)
from orch23.store.observations import Observations
from orch23.store.safe_files import (
    TEMP_PREFIX,
    FileStamp,
    closing,
    is_temp,
    open_file,
    read_and_close,
    read_file,
    split_path,
    stamp_of,
    unsafe_path_error,
)

_TRIES, _AT_ONCE = 8, 500
_MAX_NEIGHBOURS = 1_000


AsCommitted: TypeAlias = Callable[[str, int], bytes | None]
"""Return the bytes that git commits for an open file at a path; None if they are those of the file."""


def left_out_error(message: str, commands: Iterable[str], place: Location | None = None) -> Diagnostic:
    """Return the error for content that git has not checked out, with the commands for it."""
    return Diagnostic("E698", message, place, f"run {quoted_names(dict.fromkeys(commands))}")


class _Looks(Struct):
    """What a view for one moment found: files as by `_lstat`, no links, what it hashed, files as they were hashed."""

    files: dict[str, tuple[FileStamp | None, str]] = field(default_factory=dict)
    unlinked: set[str] = field(default_factory=set)
    hashed: set[str] = field(default_factory=set)
    unchanged: dict[str, FileEntry] = field(default_factory=dict)

    def forget(self, path: str) -> None:
        """Forget a path and the folders above it."""
        self.files.pop(path, None)
        self.unchanged.pop(path, None)
        self.hashed.discard(path)
        self.unlinked.clear()


class Workspace:
    """The files below the root. Safe for calls from several threads.

    A file is not hashed again if its stamp is the same, and its times are at least two seconds before it was hashed: a
    file system's clock may be that coarse, so a younger file can change again and keep its stamp.
    """

    def __init__(
        self,
        root: Path,
        index: StoreIndex | None,
        now_ns: Callable[[], int] = time.time_ns,
        meter: FileProgress = no_progress,
    ) -> None:
        """Read nothing yet. Without an index, each process hashes all files again."""
        self._root = root
        self._base = f"{root}/"
        self.earlier = EarlierHashes(index)
        self._now_ns = now_ns
        self._meter = meter
        self._seen: dict[str, HashedFile | None] = {}
        # Files as they were hashed, and their change times then.
        self._unchanged: dict[str, FileEntry] = {}
        self._ctimes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._observed = Observations(self._base)
        self._written: set[str] = set()
        self._wrote: set[str] = set()
        self._reads: set[str] | None = None
        self._looks: _Looks | None = None
        self._last_looks = _Looks()
        self.as_committed: AsCommitted = lambda _path, _descriptor: None

    def for_one_moment(self, *, continued: bool = False) -> "Workspace":
        """Return a view of this workspace that looks at each file, folder and link once, and shares everything else.

        It is for a command that writes nothing, or for one decision: both describe a moment. With `continued`, the
        moment is the one of the last view, but for what was written since.
        """
        if not continued:
            self.earlier.compared = {}
        return self._looking(self._last_looks if continued else _Looks())

    def _looking(self, looks: _Looks) -> "Workspace":
        self._last_looks = looks
        one = object.__new__(type(self))
        vars(one).update(vars(self), _looks=looks)
        return one

    def tracked(self, reads: set[str]) -> "Workspace":
        """Return a view for one moment that adds to `reads` what is read through it.

        Files are added by path, folders that are listed by their absolute path.
        """
        # A parameter and not a global variable: threads would record a read for another stage (ADR 31).
        one = self._looking(self._looks or _Looks())
        one._reads = reads  # noqa: SLF001 - of the same class
        return one

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry of the regular file at a path, or None.

        Raises:
            SafetyError: the path has a bad segment, or a directory of it is a link.
        """
        if self._looks is not None and path in self._looks.unchanged:
            return self.unchanged((path,))[path]
        stamp = self._stamp(path)
        if stamp is None:
            return None
        seen = self._known(path)
        hashed = () if self._looks is None else self._looks.hashed
        if seen is None or seen.stamp != stamp or (_is_racy(seen, self._now_ns()) and path not in hashed):
            seen = self._hash(path)
            if self._looks is not None:
                self._looks.hashed.add(path)
        entry = None if seen is None else seen.entry
        self._observed.note_entry(path, entry)
        return entry

    def unchanged(self, paths: Iterable[str]) -> dict[str, FileEntry]:
        """Return the entries of the files that are as they were hashed, in a fraction of the time that `entry` takes.

        The others are left out: `entry` finds them, or what is wrong.
        """
        looks, wanted, compared = self._looks or _Looks(), [*paths], self.earlier.compared
        new = [path for path in wanted if path not in looks.unchanged and path not in looks.files]
        ctimes = {path: compared[path] for path in new if path in compared} if compared else {}
        new = [path for path in new if path not in ctimes]
        # This also shows whether a folder above them is a link.
        for folder, path in {one.rpartition("/")[0]: one for one in new}.items():
            try:
                self._lstat(path, looks.unlinked)
            except (OSError, SafetyError):
                new = [one for one in new if one.rpartition("/")[0] != folder]
        known, then, changed = [*ctimes], self._ctimes.get, dict[str, os.stat_result]()
        for start in range(0, len(new), _AT_ONCE):
            some = new[start : start + _AT_ONCE]
            try:  # without a call of Python for each file
                found: list[os.stat_result | None] = [*map(os.lstat, map(self._base.__add__, some))]
            except (FileNotFoundError, NotADirectoryError):  # rare
                found = [*map(lstat_or_none, map(self._base.__add__, some))]
            known += (there := {path: one for path, one in zip(some, found, strict=True) if one})
            changed |= {path: one for path, one in there.items() if then(path) != one.st_ctime_ns}
        ctimes |= {path: one.st_ctime_ns for path, one in changed.items()}
        if not ctimes.items() <= self._ctimes.items():
            self._recall(ctimes, changed)
        # Another thread may forget a path meanwhile.
        looks.unchanged |= {path: one for path in known if (one := self._unchanged.get(path)) is not None}
        result = {path: looks.unchanged[path] for path in wanted if path in looks.unchanged}
        if self._reads is not None:
            self._reads.update(result)
        return result

    def _recall(self, ctimes: Mapping[str, int], changed: Mapping[str, os.stat_result]) -> None:
        """Update `_unchanged` for files with other change times than then. Those without a status were compared."""
        hashed = {path for path in self._seen.keys() & ctimes.keys() if self._seen[path] is not None}
        found = self.earlier.unchanged({path: one for path, one in ctimes.items() if path not in hashed})
        for path in ctimes if len(found) < len(ctimes) else ():
            seen = self._known(path) if path not in found and path in changed else None
            if seen is None or seen.stamp != stamp_of(changed[path]) or _is_racy(seen, self._now_ns()):
                seen = None
            # Git may convert a file of another size otherwise by now.
            if seen is not None and seen.entry.digest.size_bytes == seen.stamp.size_bytes:
                found[path] = seen.entry
            elif path not in found:
                self._unchanged.pop(path, None)
                self._ctimes.pop(path, None)
        self._observed.note_unchanged(found)
        self._unchanged |= found
        self._ctimes |= {path: ctimes[path] for path in found}

    def has(self, path: str, entry: FileEntry) -> bool:
        """Return whether the file at a path is this one; False if a link replaced one of its folders."""
        try:
            return self.entry(path) == entry
        except SafetyError:
            return False

    def input_entry(self, path: str) -> FileEntry | None:
        """Return the entry of an input: of the file at its path, or of the file that its links lead to, or None.

        Raises what `resolved_path` raises.
        """
        return find_input(self, path)

    def resolved_path(self, path: str) -> str | None:
        """Return the path, from the root, to which the links of a path lead; None if nothing is there.

        Raises:
            SafetyError: a link leads out of the project or into a folder without inputs, or links form a cycle.
        """
        return resolve_links(path, self._base, self._link)

    def _link(self, path: str) -> str | None:
        """Return the target of a link; empty for another entry, None if nothing is there."""
        whole = self._whole(path)
        self._note_read(whole)
        if self._looks is not None and path in self._looks.unlinked:
            return ""
        try:
            text = os.readlink(whole)
        except (FileNotFoundError, NotADirectoryError):
            self._observed.missing.add(path)
            return None
        except OSError as refused:
            if refused.errno != errno.EINVAL:
                raise
            if self._looks is not None:
                self._looks.unlinked.add(path)
            return ""
        self._observed.note_link(whole, text)
        return text

    def read(self, path: str) -> bytes | None:
        """Return the bytes of the regular file at a path, or None. Raises what `entry` raises."""
        if (descriptor := self.open(path)) is None:
            return None
        with closing(descriptor):
            committed = self.as_committed(path, descriptor)
            return read_and_close(os.dup(descriptor)) if committed is None else committed

    def open(self, path: str) -> int | None:
        """Return a descriptor of the regular file at a path, which the caller closes, or None.

        Raises what `entry` raises.
        """
        self._note_read(path)
        descriptor = open_file(self._root, path)
        stamp = None if descriptor is None else stamp_of(os.fstat(descriptor))
        self._observed.note_presence(path, is_there=stamp is not None)
        self._observed.note_opened(path, stamp)
        return descriptor

    def listing(
        self, pattern: str, outputs: DeclaredOutputs | None = None, exclude: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the sorted paths of the files that match a pattern: see `list_files`.

        Raises what `resolved_path` raises.
        """
        return list_files(self, pattern, outputs, exclude)

    def writable_files(self, pattern: str, *, ignored: bool = True) -> tuple[str, ...]:
        """Return the sorted paths of the regular files that match a pattern and that a stage may overwrite.

        They include no links or files behind links; with `ignored`, also files that git ignores.
        """
        wanted = normalize_pattern(pattern)
        prefix = static_prefix(wanted)
        try:
            if not is_glob(wanted):
                return (wanted,) if self._stamp(wanted) is not None else ()
            if not OWN_FOLDERS.isdisjoint(prefix.split("/")) or (prefix and self.resolved_path(prefix) != prefix[:-1]):
                return ()
            found = Listing(self, wanted, links=False, ignored=ignored)
            return tuple(sorted(found.matches(prefix, prefix)))
        except SafetyError:
            return ()

    def links(self, pattern: str) -> tuple[str, ...]:
        """Return the sorted links, also broken ones, that a pattern matches, or that may lead to such files."""
        wanted, prefix = normalize_pattern(pattern), static_prefix(pattern)
        if not is_glob(wanted):
            return (wanted,) if self._link(wanted) else ()
        set((listing := Listing(self, wanted, links=False, ignored=True)).matches(prefix, prefix))
        return tuple(sorted(listing.links))

    def neighbours(self, path: str) -> list[str]:
        """Return the paths of the files in the directory of a path, at most 1,000, to suggest one of them."""
        above = path.rpartition("/")[0]
        before = f"{above}/" if above else ""
        with contextlib.suppress(OSError), os.scandir(self._whole(above)) as found:
            return [f"{before}{one.name}" for one in islice(found, _MAX_NEIGHBOURS) if one.is_file()]
        return []

    def subfolders(self, path: str) -> list[str]:
        """Return the names of the directories in a directory, sorted, of at most 1,000 entries."""
        with contextlib.suppress(OSError), os.scandir(self._whole(path)) as found:
            return sorted(one.name for one in islice(found, _MAX_NEIGHBOURS) if one.is_dir(follow_symlinks=False))
        return []

    def is_folder(self, path: str) -> bool:
        """Return whether there is a directory at a path."""
        with contextlib.suppress(OSError):
            return stat.S_ISDIR(os.lstat(self._whole(path)).st_mode)
        return False

    def invalidate(self, paths: Iterable[str]) -> None:
        """Forget what is known of these paths: they are looked at and hashed again when they are next needed."""
        for path in paths:
            self._unchanged.pop(path, None)
            self._ctimes.pop(path, None)
            for looks in (self._looks, self._last_looks):
                if looks is not None:
                    looks.forget(path)
            if self._known(path) is not None:
                with self._lock:
                    self._seen[path] = None
                    self._changed.add(path)

    def announce_writes(self, paths: Iterable[str]) -> None:
        """Add paths to `written_paths` before the build writes them."""
        self.earlier.compared = {}
        self._written.update(paths)

    def note_written(self, paths: Iterable[str]) -> None:
        """Note that this build wrote these paths, so that the change is not taken for an edit; invalidate them."""
        changed = tuple(paths)
        self.earlier.compared = {}
        self.invalidate(changed)
        for path in changed:
            self._observed.note_written(path)
        self._written.update(changed)

    def note_written_file(self, path: str, sha256: str, file: os.stat_result) -> None:
        """Note that this build wrote a path, as `note_written` does, and that the file has this SHA-256 in hex.

        `file` is its status before it was renamed. If the file at the path is another one, or has other times except
        `st_ctime`, which renaming changes, someone edited it since, and it is hashed again.
        """
        self.note_written([path])
        now, then = self._look(path), stamp_of(file)
        if now is not None and sha256 and now._replace(ctime_ns=then.ctime_ns) == then:
            with self._lock:
                self._seen[path] = HashedFile(now, stamped_entry(now, sha256), now.mtime_ns)
            self._wrote.add(path)

    def has_digest(self, path: str, sha256: str) -> bool:
        """Return whether a file has this SHA-256 in hex. A file that this process wrote is not hashed again.

        An edit so soon after the write that the times do not show it is found by the next build: `add_to_snapshot`
        marks the file as racy. Raises what `entry` raises.
        """
        seen = self._seen.get(path) if path in self._wrote else None
        if seen is not None and self._stamp(path) == seen.stamp:
            return seen.entry.digest.sha256 == sha256
        entry = self.entry(path)
        return entry is not None and entry.digest.sha256 == sha256

    @property
    def written_paths(self) -> Collection[str]:
        """Return the paths that were passed to `note_written` or `announce_writes` so far."""
        return self._written

    def pending_index_rows(self) -> Mapping[bytes, bytes | None]:
        """Return the changed rows of the index: files that a later process need not hash; None deletes a row."""
        with self._lock:
            now = self._now_ns()
            found = {path: self._seen.get(path) for path in self._changed}
            self._changed.clear()
        return {
            # A row has no size of its own: a file that git converts is hashed by each process.
            file_row(path): None
            if seen is None or _is_racy(seen, now) or seen.entry.digest.size_bytes != seen.stamp.size_bytes
            else pack_hashed_file(seen)
            for path, seen in found.items()
        }

    def add_to_snapshot(self, snapshot: StatSnapshot) -> bool:
        """Add everything that this process read to a snapshot; return False if some of it has changed since.

        The snapshot gets the first result for each path, on which decisions are based. A path that changed later makes
        the snapshot unusable, unless this build wrote it (`note_written`). Hashed files are compared by digest. A file
        that was only read must be the file that was opened, unchanged since before the snapshot began. A folder that
        was listed and has changed is added as racy, and one that was too young to trust its times by its entries.
        """
        # Some may exist by now, and the others are noted again.
        self._observed.missing_folders.clear()
        try:
            # Each path once, and each folder above them.
            view = self if self._looks is not None else self.for_one_moment()
            return view._add_files(snapshot) and self._observed.add_folders(snapshot)  # noqa: SLF001 - of the same class
        except SafetyError:  # a folder became a link
            return False

    def _add_files(self, snapshot: StatSnapshot) -> bool:
        paths, opened = sorted(self._observed.present), self._observed.opened
        files = {path: entry for path, entry in self.unchanged(paths).items() if path not in opened}
        ctimes = [*map(self._ctimes.__getitem__, files)]
        for path in [path for path in paths if path not in files]:
            stamp = self._stamp(path)
            if stamp is None:
                snapshot.absent.append(path)
                continue
            known = self._same(path, stamp, snapshot.since_ns)
            if known is None:
                return False
            files[path] = known.entry
            if known.entry.digest.size_bytes != stamp.size_bytes:  # git may convert it otherwise later
                files[path] = FileEntry(Digest("0" * 64, 0))
            ctimes.append(0 if _is_racy(known, self._now_ns()) else stamp.ctime_ns)
        contents = [(one.digest.sha256, one.digest.size_bytes, one.executable) for one in files.values()]
        snapshot.add_files([*files], ctimes, contents)
        return self._observed.unsettled.isdisjoint(paths)

    def _same(self, path: str, stamp: FileStamp, since_ns: int) -> HashedFile | None:
        """Return the hashed file at a path if it is still the one that this process used first, else None."""
        opened = self._observed.opened.get(path)
        if opened is not None and (opened != stamp or is_racy(stamp.dev, stamp.mtime_ns, stamp.ctime_ns, since_ns)):
            return None
        known = self._known(path)
        if opened is not None and (known is None or known.stamp != stamp):
            known = self._hash(path)
        if known is None or known.stamp != stamp or self._observed.entries.get(path, known.entry) != known.entry:
            return None
        return known

    def _stamp(self, path: str) -> FileStamp | None:
        stamp = self._look(path)
        self._observed.note_presence(path, is_there=stamp is not None)
        self._note_read(path)
        return stamp

    def _note_read(self, path: str) -> None:
        if self._reads is not None:
            self._reads.add(path)

    def _whole(self, folder: str) -> str:
        return f"{self._base}{folder}".rstrip("/")

    def _look(self, path: str) -> FileStamp | None:
        looks = self._looks
        if looks is None:
            stamp, missing_folder = self._lstat(path, set())
        elif path in looks.files:
            stamp, missing_folder = looks.files[path]
        else:
            stamp, missing_folder = looks.files[path] = self._lstat(path, looks.unlinked)
        if missing_folder:
            self._observed.missing_folders.add(missing_folder)
            self._note_read(self._whole(missing_folder))
        return stamp

    def _lstat(self, path: str, unlinked: set[str]) -> tuple[FileStamp | None, str]:
        """Return the stamp of the regular file at a path, and the first folder above the path that is missing, or `""`.

        Folders in `unlinked` are not looked at again; it gets those above the path.
        """
        names, name = split_path(path)
        above = ""
        try:
            for part in names:
                above += part
                if above not in unlinked:
                    if stat.S_ISLNK(os.lstat(self._base + above).st_mode):
                        raise unsafe_path_error(path)
                    unlinked.add(above)
                above += "/"
            found = os.lstat(f"{self._base}{above}{name}")
        except FileNotFoundError:
            return None, "" if above.endswith("/") else above
        except NotADirectoryError:
            return None, ""
        return stamp_of(found) if stat.S_ISREG(found.st_mode) else None, ""

    def _hash(self, path: str) -> HashedFile | None:
        """Hash a file. Try again if it changes meanwhile: the digest might then match no state of the file."""
        for _ in range(_TRIES):
            descriptor = open_file(self._root, path)
            if descriptor is None:
                return None
            with closing(descriptor):
                began = self._now_ns()
                before = stamp_of(os.fstat(descriptor))
                digest = self.digest_of(path, descriptor)
                after = stamp_of(os.fstat(descriptor))
            if before == after and digest.size_bytes <= after.size_bytes:
                seen = HashedFile(after, FileEntry(digest, executable=bool(after.mode & stat.S_IXUSR)), began)
                with self._lock:
                    if self._seen.get(path) != seen:
                        self._changed.add(path)
                    self._seen[path] = seen
                return seen
        raise OSError(errno.EBUSY, "the file changes faster than it can be read", path)

    def digest_of(self, path: str, descriptor: int) -> Digest:
        """Return the digest of an open file, of the bytes that git commits for it."""
        if (data := self.as_committed(path, descriptor)) is not None:
            return digest_bytes(data)
        return Digest(*hash_file(descriptor, self._meter("hashing", path, os.fstat(descriptor).st_size)))

    def scan(self, folder: str) -> Collection[tuple[str, str]]:
        """Return the names of files, links and directories in a folder, each with its kind."""
        whole = self._whole(folder)
        is_young = self._observed.note_listed(folder, self._now_ns())
        self._note_read(whole)
        try:
            with os.scandir(self._base + folder) as found:
                entries = list(found)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        if is_young:
            self._observed.note_entries(folder, entries_signature(entries))
        return [
            (name, kind)
            for one in entries
            if (kind := FILE_KIND if one.is_file(follow_symlinks=False) else _kind(one))
            and ((name := one.name).isascii() or _is_utf8(name))
            and not (name.startswith(TEMP_PREFIX) and is_temp(name))
        ]

    def ignore_file(self, folder: str) -> bytes | None:
        """Return the bytes of the `.gitignore` of a folder, `""` or ending in `/`, or None."""
        path = folder + GITIGNORE
        return self.read(path) if self._stamp(path) is not None else None

    def is_own(self, path: str) -> bool:
        """Return whether orch23 wrote a file for itself."""
        return is_own_file(path, lambda: read_file(self._root, path) or b"")

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at a path."""
        return self._stamp(path) is not None

    def _known(self, path: str) -> HashedFile | None:
        """Return a file as it was hashed last, by this process or an earlier one."""
        try:
            return self._seen[path]
        except KeyError:
            seen = self.earlier.get(path)
        with self._lock:
            return self._seen.setdefault(path, seen)


def _is_racy(seen: HashedFile, now_ns: int) -> bool:
    """Return whether a file may have changed and kept its stamp: it was too young, or a clock is wrong."""
    stamp, seen_ns = seen.stamp, seen.hashed_at_ns
    return is_racy(stamp.dev, stamp.mtime_ns, stamp.ctime_ns, seen_ns) or seen_ns > now_ns


def _kind(entry: os.DirEntry[str]) -> str:
    """Return the kind of a folder or a link; empty for anything else, such as a socket."""
    if entry.is_dir(follow_symlinks=False):
        return FOLDER_KIND
    return LINK_KIND if entry.is_symlink() else ""


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
