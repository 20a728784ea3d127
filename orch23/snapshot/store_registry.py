"""Check whether this user made a store: its id is registered in the user's state directory, with a key.

A store has a random id, and the user's state directory has a file of that name. A store that came with a clone,
or from another user, has no registered id and is not used. The file has a key, which authenticates what builds of this
user have written to the store (ADR 60), and the path of the store.
"""

import os
import stat

STORE_FOLDER = ".orch23"
ID_FILE = "id"
# If this variable is 1, every store counts as the user's own.
TRUST_VARIABLE = "ORCH23_TRUST"
_ID_BYTES = 32
_KEY_DIGITS = 64
_MAX_BYTES = 1 << 14
_DIGITS = frozenset(b"0123456789abcdef")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_trusted(store: str) -> bool:
    """Return whether a store is this user's, or the environment says to trust every store."""
    return os.environ.get(TRUST_VARIABLE) == "1" or is_registered(store)


def is_registered(store: str) -> bool:
    """Return whether a folder is a store of this user: the user owns it, and its id is registered."""
    return registration(store) is not None


def registration(store: str) -> tuple[bytes, str] | None:
    """Return the key and the path that are registered for the id of a store of this user, or None.

    The key is empty if an earlier version registered the store: it has not been authenticated yet.
    """
    try:
        status = os.lstat(store)
        found = store_id(store)
        if found is None or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return None
        data = _read(f"{registered_stores()}/{found}")
    except OSError:
        return None
    head, _, path = data.partition(b"\n")
    if len(head) == _KEY_DIGITS and _DIGITS.issuperset(head):
        return bytes.fromhex(head.decode()), os.fsdecode(path[:-1])
    return b"", os.fsdecode(data[:-1])


def is_unproven(store: str) -> bool:
    """Return whether what a store has makes claims only: it is registered without a key, for another path (ADR 60)."""
    key, path = registration(store) or (b"-", "")
    return not key and os.path.realpath(path) != os.path.realpath(store)


def sealing_key(store: str) -> bytes | None:
    """Return the key of the index and the snapshots of a store; None if they must not be used.

    It is empty if the environment says to trust every store, also one that was made with another key.
    """
    if os.environ.get(TRUST_VARIABLE) == "1":
        return b""
    return (registration(store) or (b"",))[0] or None


def store_id(store: str) -> str | None:
    """Return the id of a store; None if it has no id, or one that this program would not write."""
    try:
        data = _read(f"{store}/{ID_FILE}")
    except OSError:
        return None
    digits, end = data[:_ID_BYTES], data[_ID_BYTES:]
    return digits.decode() if end == b"\n" and len(digits) == _ID_BYTES and _DIGITS.issuperset(digits) else None


def _read(path: str) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def registered_stores() -> str:
    """Return the folder with a file for each store of this user on this machine, named by its id."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return f"{home if home.startswith('/') else os.path.expanduser('~/.local/state')}/orch23/stores"
