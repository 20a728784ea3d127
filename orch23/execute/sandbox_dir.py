"""Create sandbox directories from the declared inputs, see what was written in them, reuse them."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute import process_tree
from orch23.execute.cleanup import make_accessible, remove_tree, remove_trees
from orch23.model.action import InputsChanged
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.paths import compile_pattern
from orch23.store.file_copy import FileProgress, hash_file, no_progress

SEARCH_STOP_FILES: Final[Mapping[str, bytes]] = {
    "pytest.ini": b"",
    ".gitignore": b"",
    ".hgignore": b"",
    ".ruff.toml": b"",
    "mypy.ini": b"[mypy]\n",
    "pyproject.toml": b"[tool.black]\n",
}
"""Files of the sandbox directory, above `work`: pytest, hatchling, ruff, mypy and black search parent directories for
settings and stop at these. The project's own, further up, cannot be read with Landlock, and these tools fail on that.
"""

_EMPTY_PARTS = ("home", "tmp")
_WORK = "work"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_ONLY = 0o700

_Access: TypeAlias = tuple[int, int, int]


class FolderSkeleton(Struct, frozen=True):
    """The folders of a room at `root`: those of every room, and in `work` these, each named after those above it.

    `access` is who may do what in the room's own folders, `below` in those in `work`.
    """

    root: str
    folders: tuple[str, ...]
    access: _Access
    below: _Access | None


def make_skeleton(root: str, folders: Sequence[str]) -> FolderSkeleton:
    """Make the folders of a room.

    Raises:
        FileNotFoundError: there is no folder of rooms.
        OSError: the disk is full or not writable.

    """
    for folder in (root, *(f"{root}/{part}" for part in (*_EMPTY_PARTS, _WORK))):
        os.mkdir(folder, _OWN_ONLY)
    for name, text in SEARCH_STOP_FILES.items():
        descriptor = os.open(f"{root}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
    frame = FolderSkeleton(root, (), _access(os.stat(root)), None)
    return _with_folders(frame, folders)


def refit_skeleton(frame: FolderSkeleton, folders: Sequence[str]) -> FolderSkeleton | None:
    """Make the folders of an empty frame those of another room; None, and it is gone, where something resists."""
    try:
        for folder in reversed(frame.folders):
            if folder not in folders:
                os.rmdir(f"{frame.root}/{_WORK}/{folder}")
        return _with_folders(frame, folders)
    except OSError:
        remove_tree(Path(frame.root))
        return None


def empty_skeleton(frame: FolderSkeleton) -> bool:
    """Take the files out of the frame of a step that has ended; False where it changed more than files in `work`.

    Each folder has to be there, as open to others as it was, and there may be no other. No link is followed.
    """
    try:
        with _opened_folder(frame.root) as root:
            if not _is_as_made(frame, root):
                return False
            for part in _EMPTY_PARTS:
                with _opened_folder(part, root) as folder:
                    if _access(os.fstat(folder)) != frame.access or os.listdir(folder):
                        return False
            with _opened_folder(_WORK, root) as work:
                if _access(os.fstat(work)) != frame.access:
                    return False
                return _take_files(frame, work, "") == len(frame.folders)
    except (OSError, _StrangeError):
        return False


class _StrangeError(Exception):
    """A folder is not one that was made, or not as it was made."""


def _with_folders(frame: FolderSkeleton, folders: Sequence[str]) -> FolderSkeleton:
    for folder in folders:
        if folder not in frame.folders:
            os.mkdir(f"{frame.root}/{_WORK}/{folder}")
    below = frame.below
    if below is None and folders:
        below = _access(os.stat(f"{frame.root}/{_WORK}/{folders[0]}"))
    return replace(frame, folders=tuple(folders), below=below)


def _is_as_made(frame: FolderSkeleton, root: int) -> bool:
    if _access(os.fstat(root)) != frame.access:
        return False
    if sorted(os.listdir(root)) != sorted((*_EMPTY_PARTS, _WORK, *SEARCH_STOP_FILES)):
        return False
    return all(_is_as_written(root, name, text) for name, text in SEARCH_STOP_FILES.items())


def _is_as_written(root: int, name: str, text: bytes) -> bool:
    """Return whether a file of the root is the one that was made; it is opened only if it has bytes."""
    status = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size != len(text):
        return False
    if not text:
        return True
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    try:
        return os.read(descriptor, len(text) + 1) == text
    finally:
        os.close(descriptor)


def _take_files(frame: FolderSkeleton, folder: int, prefix: str) -> int:
    """Unlink the files in a folder and in those below it; return how many these are."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    count = 0
    for name, is_directory in found:
        if not is_directory:
            os.unlink(name, dir_fd=folder)
            continue
        if prefix + name not in frame.folders:
            raise _StrangeError
        with _opened_folder(name, folder) as inner:
            if _access(os.fstat(inner)) != frame.below:
                raise _StrangeError
            count += 1 + _take_files(frame, inner, f"{prefix}{name}/")
    return count


@contextmanager
def _opened_folder(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _access(status: os.stat_result) -> _Access:
    return status.st_mode, status.st_uid, status.st_gid


SANDBOX_EPOCH = 315_619_200
"""The one mtime of everything in a room, and SOURCE_DATE_EPOCH: 1980-01-02 UTC, which zip archives can hold."""

_MAX_NAME_BYTES = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_TOLD = 10
_OWN, _LOG = ".own", ".log"


class InputSource(Protocol):
    """Where the bytes of inputs come from: the workspace or the store."""

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        """Copy the promised bytes of `path` to `target`; False where they are no longer to be had."""


class SandboxDir(Struct, frozen=True):
    """The place one process runs in. `marker` is random and names its processes; `work` is the tree it sees."""

    root: Path
    marker: str

    @property
    def work(self) -> Path:
        """Give the project as the process sees it."""
        return self.root / "work"

    @property
    def home(self) -> Path:
        """Give the process's HOME."""
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        """Give the process's TMPDIR."""
        return self.root / "tmp"

    @property
    def own(self) -> Path:
        """Give the place beside the room for a folder of what is orch23's own: no process may write there."""
        return self.root.with_name(f"{self.root.name}{_OWN}")

    @property
    def tools(self) -> Path:
        """Return the directory of the action's tools and of other files for the process. It cannot write there."""
        return self.own / "tools"

    @property
    def log(self) -> Path:
        """Give the place beside the room for what its process prints, where that is much."""
        return self.root.with_name(f"{self.root.name}{_LOG}")


class TreeChanges(Struct, frozen=True):
    """The difference of a room's tree to what it was laid with, and what no result may hold.

    `written` are the regular files that are new or changed, each with its executable bit.
    """

    written: Mapping[str, bool]
    removed: tuple[str, ...]
    violations: tuple[Diagnostic, ...]


class TreeLimits(Struct, frozen=True):
    """How much a room may hold at the end: files and directories, levels, bytes by their sizes."""

    entries: int = 100_000
    depth: int = 64
    size_bytes: int = 4 << 30


class _Walk(Struct):
    """What a scan has seen so far."""

    caps: TreeLimits
    is_scratch: Callable[[str], bool]
    inputs: Mapping[str, FileEntry]
    meter: FileProgress
    files: set[str] = field(default_factory=set)
    written: dict[str, bool] = field(default_factory=dict)
    violations: list[Diagnostic] = field(default_factory=list)
    entries: int = 0
    size_bytes: int = 0

    def complain(self, code: str, path: str, message: str, hint: str) -> None:
        self.violations.append(Diagnostic(code, message, hint=hint, subject=printable_path(path)))


class _CapReachedError(Exception):
    """The scan stops: a cap is passed and the result is refused whatever else it holds."""


class SandboxDirs:
    """SandboxDirs below one folder, filled from one source of contents."""

    def __init__(
        self, folder: Path, sources: InputSource, caps: TreeLimits | None = None, meter: FileProgress = no_progress
    ) -> None:
        """Keep the folder; it is made with the first room."""
        self.folder = folder
        self._sources = sources
        self._meter = meter
        self._caps = caps if caps is not None else TreeLimits()
        self._frames: dict[str, FolderSkeleton] = {}
        self._empty: list[FolderSkeleton] = []

    def lay(
        self, inputs: Mapping[str, FileEntry], working_directory: str = ".", output_folders: tuple[str, ...] = ()
    ) -> SandboxDir | InputsChanged:
        """Make a room with copies of exactly these inputs; where some changed meanwhile, none, and their paths.

        The working directory and the folders of outputs are there, so that no step has to make them.

        Raises:
            OSError: the disk is full or not writable.

        """
        marker = secrets.token_hex(8)
        folders = _folders(inputs, (working_directory, *output_folders))
        frame = self._empty_frame(folders)
        room = SandboxDir(self.folder / marker if frame is None else Path(frame.root), marker)
        try:
            frame = frame or self._make_frame(room, folders)
            lost = self._furnish(frame, inputs)
        except BaseException:
            self.discard(room)
            raise
        if lost:
            self.discard(room)
            return InputsChanged(lost)
        self._frames[marker] = frame
        return room

    def _empty_frame(self, folders: Sequence[str]) -> FolderSkeleton | None:
        try:
            return refit_skeleton(self._empty.pop(), folders)
        except IndexError:
            return None

    def _make_frame(self, room: SandboxDir, folders: Sequence[str]) -> FolderSkeleton:
        try:
            return make_skeleton(str(room.root), folders)
        except FileNotFoundError:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return make_skeleton(str(room.root), folders)

    def _furnish(self, frame: FolderSkeleton, inputs: Mapping[str, FileEntry]) -> tuple[str, ...]:
        """Copy the inputs and return those whose bytes are gone.

        Everything has the one mtime: directories get theirs after what is in them.
        """
        work, folders = f"{frame.root}/work", frame.folders
        lost = []
        for path in sorted(inputs):
            target = f"{work}/{path}"
            if (text := _link_of(path, inputs)) is not None:
                os.symlink(text, target)
                os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH), follow_symlinks=False)
            elif self._sources.copy_into(path, inputs[path], Path(target)):
                os.chmod(target, 0o755 if inputs[path].executable else 0o644)
                os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH))
            else:
                lost.append(path)
        for folder in (*reversed(folders), "."):
            os.utime(f"{work}/{folder}", (SANDBOX_EPOCH, SANDBOX_EPOCH))
        return tuple(lost)

    def scan(self, room: SandboxDir, inputs: Mapping[str, FileEntry], scratch: tuple[str, ...] = ()) -> TreeChanges:
        """Compare the room's tree with what it was laid with; every process of the room must have ended.

        Bytes are compared, never times: a process can set them, and a shared mapping on tmpfs leaves no trace there.
        """
        walk = _Walk(self._caps, _scratch_of(scratch), inputs, self._meter)
        try:
            top = _open_top(room)
        except OSError:
            walk.complain("E618", ".", "the room's work directory was replaced or removed", "leave it in place")
            return TreeChanges({}, (), tuple(walk.violations))
        try:
            with contextlib.suppress(_CapReachedError):
                _walk_directory(walk, top, "", 1)
        finally:
            os.close(top)
        removed = tuple(p for p in sorted(inputs) if p not in walk.files and not walk.is_scratch(p))
        return TreeChanges(dict(sorted(walk.written.items())), removed, _in_short(walk.violations))

    @contextlib.contextmanager
    def opened(self, room: SandboxDir) -> Iterator[Callable[[str], int]]:
        """Give what opens a file of the room's tree to be read, by its path, through no link.

        Raises:
            OSError: the tree is not there; by what is given: the file is no longer one of its own, or behind a link.

        """
        top = _open_top(room)
        try:
            yield lambda path: _open_file(top, path)
        finally:
            os.close(top)

    def discard(self, room: SandboxDir) -> None:
        """Remove a room with all in it, however deep, whatever the modes. What resists is left to `sweep`."""
        self._frames.pop(room.marker, None)
        remove_trees(self.folder, room.root.name, room.own.name, room.log.name)

    def clear(self, room: SandboxDir) -> None:
        """Take the files out of a room, and keep its folders for the next one; else discard it.

        Only for a step that was trusted and ran alone: nobody is left who knows these folders.
        """
        frame = self._frames.pop(room.marker, None)
        if frame is None or not empty_skeleton(frame):
            self.discard(room)
            return
        remove_trees(self.folder, room.own.name, room.log.name)
        self._empty.append(frame)

    def close(self) -> None:
        """Remove the folders that were kept."""
        while self._empty:
            remove_tree(Path(self._empty.pop().root))

    def sweep(self) -> tuple[str, ...]:
        """End the steps of builds that were killed, remove their rooms, and say so. Only under the build's lock."""
        ended = process_tree.kill_leftovers(self.folder)
        if self.folder.is_dir():
            remove_trees(self.folder, *os.listdir(self.folder))
        if not ended:
            return ()
        many = f"{len(ended)} processes" if len(ended) > 1 else "a process"
        return (f"ended {many} that a killed build left running",)


def _in_short(violations: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return some of each kind of complaint, and how many more there are: of a hostile tree, a hundred thousand."""
    kinds: dict[str, list[Diagnostic]] = {}
    for one in violations:
        kinds.setdefault(one.code, []).append(one)
    found: list[Diagnostic] = []
    for code, ones in kinds.items():
        found += ones[:_MOST_TOLD]
        if (more := len(ones) - _MOST_TOLD) > 0:
            found.append(Diagnostic(code, f"so are {more} more of its files and directories", hint=ones[0].hint))
    return tuple(found)


def is_scratch(path: str, patterns: tuple[str, ...]) -> bool:
    """Say whether a path is thrown away: by any of its names, or by its whole where the pattern has a `/`."""
    return _scratch_of(patterns)(path)


@lru_cache(maxsize=64)
def _scratch_of(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return what says whether a path is thrown away by these patterns."""
    by_name = [re.compile(translate(p.rstrip("/"))).match for p in patterns if "/" not in p.rstrip("/")]
    by_path = [compile_pattern(p) for p in patterns if "/" in p.rstrip("/")]

    def is_thrown_away(path: str) -> bool:
        for name in path.split("/"):
            for means in by_name:
                if means(name) is not None:
                    return True
        return any(means(path) for means in by_path)

    return is_thrown_away


def _folders(inputs: Iterable[str], more: Iterable[str]) -> list[str]:
    """Return the folders that files and other folders stand in, each after those above it."""
    found: set[str] = set()
    for folder in (*(path.rpartition("/")[0] for path in inputs), *more):
        above = "/".join(name for name in folder.split("/") if name not in ("", "."))
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return sorted(found)


def _link_of(path: str, inputs: Mapping[str, FileEntry]) -> str | None:
    """Return the text of the link that an input is laid as: one to another input; None where it is a file."""
    link = inputs[path].link if path in inputs else ""
    there = inputs.get(link) if link else None
    if there is None or there.link or there.digest != inputs[path].digest:
        return None
    above, target = path.split("/")[:-1], link.split("/")
    while above and target[1:] and above[0] == target[0]:
        above, target = above[1:], target[1:]
    return "/".join([*(".." for _ in above), *target])


def printable_path(path: str) -> str:
    """Return a path so that it can be shown: control characters and bytes that are no UTF-8 are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in path)


def _open_top(room: SandboxDir) -> int:
    """Open the tree that the process worked in; it may have locked it."""
    above = os.open(room.root.parent, _DIRECTORY)
    try:
        for name in (room.root.name, room.work.name):
            make_accessible(name, above)
            below = os.open(name, _DIRECTORY, dir_fd=above)
            os.close(above)
            above = below
    except BaseException:
        os.close(above)
        raise
    return above


def _walk_directory(walk: _Walk, folder: int, prefix: str, depth: int) -> None:
    """Note all below an open directory. Processes have ended, so what lstat says stays true."""
    left = walk.caps.entries - walk.entries
    with os.scandir(folder) as entries:
        wanted = (entry.name for entry in entries if not walk.is_scratch(f"{prefix}{entry.name}"))
        names = sorted(islice(wanted, left + 1))  # one more is too many; there may be millions
    walk.entries += len(names)
    if len(names) > left:
        message = f"more than {walk.caps.entries} files and directories"
        walk.complain("E615", prefix.rstrip("/") or ".", message, "write fewer files")
        raise _CapReachedError
    for name in names:
        path = f"{prefix}{name}"
        if (why := _bad_name(name)) is not None:
            walk.complain("E614", path, f"the name {why}", "choose another name")
            continue
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            _note_file(walk, folder, name, path, status)
        elif depth >= walk.caps.depth:
            walk.complain("E616", path, f"nested deeper than {walk.caps.depth} levels", "write flatter directories")
        else:
            with _opened(folder, name, status) as inner:
                _walk_directory(walk, inner, f"{path}/", depth + 1)


def _note_file(walk: _Walk, folder: int, name: str, path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode) and _link_of(path, walk.inputs) == os.readlink(name, dir_fd=folder):
        walk.files.add(path)
    elif stat.S_ISLNK(status.st_mode):
        walk.complain("E610", path, "is a symbolic link", "copy the file instead of linking it")
    elif not stat.S_ISREG(status.st_mode):
        walk.complain("E611", path, f"is {_kind(status.st_mode)}", "make it below TMPDIR, or name it in `scratch`")
    elif status.st_nlink != 1:
        walk.complain("E612", path, f"has {status.st_nlink} hard links", "copy the file instead of linking it")
    elif status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        walk.complain("E613", path, "has a setuid or setgid bit", "chmod u-s,g-s it")
    else:
        walk.size_bytes += status.st_size
        if walk.size_bytes > walk.caps.size_bytes:
            walk.complain("E617", path, f"the files are over {walk.caps.size_bytes} bytes together", "write less")
            raise _CapReachedError
        if not status.st_mode & stat.S_IRUSR:
            _make_readable(folder, name)
        walk.files.add(path)
        if _differs(folder, name, status, walk.inputs.get(path), walk.meter):
            walk.written[path] = bool(status.st_mode & stat.S_IXUSR)


def _make_readable(folder: int, name: str) -> None:
    """Let a file be read by its owner, whatever it is now that has this name: a link is not followed."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(place)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
    finally:
        os.close(place)


def _open_file(top: int, path: str) -> int:
    """Open a file folder by folder. It must still be regular and have no other name, which may be another's file."""
    folder = os.dup(top)
    try:
        *above, name = path.split("/")
        for one in above:
            below = os.open(one, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        return _open_regular(folder, name)
    finally:
        os.close(folder)


def _open_regular(folder: int, name: str) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)


@contextlib.contextmanager
def _opened(folder: int, name: str, status: os.stat_result) -> Iterator[int]:
    """Open a directory by its parent; one that its owner may not read is unlocked first."""
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        make_accessible(name, folder)
    inner = os.open(name, _DIRECTORY, dir_fd=folder)
    try:
        yield inner
    finally:
        os.close(inner)


def _bad_name(name: str) -> str | None:
    try:
        raw = name.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(raw) > _MAX_NAME_BYTES:
        return f"has over {_MAX_NAME_BYTES} bytes"
    if any(ord(c) < ord(" ") or ord("\x7f") <= ord(c) < ord("\xa0") for c in name):
        return "holds a control character"
    return None


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def _differs(folder: int, name: str, status: os.stat_result, entry: FileEntry | None, meter: FileProgress) -> bool:
    """Say whether a file is another than it was laid; equal sizes are settled by the bytes."""
    if entry is None or status.st_size != entry.digest.size_bytes:
        return True
    if bool(status.st_mode & stat.S_IXUSR) != entry.executable:
        return True
    descriptor = _open_regular(folder, name)
    try:
        return hash_file(descriptor, meter("hashing", name, status.st_size))[0] != entry.digest.sha256
    finally:
        os.close(descriptor)


TreeStamps: TypeAlias = Mapping[str, tuple[int, int]]
"""Inode and time of the last change of each path of a tree; no process can set the latter."""


_CACHE = ".pytest_cache"


def writable_parts(room: SandboxDir, writable: Iterable[str]) -> Iterator[Path]:
    """Give the places of a room that its process may write."""
    yield from (room.home, room.tmp)
    if (cache := room.root / _CACHE).is_dir():
        yield cache
    yield from (room.work / path for path in writable)


def required_folders(writable: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that have to be there: those that are writable, and those of writable files."""
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in writable if "/" in path))


def make_pytest_cache(room: SandboxDir) -> None:
    """Make the folder of pytest's cache, which stands beside the settings that it finds above the tree."""
    (room.root / _CACHE).mkdir()


def make_writable_files(room: SandboxDir, writable: Iterable[str]) -> tuple[str, ...]:
    """Make the writable files that are not there, empty, and return their paths."""
    made = []
    for path in writable:
        target = room.work / path
        if not path.endswith("/") and not target.exists():
            target.touch(0o644, exist_ok=False)
            os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH))
            made.append(path)
    return tuple(made)


def stamp_tree(room: SandboxDir, writable: Iterable[str]) -> TreeStamps:
    """Return the stamps of everything in a room's tree that may not be written."""
    left_out = frozenset(path.rstrip("/") for path in writable)
    found: dict[str, tuple[int, int]] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        status = os.stat(room.work / folder, follow_symlinks=False)
        found[folder or "."] = (status.st_ino, status.st_ctime_ns)
        with os.scandir(room.work / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path in left_out:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    found[path] = (status.st_ino, status.st_ctime_ns)
    return found


class ReadOnlyChanges(Struct, frozen=True):
    """What is left of a read-only tree: files that were made for the process and not used, and what was changed."""

    unused: tuple[str, ...]
    touched: tuple[str, ...]


def compare_read_only(
    room: SandboxDir, writable: Iterable[str], made: Iterable[str], before: TreeStamps | None
) -> ReadOnlyChanges:
    """Compare a tree with what it was. Without stamps of it nothing else than `writable` could be written."""
    unused = tuple(path for path in made if _is_unused(room.work / path))
    return ReadOnlyChanges(unused, () if before is None else _touched(room, before, writable))


def _is_unused(path: Path) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return status.st_size == 0 and int(status.st_mtime) == SANDBOX_EPOCH


def _touched(room: SandboxDir, before: TreeStamps, writable: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that were changed, made or removed; of a folder and what is in it, only the latter.

    A tree that cannot be read any more counts as changed as a whole.
    """
    try:
        after = stamp_tree(room, writable)
    except OSError:
        return (".",)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return tuple(
        p for p in changed if not any(p == "." or other.startswith(f"{p}/") for other in changed if other != p)
    )
