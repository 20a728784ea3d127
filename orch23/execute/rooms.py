"""Make a fresh directory of exactly the declared inputs, see exactly what was written there, and remove it."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from orch23.execute import kinship
from orch23.execute.frames import Frame, emptied, make_frame, refitted
from orch23.execute.removal import remove_tree, remove_trees, unlock
from orch23.model.action import InputsChanged
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.paths import matcher
from orch23.store.clone import hash_file
from orch23.store.meter import Meter, silent

ROOM_EPOCH = 315_619_200
"""The one mtime of everything in a room, and SOURCE_DATE_EPOCH: 1980-01-02 UTC, which zip archives can hold."""

MAX_NAME_BYTES = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_TOLD = 10
_OWN, _LOG = ".own", ".log"


class ContentSource(Protocol):
    """Where the bytes of inputs come from: the workspace or the store."""

    def copy_into(self, path: str, entry: FileEntry, target: Path) -> bool:
        """Copy the promised bytes of `path` to `target`; False where they are no longer to be had."""


class Room(Struct, frozen=True):
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


class Scan(Struct, frozen=True):
    """The difference of a room's tree to what it was laid with, and what no result may hold.

    `written` are the regular files that are new or changed, each with its executable bit.
    """

    written: Mapping[str, bool]
    removed: tuple[str, ...]
    violations: tuple[Diagnostic, ...]


class RoomCaps(Struct, frozen=True):
    """How much a room may hold at the end: files and directories, levels, bytes by their sizes."""

    entries: int = 100_000
    depth: int = 64
    size_bytes: int = 4 << 30


class _Walk(Struct):
    """What a scan has seen so far."""

    caps: RoomCaps
    is_scratch: Callable[[str], bool]
    inputs: Mapping[str, FileEntry]
    meter: Meter
    files: set[str] = field(default_factory=set)
    written: dict[str, bool] = field(default_factory=dict)
    violations: list[Diagnostic] = field(default_factory=list)
    entries: int = 0
    size_bytes: int = 0

    def complain(self, code: str, path: str, message: str, hint: str) -> None:
        self.violations.append(Diagnostic(code, message, hint=hint, subject=printable(path)))


class _CapReachedError(Exception):
    """The scan stops: a cap is passed and the result is refused whatever else it holds."""


class Rooms:
    """Rooms below one folder, filled from one source of contents."""

    def __init__(
        self, folder: Path, sources: ContentSource, caps: RoomCaps | None = None, meter: Meter = silent
    ) -> None:
        """Keep the folder; it is made with the first room."""
        self.folder = folder
        self._sources = sources
        self._meter = meter
        self._caps = caps if caps is not None else RoomCaps()
        self._frames: dict[str, Frame] = {}
        self._empty: list[Frame] = []

    def lay(
        self, inputs: Mapping[str, FileEntry], working_directory: str = ".", output_folders: tuple[str, ...] = ()
    ) -> Room | InputsChanged:
        """Make a room with copies of exactly these inputs; where some changed meanwhile, none, and their paths.

        The working directory and the folders of outputs are there, so that no step has to make them.

        Raises:
            OSError: the disk is full or not writable.

        """
        marker = secrets.token_hex(8)
        folders = _folders(inputs, (working_directory, *output_folders))
        frame = self._empty_frame(folders)
        room = Room(self.folder / marker if frame is None else Path(frame.root), marker)
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

    def _empty_frame(self, folders: Sequence[str]) -> Frame | None:
        try:
            return refitted(self._empty.pop(), folders)
        except IndexError:
            return None

    def _make_frame(self, room: Room, folders: Sequence[str]) -> Frame:
        try:
            return make_frame(str(room.root), folders)
        except FileNotFoundError:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return make_frame(str(room.root), folders)

    def _furnish(self, frame: Frame, inputs: Mapping[str, FileEntry]) -> tuple[str, ...]:
        """Copy the inputs and return those whose bytes are gone.

        Everything has the one mtime: directories get theirs after what is in them.
        """
        work, folders = f"{frame.root}/work", frame.folders
        lost = []
        for path in sorted(inputs):
            target = f"{work}/{path}"
            if (text := _link_of(path, inputs)) is not None:
                os.symlink(text, target)
                os.utime(target, (ROOM_EPOCH, ROOM_EPOCH), follow_symlinks=False)
            elif self._sources.copy_into(path, inputs[path], Path(target)):
                os.chmod(target, 0o755 if inputs[path].executable else 0o644)
                os.utime(target, (ROOM_EPOCH, ROOM_EPOCH))
            else:
                lost.append(path)
        for folder in (*reversed(folders), "."):
            os.utime(f"{work}/{folder}", (ROOM_EPOCH, ROOM_EPOCH))
        return tuple(lost)

    def scan(self, room: Room, inputs: Mapping[str, FileEntry], scratch: tuple[str, ...] = ()) -> Scan:
        """Compare the room's tree with what it was laid with; every process of the room must have ended.

        Bytes are compared, never times: a process can set them, and a shared mapping on tmpfs leaves no trace there.
        """
        walk = _Walk(self._caps, _scratch_of(scratch), inputs, self._meter)
        try:
            top = _open_top(room)
        except OSError:
            walk.complain("E618", ".", "the room's work directory was replaced or removed", "leave it in place")
            return Scan({}, (), tuple(walk.violations))
        try:
            with contextlib.suppress(_CapReachedError):
                _walk_directory(walk, top, "", 1)
        finally:
            os.close(top)
        removed = tuple(p for p in sorted(inputs) if p not in walk.files and not walk.is_scratch(p))
        return Scan(dict(sorted(walk.written.items())), removed, _in_short(walk.violations))

    @contextlib.contextmanager
    def opened(self, room: Room) -> Iterator[Callable[[str], int]]:
        """Give what opens a file of the room's tree to be read, by its path, through no link.

        Raises:
            OSError: the tree is not there; by what is given: the file is no longer one of its own, or behind a link.

        """
        top = _open_top(room)
        try:
            yield lambda path: _open_file(top, path)
        finally:
            os.close(top)

    def discard(self, room: Room) -> None:
        """Remove a room with all in it, however deep, whatever the modes. What resists is left to `sweep`."""
        self._frames.pop(room.marker, None)
        remove_trees(self.folder, room.root.name, room.own.name, room.log.name)

    def clear(self, room: Room) -> None:
        """Take the files out of a room, and keep its folders for the next one; else discard it.

        Only for a step that was trusted and ran alone: nobody is left who knows these folders.
        """
        frame = self._frames.pop(room.marker, None)
        if frame is None or not emptied(frame):
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
        ended = kinship.end_leftovers(self.folder)
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
    by_path = [matcher(p) for p in patterns if "/" in p.rstrip("/")]

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


def printable(path: str) -> str:
    """Return a path so that it can be shown: control characters and bytes that are no UTF-8 are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in path)


def _open_top(room: Room) -> int:
    """Open the tree that the process worked in; it may have locked it."""
    above = os.open(room.root.parent, _DIRECTORY)
    try:
        for name in (room.root.name, room.work.name):
            unlock(name, above)
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
        unlock(name, folder)
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
    if len(raw) > MAX_NAME_BYTES:
        return f"has over {MAX_NAME_BYTES} bytes"
    if any(ord(c) < ord(" ") or ord("\x7f") <= ord(c) < ord("\xa0") for c in name):
        return "holds a control character"
    return None


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def _differs(folder: int, name: str, status: os.stat_result, entry: FileEntry | None, meter: Meter) -> bool:
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
