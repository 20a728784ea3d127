"""The tree of a sandbox directory: its paths and inputs, the part that a process may write, and what it changed.

The tree may be hostile: a step can leave links, locked folders, special files, and names that no project can hold.
Every file is opened folder by folder through descriptors, without following links.
"""

import contextlib
import errno
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from orch23.model.action import NAMESPACES_TIER, link_text
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.paths import compile_pattern, match, static_prefix
from orch23.model.patterns import lazy_pattern
from orch23.store.file_copy import FileProgress, hash_file
from orch23.store.index import NETWORK_FILE_SYSTEMS, file_system_type
from orch23.store.safe_files import FileStamp, closing, stamp_of, walk_tree
from orch23.store.tree_removal import DIRECTORY_FLAGS, make_accessible, open_below, open_subdirectory

if TYPE_CHECKING:
    from orch23.execute.cache_mount import CacheMount

SANDBOX_EPOCH = 315_619_200
"""The mtime of all files and folders in a tree, and SOURCE_DATE_EPOCH: 1980-01-02 UTC, which zip archives can hold."""

BUBBLEWRAP_TIER: Final = "bubblewrap"
"""The tier of namespaces that bubblewrap creates."""

INSIDE_PATH: Final = "/room"
"""Where a process in namespaces sees its sandbox directory. In what others print it replaces the path."""

LEAST_SHARED_FILES: Final = 500
"""A folder with fewer input files is copied for each step, not shared."""

_MAX_NAME_BYTES = 200
_LINK = ("E610", "is a symbolic link", "copy the file instead of linking it")
_MAX_REPORTED = 10
_PYTEST_CACHE = ".pytest_cache"
_WORK = "work"
_SPECIAL_FILES = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
_CONTROL_CHARACTER = lazy_pattern(r"[\x00-\x1f\x7f-\x9f]")


MountKind: TypeAlias = Literal["layer", "read-only", "moved"]
"""How a step sees a folder: it writes to a layer above the files, or nothing, or to the files, which it has alone."""

MOUNT_KINDS: Final[Mapping[str, tuple[MountKind, ...]]] = {
    NAMESPACES_TIER: ("layer", "read-only"),
    BUBBLEWRAP_TIER: ("read-only",),
}
"""What each tier can mount. All can move."""

# The marks of overlayfs: a file or folder was removed, and a folder was removed before it was made again.
_REMOVED_DEVICE = 0
_REPLACED_FOLDER = "user.overlay.opaque"


class FolderMount(Struct, frozen=True):
    """A folder at `path` of a tree that has the files of another folder.

    It is read-only, or `lower`, an empty folder, takes part in the layers of the tree: what the step changes in the
    tree is in `work`, above these files. Or it was moved into the tree, at `moved_ns`.
    """

    path: str
    files: Path
    lower: Path | None = None
    moved_ns: int = 0


class SandboxDir(Struct, frozen=True, dict=True):
    """The directory in which one process runs. `marker` is random and identifies the processes of the step.

    The files of `moved` are in the tree itself. `caches` are those of tools, `variables` lead the tools there.
    """

    root: Path
    marker: str
    mounts: tuple[FolderMount, ...] = ()
    moved: tuple[FolderMount, ...] = ()
    caches: "tuple[CacheMount, ...]" = ()
    variables: Mapping[str, str] = {}

    def seen_from_inside(self, tier: str) -> "SandboxDir":
        """Return it with the paths that its processes have to use in this tier: others only with namespaces."""
        inside = SandboxDir(Path(INSIDE_PATH), self.marker, variables=self.variables)
        return inside if tier in (NAMESPACES_TIER, BUBBLEWRAP_TIER) else self

    @cached_property
    def work(self) -> Path:
        """The copy of the project that the process works in."""
        return self.root / _WORK

    @cached_property
    def seen(self) -> "TreeEntries":
        """What a scan of the tree found: the status by path, None for scratch and what cannot be in a result."""
        return {}

    @cached_property
    def is_layered(self) -> bool:
        """Whether `work` is above other files: then it has only what the step changes in them."""
        return any(one.lower is not None for one in self.mounts)

    @cached_property
    def layers(self) -> Path:
        """The folder of the layers, and of what overlayfs needs."""
        return self.orch23_folder / "layers"

    @cached_property
    def home(self) -> Path:
        """The HOME of the process."""
        return self.root / "home"

    @cached_property
    def tmp(self) -> Path:
        """The TMPDIR of the process."""
        return self.root / "tmp"

    @cached_property
    def orch23_folder(self) -> Path:
        """The folder beside the sandbox directory for files of orch23. No process of the step may write there."""
        return self.root.with_name(f"{self.root.name}.own")

    @cached_property
    def tools(self) -> Path:
        """The directory of the action's tools and of other files for the process. It cannot write there."""
        return self.orch23_folder / "tools"

    @cached_property
    def log(self) -> Path:
        """The file beside the sandbox directory for output that is too long for memory."""
        return self.root.with_name(f"{self.root.name}.log")


TreeEntries: TypeAlias = dict[str, os.stat_result | None]


class TreeChanges(Struct, frozen=True):
    """How a tree differs from the staged inputs, and what in it cannot be part of a result.

    `written` are the new or changed regular files, each with its executable bit. `is_older`: some of it was so in a
    folder before this was moved into the tree.
    """

    written: Mapping[str, bool]
    removed: tuple[str, ...]
    violations: tuple[Diagnostic, ...]
    is_older: bool = False


class TreeLimits(Struct, frozen=True):
    """How much a tree may hold at the end: files and directories, levels, bytes (by file size)."""

    entries: int = 100_000
    depth: int = 64
    size_bytes: int = 4 << 30


DEFAULT_TREE_LIMITS: Final = TreeLimits()


class _LimitReachedError(Exception):
    """The scan stops: a limit is exceeded, so the result is refused whatever else the tree holds."""


class _Scan(Struct):
    limits: TreeLimits
    is_scratch: Callable[[str], bool]
    inputs: Mapping[str, FileEntry]
    meter: FileProgress
    mounted: Sequence[str]  # the inputs below mounts
    is_layered: bool
    seen: TreeEntries
    files: set[str] = field(default_factory=set)
    written: dict[str, bool] = field(default_factory=dict)
    violations: list[Diagnostic] = field(default_factory=list)
    entries: int = 0
    size_bytes: int = 0

    def report(self, path: str, code: str, message: str, hint: str) -> None:
        self.seen[path] = None
        self.violations.append(Diagnostic(code, message, hint=hint, subject=printable_path(path)))


class OpenTree(Struct, frozen=True):
    """The tree of a sandbox directory, by its descriptor. All processes of the step must have ended."""

    top: int
    sandbox_dir: SandboxDir

    def scan(
        self, inputs: Mapping[str, FileEntry], scratch: tuple[str, ...], limits: TreeLimits, meter: FileProgress
    ) -> TreeChanges:
        """Compare the tree with the inputs that were staged.

        Bytes are compared, never times: a process can set times, and a write through a shared mapping on tmpfs does
        not change them.
        """
        # All of them are there, but for those that the step has marked as removed.
        within = tuple(f"{one.path}/" for one in self.sandbox_dir.mounts)
        mounted = sorted([path for path in inputs if path.startswith(within)]) if within else ()
        is_layered, seen = self.sandbox_dir.is_layered, self.sandbox_dir.seen
        seen["."] = os.fstat(self.top)
        scan = _Scan(limits, scratch_matcher(scratch), inputs, meter, mounted, is_layered, seen, set(mounted))
        with contextlib.suppress(_LimitReachedError):
            _scan_directory(scan, self.top, "", 1)
        removed = tuple(p for p in sorted(inputs) if p not in scan.files and not scan.is_scratch(p))
        is_older = any(_is_older(scan, removed, one) for one in self.sandbox_dir.moved)
        return TreeChanges(dict(sorted(scan.written.items())), removed, _shortened(scan.violations), is_older)

    def matching(self, pattern: str) -> Iterator[str]:
        """Yield the paths of files that match a pattern, sorted by folder; no link is followed."""
        start = static_prefix(pattern)
        for folder, names, files, _ in os.fwalk(".", dir_fd=self.top):
            above = folder[2:] and f"{folder[2:]}/"
            names[:] = [one for one in sorted(names) if start.startswith(f"{above}{one}/") or above.startswith(start)]
            yield from (path for name in sorted(files) if match(pattern, path := f"{above}{name}"))

    def open_file(self, path: str) -> int:
        """Open a file for reading, by its path, without following links.

        Raises:
            OSError: the file is not regular, has several names, or is behind a link.
        """
        *above, name = path.split("/")
        with open_below(self.top, above) as folder:
            return _open_regular(folder, name)


@contextlib.contextmanager
def open_tree(sandbox_dir: SandboxDir) -> Iterator[OpenTree]:
    """Open the tree, without following links, and close it at the end of the block.

    Raises:
        OSError: the tree was replaced or removed.
    """
    with closing(_open_top(sandbox_dir)) as top:
        yield OpenTree(top, sandbox_dir)


_REPLACED = "the working directory of the sandbox was replaced or removed"
REPLACED_TREE = TreeChanges({}, (), (Diagnostic("E618", _REPLACED, hint="leave it in place", subject="."),))
"""The changes of a tree that cannot be opened."""


def printable_path(path: str) -> str:
    """Return a path for display: control characters and bytes that are not UTF-8 are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in path)


@lru_cache(maxsize=64)
def scratch_matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that returns whether a path is discarded.

    A pattern with a `/` matches whole paths, others match any name in them.
    """
    names = [translate(p.rstrip("/")) for p in patterns if "/" not in p.rstrip("/")]
    by_name = re.compile("|".join(names) or "(?!)").match
    by_path = [compile_pattern(p) for p in patterns if "/" in p.rstrip("/")]

    def is_discarded(path: str) -> bool:
        return any(map(by_name, path.split("/"))) or (bool(by_path) and any(matches(path) for matches in by_path))

    return is_discarded


def _shortened(violations: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return at most ten errors of each code and a count of the others: a hostile tree can have 100,000."""
    found: list[Diagnostic] = []
    for code in dict.fromkeys(one.code for one in violations):
        same_code = [one for one in violations if one.code == code]
        found += same_code[:_MAX_REPORTED]
        if (more := len(same_code) - _MAX_REPORTED) > 0:
            message = f"the same holds for {more} more files and directories of the result"
            found.append(Diagnostic(code, message, hint=same_code[0].hint))
    return tuple(found)


def _open_top(sandbox_dir: SandboxDir) -> int:
    """Open the tree. The process may have removed its own access to the folders, so that is restored first."""
    with open_subdirectory(sandbox_dir.root.parent) as parent:
        with contextlib.suppress(PermissionError), open_subdirectory(sandbox_dir.root.name, parent) as root:
            top = os.open(_WORK, DIRECTORY_FLAGS, dir_fd=root)
            if os.fstat(top).st_mode & stat.S_IRWXU == stat.S_IRWXU:
                return top
            os.close(top)
        make_accessible(sandbox_dir.root.name, parent)
        with open_subdirectory(sandbox_dir.root.name, parent) as root:
            make_accessible(_WORK, root)
            return os.open(_WORK, DIRECTORY_FLAGS, dir_fd=root)


def _scan_directory(scan: _Scan, folder: int, prefix: str, depth: int) -> None:
    """Scan an open directory and everything below it. The processes have ended, so what lstat returns stays true."""
    left = scan.limits.entries - scan.entries
    with os.scandir(folder) as entries:
        paths = ((entry.name, f"{prefix}{entry.name}") for entry in entries)
        wanted = (name for name, path in paths if not (scan.is_scratch(path) and scan.seen.setdefault(path) is None))
        # One more than allowed is enough to refuse the tree, and a hostile one may have millions.
        names = sorted(islice(wanted, left + 1))
    scan.entries += len(names)
    if len(names) > left:
        message = f"more than {scan.limits.entries} files and directories"
        scan.report(prefix.rstrip("/") or ".", "E615", message, "write fewer files")
        raise _LimitReachedError
    for name in names:
        path = f"{prefix}{name}"
        if (problem := file_name_problem(name)) is not None:
            scan.report(path, "E614", f"the name {problem}", "choose another name")
            continue
        status = scan.seen[path] = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if scan.is_layered and stat.S_ISCHR(status.st_mode) and status.st_rdev == _REMOVED_DEVICE:
            _forget_mounted(scan, path)
        elif not stat.S_ISDIR(status.st_mode):
            # It may be in the place of a folder with inputs.
            if scan.mounted:
                _forget_mounted(scan, path)
            _scan_file(scan, folder, name, path, status)
        elif depth >= scan.limits.depth:
            scan.report(path, "E616", f"nested deeper than {scan.limits.depth} levels", "write flatter directories")
        else:
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                make_accessible(name, folder)
            with open_subdirectory(name, folder) as inner:
                if scan.is_layered and _is_replaced(inner):
                    _forget_mounted(scan, path)
                _scan_directory(scan, inner, f"{path}/", depth + 1)


def _is_older(scan: _Scan, removed: Iterable[str], moved: FolderMount) -> bool:
    """Return whether something differs in a folder since before it was moved into the tree."""
    folders = (path.rpartition("/")[0] for path in removed if path not in scan.seen)
    places = (path for path in (*scan.written, *folders) if f"{path}/".startswith(f"{moved.path}/"))
    return any((status := scan.seen.get(path)) and status.st_ctime_ns < moved.moved_ns for path in places)


def _forget_mounted(scan: _Scan, path: str) -> None:
    scan.files.discard(path)
    # `0` is the character after `/`.
    first, end = (bisect_left(scan.mounted, f"{path}{character}") for character in "/0")
    scan.files.difference_update(scan.mounted[first:end])


def _is_replaced(folder: int) -> bool:
    """Return whether a folder of a layer hides the mounted folder of the same path."""
    try:
        return os.getxattr(folder, _REPLACED_FOLDER) == b"y"
    except OSError:
        return False


def _scan_file(scan: _Scan, folder: int, name: str, path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode) and link_text(path, scan.inputs) == os.readlink(name, dir_fd=folder):
        scan.files.add(path)
        return
    scan.files.discard(path)
    if (violation := _file_violation(status)) is not None:
        scan.report(path, *violation)
        return
    scan.size_bytes += status.st_size
    if scan.size_bytes > scan.limits.size_bytes:
        message = f"the files of the result have more than {scan.limits.size_bytes} bytes in total"
        scan.report(path, "E617", message, "write less")
        raise _LimitReachedError
    if not status.st_mode & stat.S_IRUSR:
        _make_readable(folder, name)
    scan.files.add(path)
    if _differs(folder, name, status, scan.inputs.get(path), scan.meter):
        scan.written[path] = bool(status.st_mode & stat.S_IXUSR)


def _file_violation(status: os.stat_result) -> tuple[str, str, str] | None:
    """Return code, message and hint of why a file cannot be part of a result, or None."""
    if stat.S_ISLNK(status.st_mode):
        return _LINK
    if not stat.S_ISREG(status.st_mode):
        kind = _SPECIAL_FILES.get(stat.S_IFMT(status.st_mode), "a device")
        return "E611", f"is {kind}", "create it below TMPDIR, or name it in `scratch`"
    if status.st_nlink != 1:
        return "E612", f"has {status.st_nlink} hard links", "copy the file instead of linking it"
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "E613", "has a setuid or setgid bit", "chmod u-s,g-s it"
    return None


def read_inputs(sandbox_dir: SandboxDir, inputs: Iterable[str]) -> tuple[str, ...] | None:
    """Return the inputs that a process may have read, by the access times that a scan of its tree has seen.

    None if the file system does not note them: then not even one input shows that it was read. Or it is one of a
    network, where reads from the memory of this machine may not reach the server, which notes the times.
    """
    if file_system_type(sandbox_dir.root) in NETWORK_FILE_SYSTEMS:
        return None
    found = {path: sandbox_dir.seen.get(path) for path in inputs}
    was_read = [s for s in found.values() if s and s.st_mtime == SANDBOX_EPOCH and s.st_atime != SANDBOX_EPOCH]
    # A file that was removed, or is not scanned, may have been read.
    return tuple(p for p, s in found.items() if s is None or s.st_atime != SANDBOX_EPOCH) if was_read else None


def link_violation(path: str) -> Diagnostic:
    """Return the error that a symbolic link cannot be part of a result."""
    code, message, hint = _LINK
    return Diagnostic(code, message, hint=hint, subject=printable_path(path))


def file_name_problem(name: str) -> str | None:
    """Return why a file with this name cannot be part of a result, or None."""
    try:
        raw = name.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if len(raw) > _MAX_NAME_BYTES:
        return f"has more than {_MAX_NAME_BYTES} bytes"
    return "holds a control character" if _CONTROL_CHARACTER.search(name) else None


def _make_readable(folder: int, name: str) -> None:
    """Let the owner read a file. The name may be another file by now: links and files with other names are skipped."""
    with closing(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as descriptor:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(status.st_mode) | stat.S_IRUSR)


def _open_regular(folder: int, name: str) -> int:
    """Open a file for reading. A second hard link is refused: it may be a file of someone else."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)


def _differs(folder: int, name: str, status: os.stat_result, entry: FileEntry | None, meter: FileProgress) -> bool:
    """Return whether a file differs from the staged one. Files of equal size are compared by their hash."""
    executable = bool(status.st_mode & stat.S_IXUSR)
    if entry is None or (status.st_size, executable) != (entry.digest.size_bytes, entry.executable):
        return True
    with closing(_open_regular(folder, name)) as descriptor:
        return hash_file(descriptor, meter("hashing", name, status.st_size))[0] != entry.digest.sha256


# With the change time of the inode: a process can restore the bytes and the times of a file, but not this (ADR 24).
TreeStamps: TypeAlias = Mapping[str, FileStamp]


def writable_parts(sandbox_dir: SandboxDir, writable: Iterable[str]) -> Iterator[Path]:
    """Yield the paths of a sandbox directory that its process may write."""
    yield from (sandbox_dir.home, sandbox_dir.tmp)
    if (cache := sandbox_dir.root / _PYTEST_CACHE).is_dir():
        yield cache
    yield from (sandbox_dir.work / path for path in writable)


def make_pytest_cache(sandbox_dir: SandboxDir) -> None:
    """Create the folder of pytest's cache: beside `pytest.ini`, which is above the tree."""
    (sandbox_dir.root / _PYTEST_CACHE).mkdir()


def make_writable_files(sandbox_dir: SandboxDir, writable: Iterable[str]) -> tuple[str, ...]:
    """Create the writable files that do not exist, empty, and return their paths.

    A sandbox can make a single file writable only if the file exists.
    """
    created = []
    for path in writable:
        target = sandbox_dir.work / path
        if not path.endswith("/") and not target.exists():
            target.touch(0o644, exist_ok=False)
            os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH))
            created.append(path)
    return tuple(created)


def stamp_tree(sandbox_dir: SandboxDir, writable: Iterable[str]) -> TreeStamps:
    """Return the stamps of everything in a tree that must not be written."""
    left_out = frozenset(path.rstrip("/") for path in writable)
    found = {".": stamp_of(os.stat(sandbox_dir.work, follow_symlinks=False))}
    for path, entry in walk_tree(sandbox_dir.work, is_skipped=left_out.__contains__):
        found[path] = stamp_of(entry.stat(follow_symlinks=False))
    return found


def unused_files(sandbox_dir: SandboxDir, created: Iterable[str]) -> tuple[str, ...]:
    """Return the files that were created for the process, which left them empty."""
    return tuple(path for path in created if _is_unused(sandbox_dir.work / path))


def _is_unused(path: Path) -> bool:
    with contextlib.suppress(OSError):
        status = os.stat(path, follow_symlinks=False)
        return status.st_size == 0 and int(status.st_mtime) == SANDBOX_EPOCH
    return False


def touched_paths(sandbox_dir: SandboxDir, before: TreeStamps, writable: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that were changed, added or removed since `before`, without the folders above them."""
    try:
        after = stamp_tree(sandbox_dir, writable)
    except OSError:  # a tree that cannot be read any more counts as changed as a whole
        return (".",)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return tuple(
        p for p in changed if not any(p == "." or other.startswith(f"{p}/") for other in changed if other != p)
    )


class InputSource(Protocol):
    """Where the bytes of inputs come from: the workspace or the store."""

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        """Copy the bytes of an entry to `target`; return False if they are gone or changed."""


def copy_inputs(sources: InputSource, targets: Mapping[str, str], inputs: Mapping[str, FileEntry]) -> tuple[str, ...]:
    """Copy inputs to their targets, whose folders exist, and return those whose bytes are gone or changed."""
    lost = []
    for path, target in targets.items():
        if (text := link_text(path, inputs)) is not None:
            os.symlink(text, target)
            os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH), follow_symlinks=False)
        elif sources.copy_into(path, inputs[path], target):
            os.chmod(target, 0o755 if inputs[path].executable else 0o644)
            os.utime(target, (SANDBOX_EPOCH, SANDBOX_EPOCH))
        else:
            lost.append(path)
    return tuple(lost)


def make_subfolders(root: Path | str, folders: Iterable[str]) -> None:
    """Create folders, parents first, with the same mode whatever the umask of the user is."""
    for folder in folders:
        os.mkdir(path := f"{root}/{folder}")
        os.chmod(path, 0o755)  # noqa: S103 - as above


def set_times(root: Path | str, folders: Iterable[str]) -> None:
    """Set the times of a folder and of these folders in it: last, since each new entry changes them."""
    for folder in (*sorted(folders, reverse=True), "."):
        os.utime(f"{root}/{folder}", (SANDBOX_EPOCH, SANDBOX_EPOCH))


def parent_folders(inputs: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Return the parents of the inputs, `more`, and all folders above, parents first."""
    found: set[str] = set()
    for folder in (*{path.rpartition("/")[0] for path in inputs}, *more):
        above = "/".join(name for name in folder.split("/") if name not in ("", "."))
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return sorted(found)
