"""Remove directory trees, also hostile ones, in the background and after killed processes."""

import contextlib
import errno
import fcntl
import os
import queue
import re
import secrets
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, Literal

from orch23.execute import process_tree
from orch23.execute.process_tree import ProcessInfo

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Open a directory, but not through a link, which a step can put in the place of any directory that it writes."""

_ENTRIES_PER_SCAN = 10_000
_MAX_RECURSION = 20
_GET_FLAGS, _SET_FLAGS = 0x8008_6601, 0x4008_6602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_REFUSED = frozenset({errno.EPERM, errno.EACCES})


@contextlib.contextmanager
def closing_fd(descriptor: int) -> Iterator[int]:
    """Yield a descriptor, and close it at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_subdirectory(name: str | Path, parent: int | None = None) -> AbstractContextManager[int]:
    """Open a directory by its parent's descriptor, without following a link, and close it at the end."""
    return closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=parent))


def open_below(directory: int, names: Sequence[str]) -> int:
    """Open a directory below another one, name by name, without following links. The caller closes it."""
    descriptor = os.dup(directory)
    try:
        for name in names:
            below = os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_tree(root: Path) -> None:
    """Remove a tree, or a file of that name. What cannot be removed stays, and is tried again at the next call.

    A directory that is deep or cannot be removed in place is moved beside `root` first, so that neither paths nor
    recursion grow with the depth of the tree.
    """
    remove_trees(root.parent, root.name)


def remove_trees(folder: Path, *names: str) -> None:
    """Remove trees of one folder, as `remove_tree` does."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with contextlib.suppress(OSError), closing_fd(os.open(folder, flags)) as parent:
        for name in names:
            _Removal(parent, name).run()


class _Removal:
    """The removal of one tree from its parent directory."""

    def __init__(self, parent: int, name: str) -> None:
        self._parent = parent
        self._name = name
        self._pending = [name]
        self._moved = 0

    def run(self) -> None:
        while self._pending:
            with contextlib.suppress(OSError):
                self._remove(self._pending.pop())

    def _remove(self, name: str) -> None:
        status = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=self._parent)
            return
        make_accessible(name, self._parent)
        with open_subdirectory(name, self._parent) as folder:
            self._empty(folder, 1)
        os.rmdir(name, dir_fd=self._parent)

    def _empty(self, folder: int, depth: int) -> None:
        while self._empty_in_part(folder, depth):
            pass

    def _empty_in_part(self, folder: int, depth: int) -> bool:
        """Remove up to 10,000 entries, since a directory may hold millions. Return whether another round may help."""
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, _ENTRIES_PER_SCAN)]
        removed = 0
        for name, is_directory in entries:
            with contextlib.suppress(OSError):
                if not is_directory:
                    _forced(partial(os.unlink, name, dir_fd=folder), name, folder)
                elif not self._remove_in_place(name, folder, depth):
                    self._move_up(name, folder)
                removed += 1
        return removed > 0 and len(entries) == _ENTRIES_PER_SCAN

    def _remove_in_place(self, name: str, folder: int, depth: int) -> bool:
        """Remove an inner directory unless it is deep or cannot be removed; return whether it is gone."""
        if depth == _MAX_RECURSION:
            return False
        try:
            with open_subdirectory(name, folder) as inner:
                self._empty(inner, depth + 1)
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
        return True

    def _move_up(self, name: str, folder: int) -> None:
        make_accessible(name, folder)
        self._moved += 1
        aside = f"{self._name}.gone{self._moved}"
        _forced(lambda: os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=self._parent), name, folder)
        self._pending.append(aside)


def make_accessible(name: str, folder: int) -> None:
    """Give the owner all rights to a directory. The name may be a link by now: it is not followed.

    Raises:
        OSError: it is not a directory, or not ours.

    """
    # O_PATH needs no right to read. chmod of /proc/self/fd changes what was opened, whatever has the name by now.
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(os.open(name, flags, dir_fd=folder)) as descriptor:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _forced(lambda: os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU), name, folder)


def _forced(change: Callable[[], None], name: str, folder: int) -> None:
    """Make a change. If it is refused, clear the attributes that root's `chattr +i` or `+a` sets, and try again."""
    try:
        change()
    except OSError as problem:
        if problem.errno not in _REFUSED:
            raise
        _clear_attributes(folder)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        # What cannot be opened has no attributes. An ioctl on a device could do anything.
        with contextlib.suppress(OSError), closing_fd(os.open(name, flags, dir_fd=folder)) as descriptor:
            if stat.S_IFMT(os.fstat(descriptor).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
                _clear_attributes(descriptor)
        change()


def _clear_attributes(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        flags = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))[0]
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags & ~(_IMMUTABLE | _APPEND_ONLY)))


# ---- in the background -------------------------------------------------------------------------------------------

_MAX_QUEUED = 2


class BackgroundCleaner:
    """Run cleanup work in a thread, in order.

    When two pieces of work are waiting, the caller of `submit` runs its own: sandbox directories do not pile up.
    """

    def __init__(self) -> None:
        """Start no thread yet: the first piece of work does."""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Run some work soon, or before this returns if enough is waiting."""
        if self._work.qsize() >= _MAX_QUEUED:
            work()
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="orch23-cleaner", daemon=True)
                self._thread.start()
            self._work.put(work)

    def close(self) -> None:
        """Wait for all work, and raise the first exception of it. The cleaner can be used again."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._work.put(None)
                thread.join()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - `close` raises it
                self._problem = self._problem or problem


# ---- temporary folders -------------------------------------------------------------------------------------------

_TEMPORARY_NAME = re.compile(r"orch23-(?:sandbox|template)-[0-9a-f]{16}")


@contextlib.contextmanager
def temporary_folder(purpose: Literal["sandbox", "template"]) -> Iterator[Path]:
    """Create a private temporary folder, and remove it at the end.

    This process holds a lock on it. A folder without a lock was left by a killed process, and the next call removes it.

    Raises:
        OSError: no folder can be created.

    """
    top = Path(tempfile.gettempdir()).resolve()
    _remove_abandoned(top)
    path, lock = _create_locked(top, purpose)
    try:
        yield path
    finally:
        remove_trees(path.parent, path.name)
        os.close(lock)


def _create_locked(top: Path, purpose: str) -> tuple[Path, int]:
    while True:
        path = top / f"orch23-{purpose}-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        # Before the lock is taken, another process may take the folder for an abandoned one: then try the next name.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = _lock_folder(path)
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_abandoned(top: Path) -> None:
    """Remove the folders of killed processes, and kill what still runs in them."""
    with contextlib.suppress(OSError):
        for name in filter(_TEMPORARY_NAME.fullmatch, os.listdir(top)):
            # Another user's folder of that name is left alone: in /tmp anyone can create one.
            with contextlib.suppress(OSError), closing_fd(_lock_folder(top / name)) as lock:
                if os.fstat(lock).st_uid == os.geteuid():
                    kill_leftovers(top / name)
                    remove_trees(top, name)


def _lock_folder(path: Path) -> int:
    """Open a folder and lock it.

    Raises:
        BlockingIOError: a living process has locked it.
        OSError: it is not a folder, or gone.

    """
    lock = os.open(path, DIRECTORY_FLAGS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock


# ---- processes of killed builds ----------------------------------------------------------------------------------

_KILL_WITHIN_S = 5.0
_EXEC_WITHIN_S = 1.0
_PAUSE_S = 0.002
# The options by which bwrap mounts a sandbox directory: read-only, if the step may write only a part of it.
_MOUNTS = (b"--bind", b"--ro-bind")


def kill_leftovers(sandbox_dirs: Path) -> tuple[int, ...]:
    """Kill the steps of killed builds whose sandbox directories are still in this folder. Return their process ids.

    Only for the holder of the build lock, before the directories are removed. A process of a step has a marker in its
    environment, or is the bwrap that mounts a sandbox directory, or descends from one of these or is in its session.
    Nothing else counts: the working directory of a user's shell may be in a sandbox directory, or its command name one.
    """
    try:
        markers = {name.partition(".")[0] for name in os.listdir(sandbox_dirs)}
    except FileNotFoundError:
        return ()
    found: dict[int, int] = {}
    start = time.monotonic()
    while markers:
        # In this order: a process that calls exec after the first look has its marker in the second.
        starting = time.monotonic() < start + _EXEC_WITHIN_S and _any_leader_before_exec()
        left = _leftovers(sandbox_dirs, markers, found)
        found.update((process.pid, process.started) for process in left)
        for process in left:
            process_tree.kill_process(process)
        if not (left or starting) or time.monotonic() > start + _KILL_WITHIN_S:
            break
        time.sleep(_PAUSE_S)
    return tuple(sorted(found))


def _any_leader_before_exec() -> bool:
    """Return whether a process may become a step but has no marker yet, since it has not finished exec.

    A build that is killed in that moment leaves such a process. `starting_leader` has marked it by a blocked signal.
    """
    return any(pid != os.getpid() and process_tree.is_leader_before_exec(pid) for pid in process_tree.process_ids())


def _leftovers(sandbox_dirs: Path, markers: Collection[str], found: Mapping[int, int]) -> list[ProcessInfo]:
    """Return the living processes of these sandbox directories.

    `found` (pid -> start time) are those of earlier rounds: one that dies after its parent cannot be recognized any
    more, but still writes where it was writing.
    """
    living = [one for one in process_tree.living_processes() if one.pid != os.getpid()]
    known = {
        one.pid for one in living if found.get(one.pid) == one.started or _belongs_to(one.pid, sandbox_dirs, markers)
    }
    while more := {one.pid for one in living if one.pid not in known and {one.parent, one.session} & known}:
        known |= more
    return [one for one in living if one.pid in known]


def _belongs_to(pid: int, sandbox_dirs: Path, markers: Collection[str]) -> bool:
    """Return whether a process has one of the markers, or is the bwrap that mounts one of the directories."""
    prefix = f"{process_tree.MARKER_VARIABLE}=".encode()
    environ = process_tree.process_environ(pid)
    if any(one.removeprefix(prefix).decode("ascii", "replace") in markers for one in environ if one.startswith(prefix)):
        return True
    try:
        words = process_tree.read_proc(pid, "cmdline").split(b"\0")
    except OSError:
        return False
    if os.path.basename(words[0]) != b"bwrap":
        return False
    folder = os.fsencode(sandbox_dirs)
    return any(
        option in _MOUNTS and os.path.dirname(source) == folder and os.path.basename(source).decode() in markers
        for option, source in pairwise(words)
    )
