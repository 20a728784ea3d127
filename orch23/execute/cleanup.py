"""Clean up in the background, remove temporary folders, and kill the processes of killed builds."""

import contextlib
import fcntl
import os
import threading
import time
from _queue import SimpleQueue
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

from orch23.execute import process_tree
from orch23.execute.process_tree import ProcessInfo
from orch23.model.patterns import lazy_pattern
from orch23.store.safe_files import closing
from orch23.store.tree_removal import DIRECTORY_FLAGS, remove_tree

_MAX_QUEUED = 2


class BackgroundCleaner:
    """Run cleanup work in a thread, in order.

    When two pieces of work are waiting, the caller of `submit` runs its own: sandbox directories do not pile up.
    """

    def __init__(self) -> None:
        """Start no thread yet: the first piece of work does."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
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
            if self._thread is not None:
                self._work.put(None)
                self._thread.join()
            self._thread = None
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as problem:  # noqa: BLE001 - `close` raises it
                self._problem = self._problem or problem


_TEMPORARY_NAME = lazy_pattern(r"orch23-(?:sandbox|template|worker)-[0-9a-f]{16}")


@contextlib.contextmanager
def temporary_folder(purpose: Literal["sandbox", "template", "worker"], top: Path | None = None) -> Iterator[Path]:
    """Create a private temporary folder in `top`, or in the folder of TMPDIR, and remove it at the end.

    This process holds a lock on it. A folder without a lock was left by a killed process, and the next call removes it.

    Raises:
        OSError: no folder can be created.
    """
    if top is None:
        import tempfile  # noqa: PLC0415 - loads `random` and `shutil`; an ordinary build does not need it

        top = Path(tempfile.gettempdir())
    top = top.resolve()
    _remove_abandoned(top)
    path, lock = _create_locked(top, purpose)
    try:
        yield path
    finally:
        remove_tree(path)
        os.close(lock)


def _create_locked(top: Path, purpose: str) -> tuple[Path, int]:
    while True:
        path = top / f"orch23-{purpose}-{os.urandom(8).hex()}"
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
            with contextlib.suppress(OSError), closing(_lock_folder(top / name)) as lock:
                if os.fstat(lock).st_uid == os.geteuid():
                    kill_leftovers(top / name)
                    remove_tree(top / name)


def _lock_folder(path: Path) -> int:
    """Open a folder and lock it. It raises BlockingIOError if a living process has locked it."""
    lock = os.open(path, DIRECTORY_FLAGS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock


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
        others = (pid for pid in process_tree.process_ids() if pid != os.getpid())
        # A build that is killed before the exec of a step leaves a process without a marker, but with a blocked signal.
        starting = time.monotonic() < start + _EXEC_WITHIN_S and any(map(process_tree.is_leader_before_exec, others))
        left = _leftovers(sandbox_dirs, markers, found)
        found.update((process.pid, process.started) for process in left)
        for process in left:
            process_tree.kill_process(process)
        if not (left or starting) or time.monotonic() > start + _KILL_WITHIN_S:
            break
        time.sleep(_PAUSE_S)
    return tuple(sorted(found))


def _leftovers(sandbox_dirs: Path, markers: Collection[str], found: Mapping[int, int]) -> list[ProcessInfo]:
    # `found` (pid -> start time) are those of earlier rounds: one that dies after its parent cannot be recognized any
    # more, but still writes where it was writing.
    living = [one for one in process_tree.living_processes() if one.pid != os.getpid()]
    mine = (one for one in living if found.get(one.pid) == one.started or _belongs_to(one.pid, sandbox_dirs, markers))
    known = {one.pid for one in mine}
    while more := {one.pid for one in living if one.pid not in known and {one.parent, one.session} & known}:
        known |= more
    return [one for one in living if one.pid in known]


def _belongs_to(pid: int, sandbox_dirs: Path, markers: Collection[str]) -> bool:
    """Return whether a process has one of the markers, or is the bwrap that mounts one of the directories."""
    if process_tree.process_environ(pid) & {os.fsencode(f"{process_tree.MARKER_VARIABLE}={one}") for one in markers}:
        return True
    try:
        words = process_tree.read_proc(pid, "cmdline").split(b"\0")
    except OSError:
        return False
    folder = os.fsencode(sandbox_dirs)
    return os.path.basename(words[0]) == b"bwrap" and any(
        option in _MOUNTS and os.path.dirname(source) == folder and os.path.basename(source).decode() in markers
        for option, source in pairwise(words)
    )
