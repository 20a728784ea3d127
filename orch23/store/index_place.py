"""Where the index of a store is: in the store, or in the user's cache directory if the store is on a network.

Without a home directory it stays in the store.
"""

import hashlib
import os
from pathlib import Path

NETWORK = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
    )
)
"""Types of file systems on which locks of other machines may not be seen, or are slow."""
_MOUNTS = "/proc/self/mountinfo"


def index_folder(store: Path) -> Path:
    """Return the folder for the index of a store."""
    if type_of(store) not in NETWORK:
        return store
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.cache")
    if not base.startswith("/"):  # no HOME, and the user is not in the passwd file, as in some containers
        return store
    return Path(base) / "orch23" / "indexes" / hashlib.sha256(os.fsencode(store.resolve())).hexdigest()[:32]


def type_of(path: Path, mounts: str = _MOUNTS) -> str:
    """Return the type of the file system that a path is on, as the kernel names it; empty if that is not known."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        device = os.stat(there).st_dev
        lines = Path(mounts).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        words = line.split(" ")
        if len(words) > 2 and words[2] == wanted and "-" in words:  # noqa: PLR2004 - the third is the device
            return words[words.index("-") + 1]
    return ""
