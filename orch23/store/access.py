"""Check who owns a store, lock it for one build, and remove entries of a wrong type."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import BusyError, ConfigurationError, CorruptStateError, Orch23Error, SafetyError, UsageError
from orch23.snapshot.fast_path import pid_line
from orch23.snapshot.store_registry import (
    ID_FILE,
    TRUST_VARIABLE,
    is_registered,
    is_trusted,
    is_unproven,
    registered_stores,
    registration,
    sealing_key,
    store_id,
)
from orch23.store.json_text import TRUSTED, Keys, StoreKey, add_checksum, checked_line, mac_of
from orch23.store.safe_files import (
    NOT_A_FILE,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    StagedFiles,
    check_no_link,
    closing,
    is_temp,
    make_folder,
    open_file,
    open_own,
    read_and_close,
    sync_filesystem,
    unsafe_path_error,
    write_all,
    write_atomic,
)
from orch23.store.tree_removal import remove_path

ASIDE_FOLDER = ".orch23-aside"
"""The folder, beside a store, of stores that were moved aside."""
_ID_BYTES = 16
_KEY_BYTES = 32
LOCK_FILE = "lock"
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.ELOOP})


StoreOrigin: TypeAlias = Literal["new", "own", "foreign"]
"""Who created the folder of a store: no one yet (it may hold its lock), this user on this machine, or someone else.

A folder that came with a clone, or was created before stores were registered, is `foreign`.
"""


class ForeignStoreError(Orch23Error):
    """A command must not write to a store that is not the user's. The caller moves it aside and tries again."""

    def __init__(self, folder: Path) -> None:
        """Build the message about the folder of the store."""
        super().__init__(replace(foreign_store_warning(folder), code="E693", severity=Severity.ERROR))
        self.folder = folder


def store_origin(folder: Path) -> StoreOrigin:
    """Return who created the folder of a store. Only its id is read, since a clone can forge every file (ADR 21)."""
    # The id is not bound to the inode of the folder, which bind mounts and overlays change in each container (ADR 21).
    if is_registered(str(folder)):
        return "own"
    try:
        names = os.listdir(folder)
    except OSError:
        # It does not exist, or is not a folder, which `require_folder` reports.
        return "new"
    mine = os.stat(folder).st_uid == os.geteuid()
    if mine and all(name == LOCK_FILE or is_temp(name) for name in names):
        return "new"
    return "own" if is_trusted(str(folder)) else "foreign"


def register_store(folder: Path, key: bytes, *, renew: bool = False) -> None:
    """Give a store an id, and register it as this user's, with a key. The caller holds its lock.

    With `renew`, the store gets a new id, also if it has one.

    Raises:
        ConfigurationError: the user's state directory cannot be written.
    """
    known = None if renew else store_id(str(folder))
    found = known or os.urandom(_ID_BYTES).hex()
    place = Path(os.path.realpath(registered_stores())) / found
    try:
        head = f"{key.hex()}\n" if key else ""
        write_atomic(place, f"{head}{folder}\n".encode("utf-8", "surrogateescape"), mode=PRIVATE_FILE_MODE)
    except OSError as refused:
        if refused.errno not in _NOT_WRITABLE:
            raise
        if is_trusted(str(folder)):
            return
        hint = f"set XDG_STATE_HOME to a writable folder, or {TRUST_VARIABLE}=1 to trust every store"
        message = f"cannot write to {place.parent} ({refused.strerror}), so {folder.name} cannot be registered"
        raise ConfigurationError(Diagnostic("E695", message, hint=hint)) from None
    # Registered first: the incomplete store of a killed build then counts as new (ADR 21).
    if known is None:
        write_atomic(folder / ID_FILE, f"{found}\n".encode(), mode=PRIVATE_FILE_MODE)


def trust_store(folder: Path) -> None:
    """Register a store that this user did not create, but trusts: the next build authenticates what is in it now.

    Raises:
        UsageError: it belongs to another user.
        ConfigurationError: the user's state directory cannot be written.
    """
    # The lock file is not trusted with it: a later pull can change that (ADR 21).
    if os.stat(folder).st_uid != os.geteuid():
        message = f"{folder} belongs to another user"
        raise UsageError(Diagnostic("E693", message, hint=f"`chown` it, or remove it: {folder}"))
    register_store(folder, b"", renew=is_registered(str(folder)))


def key_of_store(folder: Path) -> StoreKey:
    """Return the key of the store in a folder, which need not exist."""

    def read() -> Keys:
        known, sealing = registration(str(folder)), sealing_key(str(folder))
        key = b"" if known is None else known[0]
        # Registered by an earlier version: what it has is authenticated by the next build.
        is_early = known is not None and not key and not is_unproven(str(folder))
        return Keys(key, sealing, sealing == b"" or is_early)

    return StoreKey(read)


_AUTHENTICATED = ("promote.json", "batches/*.json", "running-actions/*.json", "records/*/*")


def authenticate_store(folder: Path) -> None:
    """Give a key to a store that is registered without one. The caller holds its lock.

    At the path that is registered, all that it has is authenticated. Elsewhere it gets a new id: it makes claims.
    """
    key, is_elsewhere = os.urandom(_KEY_BYTES), is_unproven(str(folder))
    if not os.access(registered_stores(), os.W_OK):  # all of it counts as before, at this path
        return
    with StagedFiles(folder, folder) as staged:
        for path in [] if is_elsewhere else [path for part in _AUTHENTICATED for path in folder.glob(part)]:
            # Below a link: its records make claims. Other types than files are removed later.
            with contextlib.suppress(SafetyError):
                name = path.relative_to(folder).as_posix()
                if (source := open_file(folder, name)) is not None:
                    lines = read_and_close(source).splitlines(keepends=True)
                    staged.add(name, b"".join(_signed(line, key) for line in lines), PRIVATE_FILE_MODE)
        staged.commit()
    sync_filesystem(folder)
    # Last, so that a build that is killed before is repeated.
    register_store(folder, key, renew=is_elsewhere)


def _signed(line: bytes, key: bytes) -> bytes:
    with contextlib.suppress(ValueError):  # damage is reported when the file is read
        inner, _ = checked_line(line)
        return add_checksum(inner, mac_of(inner, key))
    return line


def move_store_aside(folder: Path) -> Diagnostic:
    """Move a foreign store into the folder `ASIDE_FOLDER`, which must not be a link, and return a warning."""
    aside = folder.with_name(ASIDE_FOLDER)
    make_folder(aside, PRIVATE_FOLDER_MODE)
    write_atomic(aside / ".gitignore", b"*\n", mode=PRIVATE_FILE_MODE)
    number = next(number for number in count(1) if not os.path.lexists(aside / str(number)))
    os.rename(folder, aside / str(number))
    place = f"{ASIDE_FOLDER}/{number}"
    text = f"{folder.name} was not created by you on this machine: it was moved to {place} and is not used"
    hint = f"to use it: `rm -r {folder.name} && mv {place} {folder.name} && orch23 trust`; otherwise delete it"
    return Diagnostic("W693", text, hint=hint, severity=Severity.WARNING)


def foreign_store_warning(folder: Path) -> Diagnostic:
    """Return the warning of a command that only reads, about a foreign store."""
    text = f"{folder.name} was not created by you on this machine: it is not used, and the next build moves it aside"
    return Diagnostic("W693", text, hint="`orch23 trust` registers it as yours", severity=Severity.WARNING)


PID_BYTES = 32


@contextlib.contextmanager
def hold_build_lock(path: Path, store_key: StoreKey = TRUSTED) -> Iterator[None]:
    """Hold the build lock of a project until the block or the process ends.

    It is a `flock`, which the kernel releases when a process dies: a lock never has to be removed by hand. The file
    stays: if it were deleted, two builds could lock two files of the same name.

    Raises:
        BusyError: another process (or another block) holds it.
        ConfigurationError: the store is new, and cannot be registered.
        CorruptStateError: there is something at its path that is not a file.
        FileNotFoundError: the block raised an error, and the store was removed, which is its likely cause.
        ForeignStoreError: the store is not this user's.
    """
    store = path.parent
    require_store(store)
    make_folder(store, PRIVATE_FOLDER_MODE)
    with closing(_open_lock(path)) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, PID_BYTES, 0).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            message = f"another build is running in this project: {who} holds the lock"
            hint = "`--wait-lock` waits until it ends; or stop that process; you do not have to delete the lock"
            busy = BusyError(Diagnostic("E708", message, hint=hint))
            busy.lock = str(path)
            raise busy from None
        try:
            _claim(store, descriptor)
            store_key.refresh()
            yield
        except BusyError:
            raise
        except Exception:
            check_kept(store)
            raise
        finally:
            # Closing it would not be enough: a child between fork and exec has the same descriptor, and the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _open_lock(path: Path) -> int:
    try:
        return open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as refused:
        if refused.errno in NOT_A_FILE:
            raise CorruptStateError(_wrong_type(path, "file")) from None
        raise


def _claim(store: Path, descriptor: int) -> None:
    """Register a new store, and refuse a foreign one: only the holder of the lock can tell them apart safely."""
    origin = store_origin(store)
    if origin == "foreign":
        raise ForeignStoreError(store)
    with contextlib.suppress(OSError):
        # Only a message shows the process id: a full disk must not stop a build.
        write_all(descriptor, pid_line(os.getpid()))
    known = registration(str(store))
    if origin == "new":
        register_store(store, os.urandom(_KEY_BYTES))
    elif known is not None and not known[0]:
        authenticate_store(store)


def check_kept(store: Path, *folders: str) -> None:
    """Raise FileNotFoundError if a store that a command used no longer has its lock file, or one of these folders."""
    for name in (LOCK_FILE, *folders):
        if not os.path.lexists(store / name):
            path = str(store if name == LOCK_FILE else store / name)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def require_folder(path: Path) -> None:
    """Check that a path is a folder, or does not exist.

    Raises:
        CorruptStateError: there is something else.
        SafetyError: it is a link: orch23 would write and delete files outside of the project.
    """
    try:
        check_no_link(path)
    except NotADirectoryError:
        raise CorruptStateError(_wrong_type(path, "folder")) from None
    except FileNotFoundError:
        return


def require_store(folder: Path) -> None:
    """Check a store as `require_folder` does, and that no entry of it is a link to a folder."""
    require_folder(folder)
    for entry in _entries(folder):
        # A link to a file is in the place of a file, which replaces it.
        if entry.is_symlink() and entry.is_dir():
            name = f"{folder.name}/{entry.name}"
            raise unsafe_path_error(name)


def _wrong_type(path: Path, what: str) -> Diagnostic:
    name = f"{path.parent.name}/{path.name}" if what == "file" else path.name
    hint = f"delete it, or move it away: {path}; the next build creates it"
    return Diagnostic("E692", f"{name} is not a {what}", hint=hint)


SHOWN_TIER_FILE = "sandbox"
"""The tier of the sandbox that the user was last warned about."""

_FILES = ("VERSION", ".gitignore", "index.sqlite", "generation", "promote.json", "writing.json", SHOWN_TIER_FILE)
_FOLDERS = ("cas", "records", "exchanges", "rooms", "trees", "partial", "tool-caches")
GROUPED = ("cas", "records", "exchanges")
"""The folders that have a folder for the first digits of each name."""


def remove_wrong_types(store: Path, *, whole: bool = True) -> list[str]:
    """Delete the entries of a store that have the wrong type, and return a message for each.

    The caller holds the build lock, which is not touched: with a second lock file two builds could run. Unless `whole`,
    the blobs, records and exchanges are skipped: there can be 100,000 of them.
    """
    messages = []
    for path, what in _wrong_types(store, whole=whole):
        remove_path(path)
        messages.append(f"{path.relative_to(store).as_posix()}: was not a {what}")
    return messages


def _wrong_types(store: Path, *, whole: bool) -> Iterator[tuple[Path, str]]:
    for entry in _entries(store):
        if entry.name in _FILES and not entry.is_file(follow_symlinks=False):
            yield store / entry.name, "file"
        elif entry.name in _FOLDERS and not entry.is_dir():
            yield store / entry.name, "folder"
    for name in GROUPED if whole else ():
        yield from _wrong_types_in_groups(store / name)


def _wrong_types_in_groups(part: Path) -> Iterator[tuple[Path, str]]:
    for group in _entries(part):
        if group.is_dir(follow_symlinks=False):
            with os.scandir(group.path) as entries:
                others = [one.path for one in entries if not one.is_file(follow_symlinks=False)]
            yield from ((Path(path), "file") for path in sorted(others))
        elif not is_temp(group.name):
            # The temporary files of killed processes are deleted by `sweep_temps`.
            yield Path(group.path), "folder"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []
