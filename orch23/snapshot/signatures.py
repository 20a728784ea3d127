"""Signatures of paths, which show changes without reading files, and how long after a change its time is racy."""

import os

try:  # `hashlib` would load OpenSSL, which takes longer than everything here
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore] # since Python 3.12
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
new_sha256 = sha256

TYPE_CHECKING = False  # `typing` and `collections.abc` take longer to load than 1,000 files to `lstat`
if TYPE_CHECKING:
    from collections.abc import Iterable

# A younger file may change again and keep its times: FAT has steps of two seconds, and a server has another clock.
RACY_NS = 2_000_000_000
# The same for `_FINE_CLOCKS`, whose times move on every 10 ms at most. It is longer than that because a write sets the
# times before it copies the bytes, which takes a while for a large file.
FINE_RACY_NS = 100_000_000
# Local file systems whose times come from the clock of this kernel.
_FINE_CLOCKS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
# With inodes of 128 bytes, ext4 keeps whole seconds. A time with smaller digits than these shows that it does not.
_COARSE_DIGITS_NS = 1_000_000

ABSENT = "-"
EXISTS = "+"
EMPTY_DIRECTORY = "0"
NO_ENTRY = "/"
# Prefix of the signature of a link; its target follows.
LINK_TARGET = ">"
# Prefix of the signature of a path of which only the owner matters; the id of the owner follows.
OWNER = "owner "
# Prefix of the signature of a directory that was too young to trust its times; the digest of its entries follows.
ENTRIES = "entries "
# The signature of a path that changed while it was read: the next comparison finds it changed.
RACY = "?"


def signature(path: str, kind: str = "") -> str:
    """Return the state of a path, without the content of a file. Links are followed.

    Equal signatures mean equal bytes, and for a directory equal names, unless the times are racy. `kind`, which can be
    an earlier signature of the same kind, selects a weaker one: `EXISTS`, whether the path exists; `EMPTY_DIRECTORY`,
    whether it is missing or an empty directory; `NO_ENTRY`, whether nothing is there, not even a link without a
    target; `LINK_TARGET`, the target of a link; `OWNER`, the owner; `ENTRIES`, the names in a directory.
    """
    try:
        return _signature(path, kind)
    except (FileNotFoundError, NotADirectoryError):
        return EMPTY_DIRECTORY if kind == EMPTY_DIRECTORY else ABSENT
    except OSError:
        if kind.startswith(LINK_TARGET):  # no longer a link
            return EXISTS
        raise


def _signature(path: str, kind: str) -> str:
    if kind == EMPTY_DIRECTORY:
        return EXISTS if os.listdir(path) else EMPTY_DIRECTORY
    if kind == NO_ENTRY:
        return EXISTS if os.path.lexists(path) else NO_ENTRY
    if kind.startswith(LINK_TARGET):
        return LINK_TARGET + os.readlink(path)
    if kind.startswith(ENTRIES):
        with os.scandir(path) as entries:
            return entries_signature(entries)
    found = os.stat(path)
    if kind == EXISTS:
        return EXISTS
    if kind.startswith(OWNER):
        return f"{OWNER}{found.st_uid}"
    size, mtime, ctime = found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return f"{found.st_dev}:{found.st_ino}:{found.st_mode}:{size}:{mtime}:{ctime}"


def entries_signature(entries: "Iterable[os.DirEntry[str]]") -> str:
    """Return the signature of a directory with these entries: their names and kinds, whatever its times are."""
    lines = sorted(f"{_kind(entry)}{entry.name}" for entry in entries)
    return ENTRIES + sha256_hex("/".join(lines).encode(errors="surrogateescape"))


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes in hex."""
    return str(sha256(data).hexdigest())


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "l"
    return "d" if entry.is_dir(follow_symlinks=False) else "f" if entry.is_file(follow_symlinks=False) else "o"


def is_racy(device: int, mtime_ns: int, ctime_ns: int, seen_ns: int) -> bool:
    """Return whether a file that changed so shortly before it was seen may have changed again and kept its times.

    `device` identifies its file system, as `st_dev`.
    """
    changed_ns = max(mtime_ns, ctime_ns)
    if changed_ns <= seen_ns - RACY_NS:
        return False
    is_fine = bool(ctime_ns % _COARSE_DIGITS_NS) and device in _fine_devices()
    return not is_fine or changed_ns > seen_ns - FINE_RACY_NS


def is_racy_signature(known: str, seen_ns: int) -> bool:
    """Return whether the path of a signature without a kind was racy when it was seen."""
    if known == ABSENT:
        return False
    device, *_, mtime, ctime = known.split(":")
    return is_racy(int(device), int(mtime), int(ctime), seen_ns)


_devices: set[int] = set()
"""The devices of `_FINE_CLOCKS`, and -1 once they are known: most commands need none of them."""


def _fine_devices() -> set[int]:
    if not _devices:
        _devices.add(-1)
        try:
            with open("/proc/self/mountinfo", "rb") as mounts:
                lines = mounts.read().decode(errors="surrogateescape").splitlines()
        except OSError:  # another system, whose file systems are not known
            return _devices
        for line in lines:
            fields, _, described = line.partition(" - ")
            kind = described.partition(" ")[0]
            if kind not in _FINE_CLOCKS:
                continue
            major, _, minor = fields.split(" ")[2].partition(":")
            _devices.add(os.makedev(int(major), int(minor)))
            # The files of a btrfs subvolume have a device of their own, which no mount names.
            found = lstat_or_none(fields.split(" ")[4]) if kind == "btrfs" else None
            if found is not None:
                _devices.add(found.st_dev)
    return _devices


def lstat_or_none(path: str) -> os.stat_result | None:
    """Return the status of a path without following links, None if nothing is there."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
