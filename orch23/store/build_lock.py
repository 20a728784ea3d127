"""Let one build at a time change a project, by a lock that ends with its process."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import BusyError, CorruptStateError
from orch23.snapshot.reply import pid_line
from orch23.store.codes import E_BUSY, E_PLACE
from orch23.store.durable import PRIVATE_FILE, PRIVATE_FOLDER, write_all
from orch23.store.standing import Standing, StrangeStoreError, register, standing

_PID_BYTES = 32
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV})


class BuildLock:
    """A context manager that holds the lock of a project, for as long as the context or the process lives."""

    def __init__(self, path: Path) -> None:
        """Take the file to lock; it is made when the lock is."""
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            BusyError: another process (or another BuildLock) has it.
            ConfigurationError: the store is new, and cannot be registered.
            CorruptStateError: what lies in its place can be no lock.
            StrangeStoreError: the store is not this user's.

        """
        check_folder(self._path.parent)
        self._path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise BusyError(_busy(holder)) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        whose = self._standing()
        with contextlib.suppress(OSError):  # the number only serves the message; a full disk must not stop a build here
            write_all(descriptor, pid_line(os.getpid()))
        if whose is Standing.NEW:
            self._register()
        return self

    def _standing(self) -> Standing:
        """Return whose the store is, which nobody else uses now."""
        found = standing(self._path.parent)
        if found is Standing.STRANGE:
            self.__exit__(None, None, None)
            raise StrangeStoreError(self._path.parent)
        return found

    def _register(self) -> None:
        try:
            register(self._path.parent)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self._path, flags, PRIVATE_FILE)
        except OSError as refused:
            if refused.errno in _NO_FILE:
                raise CorruptStateError(_strange(self._path, "file")) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CorruptStateError(_strange(self._path, "file"))
        return descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. The file stays: to remove it would let two builds lock two files of one name."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a child between fork and exec still shares the descriptor
            os.close(self._descriptor)
            self._descriptor = None


def check_folder(path: Path) -> None:
    """Complain of what lies where a folder of orch23's belongs, and is none.

    Raises:
        CorruptStateError: there is such a thing.

    """
    if os.path.lexists(path) and not path.is_dir():
        raise CorruptStateError(_strange(path, "folder"))


def _strange(path: Path, what: str) -> Diagnostic:
    name = f"{path.parent.name}/{path.name}" if what == "file" else path.name
    return Diagnostic(
        E_PLACE,
        f"what lies at {name} is no {what}",
        hint=f"remove it, or move it away: {path}; the next build makes it",
    )


def _busy(holder: str) -> Diagnostic:
    who = f"process {holder}" if holder.isdigit() else "another process"
    return Diagnostic(
        E_BUSY,
        f"another build is running in this project: {who} holds the lock",
        hint="wait for it to end, or stop that process; there is nothing to remove",
    )
