"""Promote the outputs of a stage into the workspace: all files or, after a crash, at the next start."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from orch23.decide.write_protection import NO_DECLARED_PATTERNS
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.file_policy import sealed_reason
from orch23.model.parsing import from_struct, to_struct
from orch23.model.ports import FileContentStore
from orch23.store.codes import E_PROTECTED
from orch23.store.file_copy import FileProgress, hash_file, no_progress
from orch23.store.json_text import decode_with_checksum, encode_with_checksum
from orch23.store.lock_file import is_lock_of_pipeline
from orch23.store.record_format import EntryText, optional_entry_from_json, optional_entry_to_json
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    DirectoryCache,
    is_temp,
    make_directories,
    open_directory,
    open_regular,
    read_regular,
    split_path,
    sync_filesystem,
    temp_name,
    write_atomic,
)

FileEntries = Mapping[str, FileEntry | None]
RefusePath = Callable[[str], str | None]
"""Say why no stage of today's plan may write or remove a path, by its names alone, or None."""

_MOST_REFUSED = 10


class _Redo(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a promotion that is under way: what the paths are to hold, and what they held before."""

    new: dict[str, EntryText | None]
    old: dict[str, EntryText | None]


class PromotionResult(Struct, frozen=True):
    """What a promotion did: paths that now have the new bytes, paths that are gone, paths left since a person's."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


class Promoter:
    """Writes to the workspace, and is the only one to do so. One promotion at a time.

    A redo record is on disk before the first file changes, and until the last one has. Doing it again is harmless: a
    file that has the new bytes is left, one that has the old bytes is replaced, one with any others is a person's.
    """

    def __init__(self, root: Path, redo: Path, contents: FileContentStore, meter: FileProgress = no_progress) -> None:
        """Take the root, the file of the redo record, the store of the bytes, and who is told of long work."""
        self._root = root
        self._redo = redo
        self._contents = contents
        self._meter = meter
        self._lock = threading.Lock()
        self.damaged: list[str] = []

    def refusal(self, path: str, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error) -> str | None:
        """Return why a path may be neither written nor removed, or None: the stages', or that it is a lock file.

        Raises:
            SafetyError: the path leads through a link.

        """
        reason = refusal(path)
        if reason is None and is_lock_of_pipeline(self._root, path):
            reason = "it is the lock file of a pipeline, which orch23 alone writes"
        return reason

    def promote(
        self, new: FileEntries, old: FileEntries, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error
    ) -> PromotionResult:
        """Make the workspace hold `new` where it still holds `old`; None, or a path that is missing, means no file.

        `refusal` knows what the stages of today's plan declare; without it no protected path is declared.

        Raises:
            SafetyError: a path leads through a link, or is protected and not declared. Nothing was written.
            MissingBytesError: the store lacks the bytes of a file. Nothing was written.

        """
        wanted = {path: entry for path, entry in new.items() if entry != old.get(path) or self._current(path) != entry}
        if not wanted:
            return PromotionResult()
        self._check_parents(wanted)
        refused = {path: reason for path in wanted if (reason := self.refusal(path, refusal)) is not None}
        if refused:
            raise SafetyError(*refused_path_errors(refused))
        for entry in wanted.values():
            if entry is not None and not self._contents.has(entry.digest):
                raise MissingBytesError(entry.digest.sha256)
        expected = {path: old.get(path) for path in wanted}
        with self._lock:
            redo = _Redo(_to_json(wanted), _to_json(expected))
            write_atomic(self._redo, encode_with_checksum(from_struct(redo)), mode=PRIVATE_FILE_MODE)
            return self._apply(wanted, expected)

    def pending(self) -> FileEntries:
        """Return what a promotion that was interrupted will leave once a build has finished it. Writes nothing."""
        try:
            new, old = _read_redo(read_regular(self._redo) or b"")
        except ValueError:
            return {}
        return {
            path: entry
            for path, entry in new.items()
            if sealed_reason(path) is None and self._current(path) in (entry, old.get(path))
        }

    def recover(self, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error) -> PromotionResult | None:
        """Finish a promotion that was interrupted; None if none was. Only for the holder of the build lock.

        A redo record that is damaged is dropped: what it half did shows as outputs that are to be restored. So is what
        of it has a protected path that `refusal` knows of no stage to declare.

        Raises:
            SafetyError: somebody put a link where a directory was. Nothing was written.

        """
        data = read_regular(self._redo)
        if data is None:
            return None
        try:
            new, old = _read_redo(data)
        except ValueError as error:
            self.damaged.append(f"{self._redo.name}: {error}")
            self._redo.unlink()
            return None
        refused = {path: reason for path in new if (reason := self.refusal(path, refusal)) is not None}
        self.damaged += [
            f"{path}: an interrupted promotion would change it, but {why}" for path, why in refused.items()
        ]
        new = {path: entry for path, entry in new.items() if path not in refused}
        self._check_parents(new)
        with self._lock:
            self._sweep(new)
            lost = [path for path, entry in new.items() if entry is not None and not self._readable(entry.digest)]
            self.damaged += [f"{path}: the promoted bytes are lost; the stage will make them again" for path in lost]
            return self._apply({path: entry for path, entry in new.items() if path not in lost}, old)

    def _readable(self, digest: Digest) -> bool:
        try:
            self._contents.check(digest)
        except MissingBytesError:
            return False
        return True

    def _apply(self, new: FileEntries, old: FileEntries) -> PromotionResult:
        removed = sorted(path for path, entry in new.items() if entry is None)
        written = sorted((path, entry) for path, entry in new.items() if entry is not None)
        # removals first, since a file may come where a directory was
        foreign = {path for path in removed if not self._remove(path, old.get(path))}
        foreign |= self._write(written, old)
        sync_filesystem(self._root)
        self._redo.unlink()
        return PromotionResult(
            tuple(path for path, _ in written if path not in foreign),
            tuple(path for path in removed if path not in foreign),
            tuple(sorted(foreign)),
        )

    def _write(self, written: Sequence[tuple[str, FileEntry]], old: FileEntries) -> set[str]:
        """Put files in place, and return the paths where that was not to be.

        All bytes are on the disk before the first file has its name: a power cut leaves none that is empty or torn,
        which would pass for somebody's edit.
        """
        temps: dict[str, str] = {}
        places = DirectoryCache(self._root)
        try:
            there = [(path, entry) for path, entry in written if self._prepare(places, path, entry, temps)]
            if temps:
                sync_filesystem(self._root)
            named = {path for path, entry in there if self._name(places, path, entry, old.get(path), temps)}
            return {path for path, _ in written if path not in named}
        finally:
            places.close()
            for path, temp in temps.items():
                self._discard(path, temp)

    def _prepare(self, places: DirectoryCache, path: str, entry: FileEntry, temps: dict[str, str]) -> bool:
        """Lay the bytes of a file beside its place, unless they are in it; say whether there is a place for it."""
        names, name = split_path(path)
        try:
            try:
                parent = places.open(names)
            except FileNotFoundError:
                make_directories(self._root, names)
                parent = places.open(names)
        except NotADirectoryError:
            return False  # a file is where a directory should be
        if _entry_at(parent, name, self._meter) != entry:
            temps[path] = temp_name()
            self._write_temp(parent, temps[path], entry, name)
        return True

    def _name(
        self, places: DirectoryCache, path: str, entry: FileEntry, old: FileEntry | None, temps: dict[str, str]
    ) -> bool:
        """Give the bytes beside a place the name, and forget that they were beside it; say whether they are there."""
        names, name = split_path(path)
        parent = places.open(names)
        found = _entry_at(parent, name, self._meter)
        if found == entry:
            return True
        if path not in temps or (not _is_free(parent, name) if old is None else found != old):
            return False
        os.rename(temps[path], name, src_dir_fd=parent, dst_dir_fd=parent)
        del temps[path]
        return True

    def _discard(self, path: str, temp: str) -> None:
        names, _ = split_path(path)
        with contextlib.suppress(OSError, SafetyError), open_directory(self._root, names) as parent:
            os.unlink(temp, dir_fd=parent)

    def _write_temp(self, parent: int, temp: str, entry: FileEntry, name: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temp, flags, 0o777 if entry.executable else 0o666, dir_fd=parent)
        try:
            self._contents.copy_to(entry.digest, descriptor, name)
        finally:
            os.close(descriptor)

    def _remove(self, path: str, old: FileEntry | None) -> bool:
        """Remove a file and the directories that this leaves empty; say whether nothing is there now."""
        names, name = split_path(path)
        try:
            with open_directory(self._root, names) as parent:
                if not _is_free(parent, name):
                    if old is None or _entry_at(parent, name, self._meter) != old:
                        return False
                    os.unlink(name, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            pass
        if old is not None:
            self._prune(names)
        return True

    def _prune(self, names: Sequence[str]) -> None:
        for count in range(len(names), 0, -1):
            try:
                with open_directory(self._root, names[: count - 1]) as parent:
                    os.rmdir(names[count - 1], dir_fd=parent)
            except FileNotFoundError:
                continue
            except OSError:  # not empty, or not ours to remove
                return

    def _check_parents(self, paths: Iterable[str]) -> None:
        for names in {split_path(path)[0] for path in paths}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(self._root, names):
                pass

    def _current(self, path: str) -> FileEntry | None:
        names, name = split_path(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(self._root, names) as parent:
            return _entry_at(parent, name, self._meter)
        return None

    def _sweep(self, new: FileEntries) -> None:
        """Remove the temporary files that a killed promotion left beside its files."""
        for names in sorted({split_path(path)[0] for path in new}):
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                open_directory(self._root, names) as parent,
            ):
                for name in os.listdir(parent):
                    if is_temp(name):
                        os.unlink(name, dir_fd=parent)


def refused_path_errors(refused: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return the errors of paths that are not promoted, from the path to the reason; of many the first ones."""
    told = [f"`{path}` was left as it is: {reason}" for path, reason in sorted(refused.items())]
    more = len(told) - _MOST_REFUSED
    told = [*told[:_MOST_REFUSED], f"{more} more paths were left as they are"] if more > 0 else told
    hint = "if a stage is to write it, name it in `outputs`; if not, delete the lock file and build"
    return tuple(Diagnostic(E_PROTECTED, text, hint=hint) for text in told)


def _entry_at(parent: int, name: str, meter: FileProgress) -> FileEntry | None:
    """Return the regular file of that name, or None."""
    descriptor = open_regular(name, parent)
    if descriptor is None:
        return None
    try:
        sha256, size = hash_file(descriptor, meter("hashing", name, os.fstat(descriptor).st_size))
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    return FileEntry(Digest(sha256, size), executable=bool(mode & stat.S_IXUSR))


def _is_free(parent: int, name: str) -> bool:
    """Say whether nothing at all has that name, not even a link or a directory."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False


def _to_json(tree: FileEntries) -> dict[str, EntryText | None]:
    return {path: optional_entry_to_json(entry) for path, entry in tree.items()}


def _read_redo(data: bytes) -> tuple[FileEntries, FileEntries]:
    found = to_struct(decode_with_checksum(data), _Redo)
    new, old = (
        {path: optional_entry_from_json(text) for path, text in tree.items()} for tree in (found.new, found.old)
    )
    return new, old
