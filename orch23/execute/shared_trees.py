"""Keep copies of large input folders: they are mounted into the sandbox directories of steps, not copied for each.

A step writes to a layer of its own above the copy (overlayfs), or nothing. Without mounts, it has the copy alone, which
is kept if the step left it as it was. A copy is changed only to follow the project, while no step uses it (ADR 82).
"""

import contextlib
import errno
import os
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.sandbox_tree import (
    LEAST_SHARED_FILES,
    FolderMount,
    InputSource,
    MountKind,
    SandboxDir,
    copy_inputs,
    make_subfolders,
    parent_folders,
    set_times,
)
from orch23.model.action import InputsChanged, link_text
from orch23.model.digest import FileEntry, digest_bytes
from orch23.snapshot.signatures import is_racy
from orch23.snapshot.stat_snapshot import CHANGE_TIME
from orch23.store.index import file_system_type
from orch23.store.json_text import TRUSTED, StoreKey, checked_line
from orch23.store.safe_files import (
    make_folder,
    make_subfolder,
    read_regular,
    try_unlink,
    write_atomic,
)
from orch23.store.tree_removal import remove_tree

_MOST_COPIES = 8
_MANIFEST, _FILES = "manifest", "files"
_PAUSE_S = 0.02
_UNREADABLE = (OSError, UnicodeError)
# Here, a write through a shared mapping changes times too, other than on tmpfs.
_EXACT_TIMES = frozenset({"btrfs", "ext4", "xfs"})
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# For each path of a copy: the digest of a file, with ` 1` if it is executable, or the text of a link.
_Contents: TypeAlias = dict[str, str]


class _Manifest(Struct, frozen=True):
    """What a copy holds: `folder` is its path in the project, `stamps` the digest of those of its files and folders."""

    boot: str
    folder: str
    contents: _Contents = field(default_factory=dict)
    stamps: str = ""
    changed_ns: int = 0  # the last change time in it


class _Copy(Struct, eq=False):
    """A copy of a folder, how many steps use it, and whether one of them has it in its tree."""

    root: Path
    manifest: _Manifest
    users: int = 0
    is_moved: bool = False

    @property
    def files(self) -> Path:
        return self.root / _FILES / self.manifest.folder

    def is_intact(self) -> bool:
        """Return whether no one has changed its files, by their stamps."""
        with contextlib.suppress(*_UNREADABLE):
            return _stamps(self.files, self.manifest.contents) == self.manifest.stamps
        return False


class SharedTrees:
    """The copies in one store. Only the holder of the build lock may use them."""

    def __init__(self, folder: Path, sources: InputSource, key: StoreKey = TRUSTED) -> None:
        """Read nothing yet."""
        self._folder, self._sources, self._key = folder, sources, key
        self._lock = threading.Lock()
        self._boot = ""
        self._copies: list[_Copy] | None = None  # the one that was used last is last
        self._used: dict[Path, _Copy] = {}

    @staticmethod
    def large_folders(inputs: Iterable[str], closed: Iterable[str] = ()) -> dict[str, Sequence[str]]:
        """Return the highest folders with many inputs, and their inputs; none that overlaps with a closed folder."""
        return dict(_large(sorted(inputs), "", tuple(path.rstrip("/") for path in closed)))

    def mount(
        self,
        sandbox_dir: SandboxDir,
        folder: str,
        paths: Iterable[str],
        inputs: Mapping[str, FileEntry],
        kind: MountKind,
    ) -> FolderMount | InputsChanged:
        """Return the mount that has exactly these inputs, until `give_back`, or the inputs that changed.

        Raises:
            OSError: the disk is full or not writable.
        """
        files = self._take(folder, paths, inputs, is_moved=kind == "moved")
        if isinstance(files, InputsChanged) or kind == "read-only":
            return files if isinstance(files, InputsChanged) else FolderMount(folder, files)
        lower = sandbox_dir.layers / f"lower{len(sandbox_dir.mounts)}"
        try:
            if kind == "moved":
                changed_ns = self._used[files].manifest.changed_ns
                # A change by the step must get another time, as it does after the clock was set back.
                while changed_ns <= (now := time.time_ns()) and is_racy(os.stat(files).st_dev, 0, changed_ns, now):
                    time.sleep(_PAUSE_S)
                there = sandbox_dir.work / folder
                os.rename(files, there)
                return FolderMount(folder, files, moved_ns=os.lstat(there).st_ctime_ns)
            for part in (sandbox_dir.orch23_folder, sandbox_dir.layers, sandbox_dir.layers / "work", lower):
                make_subfolder(part, 0o700)
        except BaseException as problem:
            # No file is renamed to another mount, even one of the same file system.
            self.can_move = self.can_move and getattr(problem, "errno", 0) != errno.EXDEV
            self.give_back(files)
            raise
        return FolderMount(folder, files, lower)

    @cached_property
    def can_move(self) -> bool:
        """Whether times show each change of a file that was moved, also by a shared mapping."""
        return file_system_type(self._folder) in _EXACT_TIMES

    def move_back(self, sandbox_dir: SandboxDir) -> SandboxDir:
        """Move back the folders that the step left as they were. The others are part of the tree from now on."""
        back = []
        for mount in sandbox_dir.moved:
            there = sandbox_dir.work / mount.path
            with contextlib.suppress(*_UNREADABLE):
                own = [name for name in os.listxattr(there) if not name.startswith("security.")]
                manifest = self._used[mount.files].manifest
                if not own and _stamps(there, manifest.contents) == manifest.stamps:
                    os.rename(there, mount.files)
                    back.append(mount)
        return replace(sandbox_dir, mounts=(*sandbox_dir.mounts, *back))

    def _take(
        self, folder: str, paths: Iterable[str], inputs: Mapping[str, FileEntry], *, is_moved: bool
    ) -> Path | InputsChanged:
        found, start = [(path, inputs[path]) for path in paths], len(folder) + 1
        wanted = {path[start:]: one.digest.sha256 for path, one in found}
        for path, one in [(path, one) for path, one in found if one.executable or one.link]:
            text = one.link and link_text(path, inputs)
            wanted[path[start:]] = f"-> {text}" if text else f"{one.digest.sha256} {one.executable:d}"
        with self._lock:
            copy = self._find(folder, wanted, is_moved=is_moved) or self._make(folder, wanted, inputs)
            if isinstance(copy, InputsChanged):
                return copy
            copy.users, copy.is_moved = copy.users + 1, is_moved
            self._used[copy.files] = copy
            return copy.files

    def give_back(self, *folders: Path) -> None:
        """End the use of the files of mounts by one step."""
        with self._lock:
            for files in folders:
                self._used[files].users -= 1
                self._used[files].is_moved = False

    def _find(self, folder: str, wanted: _Contents, *, is_moved: bool) -> _Copy | None:
        """Return the copy with these contents, or None; one that no step uses, if it will be moved."""
        copies = self._all()
        free = [one for one in copies if not (one.is_moved or (is_moved and one.users))]
        for copy in [one for one in free if (one.manifest.folder, one.manifest.contents) == (folder, wanted)]:
            # One that is moved is compared after the step.
            if copy.files.is_dir() if is_moved else copy.is_intact():
                copies.remove(copy)
                copies.append(copy)
                os.utime(copy.root / _MANIFEST)
                return copy
            self._drop(copy)
        return None

    def _make(self, folder: str, wanted: _Contents, inputs: Mapping[str, FileEntry]) -> _Copy | InputsChanged:
        """Change the copy that differs least, or make a new one."""
        shared = {copy.root: len(copy.manifest.contents.items() & wanted.items()) for copy in self._idle(folder)}
        copy = max(self._idle(folder), key=lambda one: shared[one.root], default=None)
        if copy is not None and not copy.is_intact():
            self._drop(copy)
            copy = None
        if copy is None or 2 * shared[copy.root] < len(wanted):
            copy = self._new(folder)
        try:
            lost = self._change(copy, wanted, inputs)
        except BaseException:
            self._drop(copy)
            raise
        if lost:
            self._drop(copy)
            return InputsChanged(tuple(lost))
        return copy

    def _idle(self, folder: str) -> list[_Copy]:
        return [copy for copy in self._all() if not copy.users and copy.manifest.folder == folder]

    def _new(self, folder: str) -> _Copy:
        copies = self._all()
        for copy in [one for one in copies if not one.users][: max(0, len(copies) - _MOST_COPIES + 1)]:
            self._drop(copy)
        copy = _Copy(self._folder / os.urandom(8).hex(), _Manifest(self._boot, folder))
        make_folder(copy.root, 0o700)
        make_subfolders(copy.root, parent_folders((), (f"{_FILES}/{folder}",)))
        copies.append(copy)
        return copy

    def _change(self, copy: _Copy, wanted: _Contents, inputs: Mapping[str, FileEntry]) -> Sequence[str]:
        """Give a copy these contents. Return the inputs whose bytes are gone or changed."""
        # A copy that was changed only in part has no manifest, and is removed.
        try_unlink(copy.root / _MANIFEST)
        manifest = copy.manifest
        gone = [path for path, content in manifest.contents.items() if wanted.get(path) != content]
        new = [path for path, content in wanted.items() if manifest.contents.get(path) != content]
        for path in gone:
            os.unlink(copy.files / path)
        folders, before = parent_folders(wanted), parent_folders(manifest.contents)
        for folder in sorted(set(before).difference(folders), reverse=True):
            os.rmdir(copy.files / folder)
        make_subfolders(copy.files, sorted(set(folders).difference(before)))
        prefix = f"{manifest.folder}/"
        if lost := copy_inputs(self._sources, {prefix + path: f"{copy.files}/{path}" for path in new}, inputs):
            return lost
        set_times(copy.files, {*parent_folders((*gone, *new))}.intersection(folders))
        changed_ns = os.stat(copy.files).st_ctime_ns
        copy.manifest = replace(manifest, contents=wanted, stamps=_stamps(copy.files, wanted), changed_ns=changed_ns)
        data = self._key.line(msgspec.json.encode(copy.manifest))
        write_atomic(copy.root / _MANIFEST, data, mode=0o600, durable=False)
        return ()

    def _drop(self, copy: _Copy) -> None:
        """Use a copy no more. If a step still does, the next build removes it."""
        self._all().remove(copy)
        try_unlink(copy.root / _MANIFEST)
        if not copy.users:
            remove_tree(copy.root)

    def _all(self) -> list[_Copy]:
        if self._copies is None:
            self._boot = (read_regular(_BOOT_ID) or b"").decode("ascii", "replace").strip()
            self._copies = list(self._read())
        return self._copies

    def _read(self) -> Iterator[_Copy]:
        """Yield the copies that a build of this user has made since the machine started. Others are removed."""
        # After a power cut, bytes may be missing that had not reached the disk.
        found = [*self._folder.iterdir()] if self._folder.is_dir() else []
        for root in sorted(found, key=_last_use):
            manifest = self._manifest(root)
            if manifest is not None and self._boot and manifest.boot == self._boot:
                yield _Copy(root, manifest)
            else:
                remove_tree(root)

    def _manifest(self, root: Path) -> _Manifest | None:
        try:
            inner, mac = checked_line(read_regular(root / _MANIFEST) or b"")
            return msgspec.json.decode(inner, type=_Manifest) if self._key.proves(inner, mac) else None
        except (OSError, ValueError):
            return None


def _large(paths: Sequence[str], prefix: str, closed: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the large folders directly below `prefix`, which all the sorted `paths` have."""
    at = 0
    while at < len(paths):
        name, is_folder, _ = paths[at][len(prefix) :].partition("/")
        folder, start = prefix + name, at
        # `0` is the character after `/`.
        at = bisect_left(paths, f"{folder}0", at) if is_folder else at + 1
        if at - start < LEAST_SHARED_FILES or any(f"{folder}/".startswith(f"{path}/") for path in closed):
            continue
        if any(path.startswith(f"{folder}/") for path in closed):
            yield from _large(paths[start:at], f"{folder}/", closed)
        else:
            yield folder, paths[start:at]


def _last_use(root: Path) -> int:
    try:
        return os.stat(root / _MANIFEST).st_mtime_ns
    except OSError:
        return 0


def _stamps(files: Path, contents: _Contents) -> str:
    """Return the digest of the change times of files and their folders: a folder gets another one with each entry."""
    paths = map(f"{files}/".__add__, (*contents, *parent_folders(contents)))
    times = array("q", map(CHANGE_TIME, map(os.lstat, paths)))
    top = os.lstat(files)
    # Its own change time is new whenever it is moved.
    return digest_bytes(repr((top.st_ino, top.st_mtime_ns, top.st_mode)).encode() + times.tobytes()).sha256
