"""Check whether this user made a store: its id is registered in the user's state directory.

A store has a random id, and the user's state directory has a file of that name. A store that came with a clone,
or from another user, has no registered id: its records and snapshots are not used (ADR 21).
"""

import os
import stat

STORE_FOLDER = ".orch23"
ID_FILE = "id"
# If this variable is 1, every store counts as the user's own.
TRUST_VARIABLE = "ORCH23_TRUST"
_ID_BYTES = 32
_DIGITS = frozenset(b"0123456789abcdef")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_trusted(store: str) -> bool:
    """Return whether a store is this user's, or the environment says to trust every store."""
    return os.environ.get(TRUST_VARIABLE) == "1" or is_registered(store)


def is_registered(store: str) -> bool:
    """Return whether a folder is a store of this user: the user owns it, and its id is registered."""
    try:
        status = os.lstat(store)
        found = store_id(store)
        if found is None or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        os.stat(f"{registered_stores()}/{found}")
    except OSError:
        return False
    return True


def store_id(store: str) -> str | None:
    """Return the id of a store; None if it has no id, or one that this program would not write."""
    try:
        descriptor = os.open(f"{store}/{ID_FILE}", _READ)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _ID_BYTES + 2)  # more than an id and its newline: a longer file is invalid
    except OSError:
        return None
    finally:
        os.close(descriptor)
    digits, end = data[:_ID_BYTES], data[_ID_BYTES:]
    return digits.decode() if end == b"\n" and len(digits) == _ID_BYTES and _DIGITS.issuperset(digits) else None


def registered_stores() -> str:
    """Return the folder with a file for each store of this user on this machine, named by its id."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return f"{home if home.startswith('/') else os.path.expanduser('~/.local/state')}/orch23/stores"
