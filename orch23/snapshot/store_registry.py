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
    except OSError:
        return None
    if found is None or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return None
    if not (data := bytes_of(f"{registered_stores()}/{found}", _MAX_BYTES)):
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
    data = bytes_of(f"{store}/{ID_FILE}", _MAX_BYTES)
    digits, end = data[:_ID_BYTES], data[_ID_BYTES:]
    return digits.decode() if end == b"\n" and len(digits) == _ID_BYTES and _DIGITS.issuperset(digits) else None


def bytes_of(path: str, max_bytes: int = -1) -> bytes:
    """Return the bytes of a file; none if it cannot be read. A link is not followed, and a pipe is not waited for."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            return file.read(max_bytes) or b""
    except OSError:
        return b""


def registered_stores() -> str:
    """Return the folder with a file for each store of this user on this machine, named by its id."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return f"{home if home.startswith('/') else os.path.expanduser('~/.local/state')}/orch23/stores"
