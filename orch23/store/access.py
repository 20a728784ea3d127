"""Check whose a store is, lock it for one build, and remove entries of a wrong type."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from enum import Enum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import BusyError, ConfigurationError, CorruptStateError, Orch23Error, UsageError
from orch23.snapshot.fast_path import pid_line
from orch23.snapshot.store_registry import (
    ID_FILE,
    TRUST_VARIABLE,
    is_registered,
    is_trusted,
    registered_stores,
    store_id,
)
from orch23.store.codes import E_BUSY, E_FOREIGN_STORE, E_STATE, E_WRONG_TYPE, W_FOREIGN_STORE
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    is_temp,
    make_folder,
    write_all,
    write_atomic,
)

ASIDE_FOLDER = ".orch23-aside"
"""The folder beside a store with those that were set aside."""
_ID_BYTES = 16
_LOCK = "lock"
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.ELOOP})


class StoreOrigin(Enum):
    """Whose the folder of a store is."""

    NEW = "there is none, or nothing but its lock"
    OWN = "this user's"
    FOREIGN = "somebody else's: it came with a clone, is another user's, or was made before stores were registered"


class ForeignStoreError(Orch23Error):
    """A command wants to write to a store that is not the user's; whoever runs the command sets it aside first."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder."""
        super().__init__(_foreign(folder, Severity.ERROR, E_FOREIGN_STORE))
        self.folder = folder


def store_origin(folder: Path) -> StoreOrigin:
    """Return whose the folder of a store is. Reads nothing of it but its id."""
    if is_registered(str(folder)):
        return StoreOrigin.OWN
    try:
        names = os.listdir(folder)
    except OSError:  # there is none, or what lies there is no folder, which `check_folder` tells
        return StoreOrigin.NEW
    mine = os.stat(folder).st_uid == os.geteuid()
    if mine and all(name == _LOCK or is_temp(name) for name in names):
        return StoreOrigin.NEW
    return StoreOrigin.OWN if is_trusted(str(folder)) else StoreOrigin.FOREIGN


def register_store(folder: Path) -> None:
    """Give a store an id, and register it as this user's. Only for the holder of its lock.

    Raises:
        ConfigurationError: the user's state directory cannot be written.

    """
    found = store_id(str(folder)) or os.urandom(_ID_BYTES).hex()
    place = Path(registered_stores()) / found
    try:
        write_atomic(place, f"{folder}\n".encode("utf-8", "surrogateescape"), mode=PRIVATE_FILE_MODE)
    except OSError as refused:
        if refused.errno not in _NOT_WRITABLE:
            raise
        if is_trusted(str(folder)):
            return
        hint = f"set XDG_STATE_HOME to a folder that can be written, or {TRUST_VARIABLE}=1 to trust everything here"
        message = f"{place.parent} cannot be written ({refused.strerror}), so {folder.name} cannot be registered"
        raise ConfigurationError(Diagnostic(E_STATE, message, hint=hint)) from None
    if store_id(str(folder)) is None:
        write_atomic(folder / ID_FILE, f"{found}\n".encode(), mode=PRIVATE_FILE_MODE)


def trust_store(folder: Path) -> None:
    """Register a store that somebody made, as its user says that it may be believed.

    Raises:
        UsageError: it is another user's.
        ConfigurationError: the user's state directory cannot be written.

    """
    if os.stat(folder).st_uid != os.geteuid():
        message = f"{folder} belongs to another user"
        raise UsageError(Diagnostic(E_FOREIGN_STORE, message, hint=f"`chown` it, or remove it: {folder}"))
    register_store(folder)


def move_store_aside(folder: Path) -> Diagnostic:
    """Move a strange store out of the way, and return a warning that says where it is."""
    aside = folder.with_name(ASIDE_FOLDER)
    make_folder(aside, PRIVATE_FOLDER_MODE)
    write_atomic(aside / ".gitignore", b"*\n", mode=PRIVATE_FILE_MODE)
    number = next(number for number in count(1) if not os.path.lexists(aside / str(number)))
    os.rename(folder, aside / str(number))
    place = f"{ASIDE_FOLDER}/{number}"
    text = f"{folder.name} was not made by you on this machine: it was moved to {place}, and nothing of it is used"
    hint = f"to use it: `rm -r {folder.name} && mv {place} {folder.name} && orch23 trust`; if not, remove it"
    return Diagnostic(W_FOREIGN_STORE, text, hint=hint, severity=Severity.WARNING)


def foreign_store_warning(folder: Path) -> Diagnostic:
    """Return the warning of a command that only looks, where the store is strange."""
    return _foreign(folder, Severity.WARNING, W_FOREIGN_STORE)


def _foreign(folder: Path, severity: Severity, code: str) -> Diagnostic:
    text = f"{folder.name} was not made by you on this machine: nothing of it is used, and the next build sets it aside"
    return Diagnostic(code, text, hint="`orch23 trust` takes it for yours", severity=severity)


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
        require_folder(self._path.parent)
        self._path.parent.mkdir(PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
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
        if whose is StoreOrigin.NEW:
            self._register()
        return self

    def _standing(self) -> StoreOrigin:
        """Return whose the store is, which nobody else uses now."""
        found = store_origin(self._path.parent)
        if found is StoreOrigin.FOREIGN:
            self.__exit__(None, None, None)
            raise ForeignStoreError(self._path.parent)
        return found

    def _register(self) -> None:
        try:
            register_store(self._path.parent)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self._path, flags, PRIVATE_FILE_MODE)
        except OSError as refused:
            if refused.errno in _NO_FILE:
                raise CorruptStateError(_wrong_type(self._path, "file")) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CorruptStateError(_wrong_type(self._path, "file"))
        return descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. The file stays: to remove it would let two builds lock two files of one name."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a child between fork and exec still shares the descriptor
            os.close(self._descriptor)
            self._descriptor = None


def require_folder(path: Path) -> None:
    """Complain of what lies where a folder of orch23's belongs, and is none.

    Raises:
        CorruptStateError: there is such a thing.

    """
    if os.path.lexists(path) and not path.is_dir():
        raise CorruptStateError(_wrong_type(path, "folder"))


def _wrong_type(path: Path, what: str) -> Diagnostic:
    name = f"{path.parent.name}/{path.name}" if what == "file" else path.name
    return Diagnostic(
        E_WRONG_TYPE,
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


SHOWN_TIER_FILE = "sandbox"
"""The tier of the sandbox that the user was last warned about."""

_FILES = ("VERSION", ".gitignore", "index.sqlite", "generation", "promote.json", "writing.json", SHOWN_TIER_FILE)
_FOLDERS = ("cas", "records", "exchanges", "rooms", "partial")
_SHELVED = ("cas", "records", "exchanges")


def remove_wrong_types(store: Path, *, whole: bool = True) -> list[str]:
    """Remove all that cannot be what the store keeps in its place, and say what. Only for the holder of the build lock.

    A folder may be a link to one. The lock is not touched: to put another in its place would let two builds run. If not
    `whole`, the files of the store's folders are not looked through, of which there may be a hundred thousand.
    """
    told = []
    for path, what in _wrong_types(store, whole=whole):
        remove_path(path)
        told.append(f"{path.relative_to(store).as_posix()}: was no {what}")
    return told


def remove_path(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a stage made unreadable."""
    with contextlib.suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            _open_up(folder)
            shutil.rmtree(folder)


def _wrong_types(store: Path, *, whole: bool) -> Iterator[tuple[Path, str]]:
    for name in _FILES:
        if _is_other(store / name):
            yield store / name, "file"
    for name in _FOLDERS:
        if os.path.lexists(store / name) and not (store / name).is_dir():
            yield store / name, "folder"
    for name in _SHELVED if whole else ():
        for group in _entries(store / name):
            if group.is_dir():
                yield from ((Path(one.path), "file") for one in _entries(Path(group.path)) if not _is_file(one))
            elif not is_temp(group.name):  # those that killed processes left are swept besides
                yield Path(group.path), "folder"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _is_other(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _open_up(folder: Path) -> None:
    """Give ourselves every right to a tree of directories, following no link."""
    pending = [folder]
    while pending:
        here = pending.pop()
        here.chmod(stat.S_IRWXU)
        pending += [path for path in here.iterdir() if path.is_dir() and not path.is_symlink()]
