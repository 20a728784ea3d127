"""Promote the outputs of a stage into the workspace: all files or, after a crash, at the next start."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import MissingBytesError, SafetyError
from orch23.model.file_policy import NO_DECLARED_PATTERNS, sealed_reason
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.lock_file import is_lock_of_pipeline
from orch23.store.record_format import EntryText, entries_from_json, entries_to_json
from orch23.store.safe_files import (
    NEW_FILE_FLAGS,
    PRIVATE_FILE_MODE,
    DirectoryCache,
    closing,
    discard_temp,
    make_directories,
    open_directory,
    open_regular,
    read_regular,
    split_path,
    sweep_temps_below,
    sync_filesystem,
    temp_name,
    write_atomic,
)

if TYPE_CHECKING:
    from orch23.model.ports import FileContentStore

FileEntries = Mapping[str, FileEntry | None]
RefusePath = Callable[[str], str | None]
"""Return why no stage of the current plan may write or delete a path, by its name alone, or None."""

_MAX_REFUSED_SHOWN = 10


class _Redo(Struct, frozen=True, forbid_unknown_fields=True):
    """The redo record of a promotion that is under way: the new and the old entries of its paths."""

    new: dict[str, EntryText | None]
    old: dict[str, EntryText | None]


class PromotionResult(Struct, frozen=True):
    """What a promotion did: paths with the new bytes, deleted paths, and paths left as the user edited them."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


class Promoter:
    """Promotes files into the workspace; no other code writes there. One promotion runs at a time.

    A redo record is on disk from before the first file changes until the last one has changed. To apply it twice is
    harmless: a file with the new bytes is left, a file with the old bytes is replaced, and any other is a user edit.
    """

    def __init__(
        self,
        root: Path,
        redo: Path,
        contents: "FileContentStore",
        digest_of: Callable[[str, int], Digest],
        store_key: StoreKey = TRUSTED,
    ) -> None:
        """Use `redo` for the redo record, and `contents` for the bytes. `digest_of` hashes the open file at a path."""
        self._root, self._redo, self._contents = root, redo, contents
        self._digest_of, self._store_key = digest_of, store_key
        self._lock = threading.Lock()
        self.damaged: list[str] = []

    def refusal(self, path: str, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error) -> str | None:
        """Return why a path may not be written or deleted, or None.

        Raises:
            SafetyError: the path leads through a link.
        """
        reason = refusal(path)
        # A stage that writes a lock file could claim results for itself, such as tests that pass.
        if reason is None and is_lock_of_pipeline(self._root, path):
            reason = "it is the lock file of a pipeline, which only orch23 writes"
        return reason

    def _refused(self, paths: Iterable[str], refusal: RefusePath) -> dict[str, str]:
        return {path: reason for path in paths if (reason := self.refusal(path, refusal)) is not None}

    def promote(
        self, new: FileEntries, old: FileEntries, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error
    ) -> PromotionResult:
        """Change files from `old` to `new`, unless the user edited them; None, or no entry, means no file.

        `refusal` knows the protected paths that the stages of the current plan declare; by default none is declared.

        Raises:
            SafetyError: a path leads through a link, or is protected and not declared. Nothing was written.
            MissingBytesError: the store does not have the bytes of a file. Nothing was written.
        """
        wanted = {path: entry for path, entry in new.items() if entry != old.get(path) or self._current(path) != entry}
        if not wanted:
            return PromotionResult()
        self._check_parents(wanted)
        if refused := self._refused(wanted, refusal):
            raise SafetyError(*refused_path_errors(refused))
        for entry in wanted.values():
            if entry is not None and not self._contents.has(entry.digest):
                raise MissingBytesError(entry.digest.sha256)
        expected = {path: old.get(path) for path in wanted}
        with self._lock:
            # Durable before the first change: after a kill, the next start finishes the promotion (ADR 13).
            redo = _Redo(entries_to_json(wanted), entries_to_json(expected))
            write_atomic(self._redo, self._store_key.encode(redo), mode=PRIVATE_FILE_MODE)
            return self._apply(wanted, expected)

    def pending(self) -> FileEntries:
        """Return the entries of an interrupted promotion that the next build will finish. Writes nothing."""
        try:
            new, old = self._read_redo(read_regular(self._redo) or b"")
        except ValueError:
            return {}
        free = {path: entry for path, entry in new.items() if sealed_reason(path) is None}
        return {path: entry for path, entry in free.items() if self._current(path) in (entry, old.get(path))}

    def recover(self, refusal: RefusePath = NO_DECLARED_PATTERNS.write_error) -> PromotionResult | None:
        """Finish an interrupted promotion; return None if there is none. The caller holds the build lock.

        A damaged redo record is dropped: the build restores the outputs that it did not write. Protected paths that no
        stage declares are skipped, since the file could be forged or older than an edit of the pipeline.

        Raises:
            SafetyError: there is a link where a directory was. Nothing was written.
        """
        data = read_regular(self._redo)
        if data is None:
            return None
        try:
            new, old = self._read_redo(data)
        except ValueError as error:
            self.damaged.append(f"{self._redo.name}: {error}")
            self._redo.unlink()
            return None
        # A redo record of a clone must not write what the pipeline does not declare (ADR 26).
        refused = self._refused(new, refusal)
        text = "an interrupted promotion would change it, but"
        self.damaged += [f"{path}: {text} {why}" for path, why in refused.items()]
        new = {path: entry for path, entry in new.items() if path not in refused}
        self._check_parents(new)
        with self._lock:
            for names in sorted({split_path(path)[0] for path in new}):
                sweep_temps_below(self._root, names)
            lost = [path for path, entry in new.items() if entry is not None and not self._readable(entry.digest)]
            self.damaged += [f"{path}: the promoted bytes are lost; the stage will create them again" for path in lost]
            return self._apply({path: entry for path, entry in new.items() if path not in lost}, old)

    def _read_redo(self, data: bytes) -> tuple[FileEntries, FileEntries]:
        found = self._store_key.decode(data, _Redo)
        return entries_from_json(found.new), entries_from_json(found.old)

    def _readable(self, digest: Digest) -> bool:
        try:
            self._contents.check(digest)
        except MissingBytesError:
            return False
        return True

    def _apply(self, new: FileEntries, old: FileEntries) -> PromotionResult:
        removed = sorted(path for path, entry in new.items() if entry is None)
        written = sorted((path, entry) for path, entry in new.items() if entry is not None)
        # Deletions come first: a new file may have the path of a directory that they leave empty.
        foreign = {path for path in removed if not self._remove(path, old.get(path))}
        foreign |= self._write(written, old)
        # Before the redo record is deleted: a power cut could leave a torn file, which looks like a user edit (ADR 16).
        sync_filesystem(self._root)
        self._redo.unlink()
        done = tuple(path for path, _ in written if path not in foreign)
        return PromotionResult(done, tuple(path for path in removed if path not in foreign), tuple(sorted(foreign)))

    def _write(self, written: Sequence[tuple[str, FileEntry]], old: FileEntries) -> set[str]:
        """Write files, and return the paths that could not be written or that the user edited.

        All bytes are on the disk before the first file is renamed. Otherwise a power cut could leave a file that is
        empty or torn, and the next build would take it for a user edit.
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
                discard_temp(self._root, path, temp)

    def _prepare(self, places: DirectoryCache, path: str, entry: FileEntry, temps: dict[str, str]) -> bool:
        """Write the bytes of a file to a temporary file beside it, unless it has them. Return False if it cannot be."""
        names, name = split_path(path)
        try:
            try:
                parent = places.open(names)
            except FileNotFoundError:
                make_directories(self._root, names)
                parent = places.open(names)
        except NotADirectoryError:
            return False  # a file is where a directory should be
        if self._entry_at(parent, path) != entry:
            temps[path] = temp_name()
            mode = 0o777 if entry.executable else 0o666
            with closing(os.open(temps[path], NEW_FILE_FLAGS, mode, dir_fd=parent)) as descriptor:
                self._contents.copy_to(entry.digest, descriptor, name)
        return True

    def _name(
        self, places: DirectoryCache, path: str, entry: FileEntry, old: FileEntry | None, temps: dict[str, str]
    ) -> bool:
        """Rename the temporary file of a path, unless the user edited the path. Return whether it has the new bytes."""
        names, name = split_path(path)
        parent = places.open(names)
        found = self._entry_at(parent, path)
        if found == entry:
            return True
        if path not in temps or (not _is_free(parent, name) if old is None else found != old):
            return False
        os.rename(temps[path], name, src_dir_fd=parent, dst_dir_fd=parent)
        del temps[path]
        return True

    def _remove(self, path: str, old: FileEntry | None) -> bool:
        """Delete a file and the directories that this leaves empty. Return whether nothing is there now."""
        names, name = split_path(path)
        try:
            with open_directory(self._root, names) as parent:
                if not _is_free(parent, name):
                    if old is None or self._entry_at(parent, path) != old:
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
            except OSError:
                # It is not empty, or may not be deleted.
                return

    def _check_parents(self, paths: Iterable[str]) -> None:
        for names in {split_path(path)[0] for path in paths}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(self._root, names):
                pass

    def _current(self, path: str) -> FileEntry | None:
        names, _ = split_path(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_directory(self._root, names) as parent:
            return self._entry_at(parent, path)
        return None

    def _entry_at(self, parent: int, path: str) -> FileEntry | None:
        descriptor = open_regular(path.rpartition("/")[2], parent)
        if descriptor is None:
            return None
        with closing(descriptor):
            mode = os.fstat(descriptor).st_mode
            return FileEntry(self._digest_of(path, descriptor), executable=bool(mode & stat.S_IXUSR))


def refused_path_errors(refused: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return the errors about paths that are not promoted, from path to reason: the first 10, and a count."""
    messages = [f"`{path}` was left as it is: {reason}" for path, reason in sorted(refused.items())]
    more = len(messages) - _MAX_REFUSED_SHOWN
    if more > 0:
        messages[_MAX_REFUSED_SHOWN:] = [f"{more} more paths were left as they are"]
    hint = "if a stage is to write it, name it in `outputs`; if not, delete the lock file and build"
    return tuple(Diagnostic("E694", text, hint=hint) for text in messages)


def _is_free(parent: int, name: str) -> bool:
    """Return whether a name is unused, also by a link or a directory."""
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False
