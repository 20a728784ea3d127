"""File states, environment and facts of a build; compare them with now; read and write them."""

import os
import stat
import sys
import time
import zlib

TYPE_CHECKING = False  # `typing` and `collections.abc` take longer to load than to look at a thousand files
if TYPE_CHECKING:
    from collections.abc import Iterable

SNAPSHOT_FORMAT = b"orch23 snapshot 1\n"
RACY_NS = 2_000_000_000
"""A file system's clock may be this coarse: a file that is younger may change again and keep its times."""

ABSENT = "-"
EXISTS = "+"
EMPTY_DIRECTORY = "0"
NO_ENTRY = "/"
LINK_TARGET = ">"
"""Begins what stands for a link: where it leads to follows."""
OWNER = "owner "
"""Begins what stands for a file or folder of which only the owner matters: the owner's id follows."""
RACY = "?"
"""Stands for what is too young to be believed: the next look finds it changed."""
_GONE = -1  # and not 0, which stands for what is too young
_MOST_CHANGED = 1000
_SHARE = 2000
"""To look at so many files takes longer than to have it done by another process."""
_LENGTH = 8
_BLOCK = 1 << 20
_DIGEST = 32
_DETAIL = _DIGEST + 8 + 1  # sha256, size, executable


class FileState:
    """What a file is: the digest of its bytes, their number, whether it is a program."""

    __slots__ = ("executable", "sha256", "size")

    def __init__(self, sha256: bytes, size: int, *, executable: bool) -> None:
        """Take all three; the digest as its 32 bytes."""
        self.sha256, self.size, self.executable = sha256, size, executable

    def to_bytes(self) -> bytes:
        """Return it in its one length."""
        return self.sha256 + self.size.to_bytes(8, "big") + bytes([self.executable])


def parse_file_state(data: bytes | bytearray) -> FileState:
    """Return what `to_bytes` gave."""
    return FileState(
        bytes(data[:_DIGEST]), int.from_bytes(data[_DIGEST : _DIGEST + 8], "big"), executable=bool(data[-1])
    )


class SnapshotDifference:
    """What is not as it was: the paths that changed, and by their numbers the change times of files that did not."""

    __slots__ = ("changed", "touched")

    def __init__(self, touched: dict[int, int], changed: list[str]) -> None:
        """Take both."""
        self.touched, self.changed = touched, changed


class StatSnapshot:
    """Everything that a decision rests on. Paths are relative to the root, those of `outside` may be absolute.

    `facts` is what was told and written. `environ` maps names to values. `paths` are regular files, `ctimes` their
    change times in ns (0: too young to be believed), `details` what they are, one after the other: zeros for those that
    are only not to change. `absent` are paths where no regular file may be. `folders` are the folders above, which may
    be no links, `inodes` their device and number, in turns. `outside` maps further paths to what they are by
    `signature`.
    """

    __slots__ = ("absent", "ctimes", "details", "environ", "facts", "folders", "inodes", "outside", "paths", "since_ns")

    def __init__(self, since_ns: int) -> None:
        """Begin with nothing, at a time: no clock may later show an earlier one."""
        self.since_ns = since_ns
        self.facts: dict[str, str] = {}
        self.environ: dict[str, str] = {}
        self.paths: list[str] = []
        self.ctimes: list[int] = []
        self.details = bytearray()
        self.absent: list[str] = []
        self.folders: list[str] = []
        self.inodes: list[int] = []
        self.outside: dict[str, str] = {}

    def compare(self) -> "SnapshotDifference | None":
        """Return what is not as it was, seen from the root, which has to be the working directory.

        None where that cannot be said of each path by itself: then anything may be another. Files whose times are not
        as they were are read again.
        """
        if time.time_ns() < self.since_ns:
            return None
        try:
            if not self._are_folders():
                return None
            changed = [path for path, known in self.outside.items() if signature(path, known) != known]
            changed += [path for path in self.absent if _is_file(path)]
            numbers = self._touched()
        except (OSError, ValueError):
            return None
        touched: dict[int, int] = {}
        for number in numbers:
            now = _same(self.paths[number], self.file_state(number))
            if now is not None:
                touched[number] = now
            elif len(changed) < _MOST_CHANGED:
                changed.append(self.paths[number])
            else:
                return None
        return SnapshotDifference(touched, changed)

    def update_ctimes(self, difference: SnapshotDifference) -> None:
        """Take over the change times of what was touched."""
        for number, ctime in difference.touched.items():
            self.ctimes[number] = ctime

    def _touched(self) -> list[int]:
        """Return the numbers of the files whose change times are not as they were.

        Of many files, each processor takes a share: what it costs is the system's, and a process this small is forked
        at once.
        """
        count = len(self.paths)
        share = -(-count // max(1, min(_processors(), count // _SHARE))) or 1
        helpers = [(start, self._helper(start, start + share)) for start in range(share, count, share)]
        try:
            numbers = self._touched_among(0, share)
        finally:
            untouched = [_ended_well(helper) for _, helper in helpers]
        for (start, _), nothing in zip(helpers, untouched, strict=True):
            if not nothing:
                numbers += self._touched_among(start, start + share)
        return numbers

    def _helper(self, start: int, end: int) -> int:
        """Return the id of a process that ends with 0 if none of these files was touched; 0 if there can be none."""
        try:
            helper = os.fork()
        except OSError:
            return 0
        if helper == 0:
            nothing = False
            try:
                nothing = not self._touched_among(start, end)
            finally:
                os._exit(not nothing)
        return helper

    def _touched_among(self, start: int, end: int) -> list[int]:
        """Return the numbers of the files in a range whose change times are not as they were."""
        paths, ctimes = self.paths[start:end], self.ctimes[start:end]
        try:
            times = zip(map(os.lstat, paths), ctimes, strict=True)
            return [number for number, (found, then) in enumerate(times, start) if found.st_ctime_ns != then]
        except (FileNotFoundError, NotADirectoryError):
            pairs = zip(paths, ctimes, strict=True)
            return [number for number, (path, then) in enumerate(pairs, start) if _ctime(path) != then]

    def merge(self, newer: "StatSnapshot", difference: SnapshotDifference, written: "Iterable[str]") -> None:
        """Take over what a partial build looked at since a difference was found.

        Only what differed, what that build wrote (`written`) and what nobody looked at before is as `newer` says: on
        all of that it decided. Everything else is kept as the last build of the whole found it, since the stages that
        look at it were not decided: an edit that was saved meanwhile is then a difference the next time.
        """
        self.since_ns = max(self.since_ns, newer.since_ns)
        self.update_ctimes(difference)
        decided = {*difference.changed, *written}
        absent = {*self.absent} - decided
        self._drop(decided)
        known = absent.union(self.paths)
        for number, path in enumerate(newer.paths):
            if path not in known:
                self.paths.append(path)
                self.ctimes.append(newer.ctimes[number])
                self.details += newer.details[number * _DETAIL : (number + 1) * _DETAIL]
        self.absent = sorted(absent | ({*newer.absent} - known))
        inodes = {**newer._inodes(), **self._inodes()}  # noqa: SLF001 - of another of its kind
        self.folders = list(inodes)
        self.inodes = [number for pair in inodes.values() for number in pair]
        outside = {path: was for path, was in self.outside.items() if path not in decided}
        self.outside = {**{path: was for path, was in newer.outside.items() if path not in known}, **outside}

    def _drop(self, paths: "set[str]") -> None:
        """Forget some files. All others are copied in long pieces: there may be many thousands."""
        gone = [number for number, path in enumerate(self.paths) if path in paths]
        kept = [*zip([0, *(number + 1 for number in gone)], [*gone, len(self.paths)], strict=True)]
        self.paths = [path for start, end in kept for path in self.paths[start:end]]
        self.ctimes = [ctime for start, end in kept for ctime in self.ctimes[start:end]]
        self.details = bytearray().join(self.details[start * _DETAIL : end * _DETAIL] for start, end in kept)

    def _inodes(self) -> dict[str, tuple[int, int]]:
        return {folder: (self.inodes[2 * i], self.inodes[2 * i + 1]) for i, folder in enumerate(self.folders)}

    def add_path(self, path: str) -> bool:
        """Remember what a path leads to; False where that is too young to be believed."""
        known = signature(path)
        self.outside[path] = known
        return known == ABSENT or not is_racy(max(map(int, known.split(":")[-2:])), self.since_ns)

    def add_unhashed_file(self, path: str) -> bool:
        """Remember a file of which nobody wants to know what it is, should it change; False if that cannot be told.

        It is looked at more quickly than what `take` takes.
        """
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or is_racy(max(found.st_mtime_ns, found.st_ctime_ns), self.since_ns):
            return self.add_path(path)
        self.paths.append(path)
        self.ctimes.append(found.st_ctime_ns)
        self.details += bytes(_DETAIL)
        return True

    def _are_folders(self) -> bool:
        inodes: list[int] = []
        for path in self.folders:
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                return False
            inodes.append(found.st_dev)
            inodes.append(found.st_ino)
        return inodes == self.inodes

    def file_state(self, number: int) -> FileState:
        """Return the recorded state of the file at an index of `paths`."""
        return parse_file_state(self.details[number * _DETAIL : (number + 1) * _DETAIL])

    def to_bytes(self) -> bytes:
        """Return the file that `looks_from` reads."""
        parts = (
            str(self.since_ns).encode(),
            _joined(text for pair in self.facts.items() for text in pair),
            _joined(text for pair in self.environ.items() for text in pair),
            _joined(self.paths),
            _packed(self.ctimes),
            bytes(self.details),
            _joined(self.absent),
            _joined(self.folders),
            _packed(self.inodes, signed=False),
            _joined(text for pair in self.outside.items() for text in pair),
        )
        body = b"".join(len(part).to_bytes(_LENGTH, "big") + part for part in parts)
        return SNAPSHOT_FORMAT + zlib.crc32(body).to_bytes(4, "big") + body


def parse_snapshot(data: bytes) -> StatSnapshot | None:
    """Return what `to_bytes` gave; None for anything else."""
    start = len(SNAPSHOT_FORMAT) + 4
    body = memoryview(data)[start:]  # nothing is copied: to touch new memory costs more than to read the file
    if (
        not data.startswith(SNAPSHOT_FORMAT)
        or zlib.crc32(body).to_bytes(4, "big") != data[len(SNAPSHOT_FORMAT) : start]
    ):
        return None
    try:
        return _parsed(body)
    except (ValueError, TypeError):  # of another orch23, or there would be no checksum
        return None


def _parsed(body: memoryview) -> StatSnapshot:
    parts = []
    start = 0
    while start < len(body):
        end = start + _LENGTH + int.from_bytes(body[start : start + _LENGTH], "big")
        parts.append(body[start + _LENGTH : end])
        start = end
    since, facts, environ, paths, ctimes, details, absent, folders, inodes, outside = parts
    looks = StatSnapshot(int(bytes(since)))
    looks.facts = _pairs(facts)
    looks.environ = _pairs(environ)
    looks.paths = _split(paths)
    looks.ctimes = ctimes.cast("q").tolist()
    looks.details = bytearray(details)
    looks.absent = _split(absent)
    looks.folders = _split(folders)
    looks.inodes = inodes.cast("Q").tolist()
    looks.outside = _pairs(outside)
    return looks


def signature(path: str, kind: str = "") -> str:
    """Return what stat says of what a path leads to: that it is not there, a stamp, or, if so asked, that it is there.

    Of a folder that has to be empty that it is, or is not there, or that something is. Of a path at which nothing may
    be (`NOTHING`), that nothing is there, or that something is: also a link that leads nowhere. Of a link (`LEADS`),
    where it leads to. With `OWNER`, who owns it.

    Equal stamps mean equal bytes, and of a folder equal names, unless the times are racy.
    """
    try:
        if kind == EMPTY_DIRECTORY:
            return EXISTS if os.listdir(path) else EMPTY_DIRECTORY
        if kind == NO_ENTRY:
            return EXISTS if os.path.lexists(path) else NO_ENTRY
        if kind.startswith(LINK_TARGET):
            return LINK_TARGET + os.readlink(path)
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return EMPTY_DIRECTORY if kind == EMPTY_DIRECTORY else ABSENT
    except OSError:
        if kind.startswith(LINK_TARGET):  # it is no link any more
            return EXISTS
        raise
    if kind == EXISTS:
        return EXISTS
    if kind.startswith(OWNER):
        return f"{OWNER}{found.st_uid}"
    size, mtime, ctime = found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return f"{found.st_dev}:{found.st_ino}:{found.st_mode}:{size}:{mtime}:{ctime}"


def is_racy(changed_ns: int, seen_ns: int) -> bool:
    """Say whether what changed at one time and was seen at another may have changed since and kept its times."""
    return changed_ns > seen_ns - RACY_NS


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ended_well(helper: int) -> bool:
    """Wait for a process, and say whether there was one that ended with 0."""
    try:
        return helper != 0 and os.waitpid(helper, 0)[1] == 0
    except ChildProcessError:  # whoever started this one wants nobody waited for
        return False


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _ctime(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except (FileNotFoundError, NotADirectoryError):
        return _GONE


def _same(path: str, then: FileState) -> int | None:
    """Return the change time of a file that is what it was, 0 where it is too young; None for another file."""
    import hashlib  # noqa: PLC0415 - takes as long as all the rest, and nothing may have changed

    began = time.time_ns()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        before = os.fstat(descriptor)
        program = bool(before.st_mode & stat.S_IXUSR)
        if not stat.S_ISREG(before.st_mode) or before.st_size != then.size or program != then.executable:
            return None
        hasher = hashlib.sha256()
        while block := os.read(descriptor, _BLOCK):
            hasher.update(block)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if hasher.digest() != then.sha256 or before.st_ctime_ns != after.st_ctime_ns:
        return None
    return 0 if is_racy(max(after.st_mtime_ns, after.st_ctime_ns), began) else after.st_ctime_ns


def _packed(numbers: list[int], *, signed: bool = True) -> bytes:
    """Return numbers as the machine has them, in eight bytes each."""
    import struct  # noqa: PLC0415 - a build that finds nothing to do packs nothing

    return struct.pack(f"{len(numbers)}{'q' if signed else 'Q'}", *numbers)


def _joined(texts: "Iterable[str]") -> bytes:
    return "\0".join(texts).encode(sys.getfilesystemencoding(), "surrogateescape")


def _split(data: memoryview) -> list[str]:
    return str(data, sys.getfilesystemencoding(), "surrogateescape").split("\0") if data else []


def _pairs(data: memoryview) -> dict[str, str]:
    texts = _split(data)
    return dict(zip(texts[::2], texts[1::2], strict=True))
