"""Say whose a store is, register it, and set one aside that is not the user's (ADR 21)."""

import errno
import os
from enum import Enum
from itertools import count
from pathlib import Path

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ConfigurationError, Orch23Error, UsageError
from orch23.snapshot.registry import ID, TRUST, id_of, is_believed, is_registered, stores
from orch23.store.codes import E_STATE, E_STRANGE_STORE, W_STRANGE_STORE
from orch23.store.durable import PRIVATE_FILE, PRIVATE_FOLDER, is_temp, make_folder, write_atomic

ASIDE = ".orch23-aside"
"""The folder beside a store with those that were set aside."""
_ID_BYTES = 16
_LOCK = "lock"
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.ELOOP})


class Standing(Enum):
    """Whose the folder of a store is."""

    NEW = "there is none, or nothing but its lock"
    OWN = "this user's"
    STRANGE = "somebody else's: it came with a clone, is another user's, or was made before stores were registered"


class StrangeStoreError(Orch23Error):
    """A command wants to write to a store that is not the user's; whoever runs the command sets it aside first."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder."""
        super().__init__(_strange(folder, Severity.ERROR, E_STRANGE_STORE))
        self.folder = folder


def standing(folder: Path) -> Standing:
    """Return whose the folder of a store is. Reads nothing of it but its id."""
    if is_registered(str(folder)):
        return Standing.OWN
    try:
        names = os.listdir(folder)
    except OSError:  # there is none, or what lies there is no folder, which `check_folder` tells
        return Standing.NEW
    mine = os.stat(folder).st_uid == os.geteuid()
    if mine and all(name == _LOCK or is_temp(name) for name in names):
        return Standing.NEW
    return Standing.OWN if is_believed(str(folder)) else Standing.STRANGE


def register(folder: Path) -> None:
    """Give a store an id, and register it as this user's. Only for the holder of its lock.

    Raises:
        ConfigurationError: the user's state directory cannot be written.

    """
    found = id_of(str(folder)) or os.urandom(_ID_BYTES).hex()
    place = Path(stores()) / found
    try:
        write_atomic(place, f"{folder}\n".encode("utf-8", "surrogateescape"), mode=PRIVATE_FILE)
    except OSError as refused:
        if refused.errno not in _NOT_WRITABLE:
            raise
        if is_believed(str(folder)):
            return
        hint = f"set XDG_STATE_HOME to a folder that can be written, or {TRUST}=1 where everything here is trusted"
        message = f"{place.parent} cannot be written ({refused.strerror}), so {folder.name} cannot be registered"
        raise ConfigurationError(Diagnostic(E_STATE, message, hint=hint)) from None
    if id_of(str(folder)) is None:
        write_atomic(folder / ID, f"{found}\n".encode(), mode=PRIVATE_FILE)


def adopt(folder: Path) -> None:
    """Register a store that somebody made, as its user says that it may be believed.

    Raises:
        UsageError: it is another user's.
        ConfigurationError: the user's state directory cannot be written.

    """
    if os.stat(folder).st_uid != os.geteuid():
        message = f"{folder} belongs to another user"
        raise UsageError(Diagnostic(E_STRANGE_STORE, message, hint=f"`chown` it, or remove it: {folder}"))
    register(folder)


def set_aside(folder: Path) -> Diagnostic:
    """Move a strange store out of the way, and return a warning that says where it is."""
    aside = folder.with_name(ASIDE)
    make_folder(aside, PRIVATE_FOLDER)
    write_atomic(aside / ".gitignore", b"*\n", mode=PRIVATE_FILE)
    number = next(number for number in count(1) if not os.path.lexists(aside / str(number)))
    os.rename(folder, aside / str(number))
    place = f"{ASIDE}/{number}"
    text = f"{folder.name} was not made by you on this machine: it was moved to {place}, and nothing of it is used"
    hint = f"to use it: `rm -r {folder.name} && mv {place} {folder.name} && orch23 trust`; if not, remove it"
    return Diagnostic(W_STRANGE_STORE, text, hint=hint, severity=Severity.WARNING)


def strange_store(folder: Path) -> Diagnostic:
    """Return the warning of a command that only looks, where the store is strange."""
    return _strange(folder, Severity.WARNING, W_STRANGE_STORE)


def _strange(folder: Path, severity: Severity, code: str) -> Diagnostic:
    text = f"{folder.name} was not made by you on this machine: nothing of it is used, and the next build sets it aside"
    return Diagnostic(code, text, hint="`orch23 trust` takes it for yours", severity=severity)
