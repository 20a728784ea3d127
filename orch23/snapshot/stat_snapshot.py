"""File states, environment and facts of a build; compare them with now; read and write them."""

import os
import stat
import sys
import time
from _blake2 import blake2b
from _operator import attrgetter
from itertools import repeat

from orch23.snapshot.signatures import ENTRIES, is_racy, is_racy_signature, lstat_or_none, sha256, signature

TYPE_CHECKING = False  # `typing` and `collections.abc` take longer to load than 1,000 files to `lstat`
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SNAPSHOT_FORMAT = b"orch23 snapshot 4\n"
_MAX_CHANGED = 1000
# Files per process: a smaller share takes less time to check than a fork. Threads would wait for each other (ADR 15).
_SHARE = 2000
# Files that a process takes at once, and the maximum number of such blocks, whose numbers fit into one byte.
_BLOCK_FILES = 500
_MAX_BLOCKS = 256
CHANGE_TIME = attrgetter("st_ctime_ns")
_COMPLETE = b"."  # after the last line of a result
_LENGTH_BYTES = 8
_SUM_BYTES = 16
_PARTS = 11
_FACTS, _STATES = 1, 6  # indices of parts
_BLOCK = 1 << 16  # larger ones get new memory for each read, which takes longer
_DIGEST_BYTES = 32
_STATE, _STATE_BYTES = ">32sQ?", _DIGEST_BYTES + 8 + 1  # sha256, size, executable
_BLOCK_BYTES = 256 * _STATE_BYTES  # states with one checksum


class SnapshotDifference:
    """The paths that changed, and what is known now of those that did not.

    `touched` maps the index of a file in `paths` to its new change time, `aged` a directory to its new signature.
    """

    __slots__ = ("aged", "changed", "touched")

    def __init__(self, touched: dict[int, int], changed: list[str]) -> None:
        """Create it."""
        self.touched, self.changed = touched, changed
        self.aged: dict[str, str] = {}


class StatSnapshot:
    """Everything that a decision depends on. Paths are relative to the root, those of `outside` may be absolute.

    `facts` are the texts to repeat. `environ` maps variables to digests. `paths` are regular files, `ctimes` their
    change times in ns (0: too young to trust), `details` their states in bytes: zeros for a file that was not hashed.
    `sums` are the checksums of blocks of `details` that were not verified yet, since most are never needed.
    `absent` are paths where no regular file may be. `folders` are the folders above, which may not be links; `inodes`
    alternates their devices and inode numbers. `outside` maps further paths to their signatures.
    """

    __slots__ = (
        *("absent", "ctimes", "details", "environ", "facts", "folders", "inodes", "outside", "paths", "since_ns"),
        "sums",
    )

    def __init__(self, since_ns: int) -> None:
        """Create an empty snapshot. `since_ns` is the time now; a clock that went back makes a snapshot invalid."""
        self.since_ns = since_ns
        self.facts: dict[str, str] = {}
        self.environ: dict[str, str] = {}
        self.paths: list[str] = []
        self.ctimes: list[int] = []
        self.details = bytearray()
        self.sums: dict[int, bytes] = {}
        self.absent: list[str] = []
        self.folders: list[str] = []
        self.inodes: list[int] = []
        self.outside: dict[str, str] = {}

    def compare(self) -> "SnapshotDifference | None":
        """Return the differences between the snapshot and the working directory, which must be the root.

        None if the differences cannot be attributed to paths: then everything has to be decided. A file whose times
        changed is hashed again.
        """
        # The clock went back, so change times show nothing (ADR 15).
        if time.time_ns() < self.since_ns:
            return None
        aged: dict[str, str] = {}
        try:
            if not self._are_folders():
                return None
            changed = [path for path, known in self.outside.items() if not _is_same(path, known, aged)]
            changed += [path for path in self.absent if _is_file(path)]
            numbers = self._touched()
        except (OSError, ValueError):
            return None
        difference = self._difference(changed, numbers)
        if difference is not None:
            difference.aged = aged
        return difference

    def _difference(self, changed: list[str], numbers: list[int]) -> SnapshotDifference | None:
        """Hash the files with new change times, and add those with other bytes to `changed`."""
        touched: dict[int, int] = {}
        for number in numbers:
            ctime = _unchanged_ctime(self.paths[number], *self.contents((number,))[0])
            if ctime is not None:
                touched[number] = ctime
            elif len(changed) < _MAX_CHANGED:
                changed.append(self.paths[number])
            else:
                return None
        return SnapshotDifference(touched, changed)

    def update_times(self, difference: SnapshotDifference) -> None:
        """Take over the times of files and directories whose content is the same."""
        for number, ctime in difference.touched.items():
            self.ctimes[number] = ctime
        self.outside.update(difference.aged)

    def _touched(self) -> list[int]:
        """Return the indices of the files whose change times differ.

        Forked processes share a large number of files. This process is small, so it forks fast.
        """
        count = len(self.paths)
        helpers = min(_processors(), count // _SHARE) - 1
        if helpers < 1:
            return self._touched_among(0, count)
        size = max(_BLOCK_FILES, -(-count // _MAX_BLOCKS))
        blocks = -(-count // size)
        # Each process takes one block after the other, so one that gets less time checks fewer files.
        claims, writing = os.pipe()
        os.write(writing, bytes(range(blocks)))
        os.close(writing)
        started = [self._fork(claims, size) for _ in range(helpers)]
        try:
            done, numbers = self._touched_in(claims, size)
        finally:
            os.close(claims)
            results = [_result(helper, pipe) for helper, pipe in started]
        for result in results:
            # None if the process could not start, or failed: this one checks its blocks again.
            if result is not None:
                done |= result[0]
                numbers += result[1]
        for block in {*range(blocks)} - done:
            numbers += self._touched_among(block * size, (block + 1) * size)
        return sorted(numbers)

    def _touched_in(self, claims: int, size: int) -> tuple[set[int], list[int]]:
        """Check blocks of files until none is left; return the blocks, and the indices of touched files."""
        done: set[int] = set()
        numbers: list[int] = []
        while (block := _claim(claims)) is not None:
            numbers += self._touched_among(block * size, (block + 1) * size)
            done.add(block)
        return done, numbers

    def _fork(self, claims: int, size: int) -> tuple[int, int]:
        """Start a process that checks blocks and writes what it found to a pipe; return its id and the pipe.

        The id is 0 if it could not start.
        """
        reading, writing = os.pipe()
        try:
            helper = os.fork()
        except OSError:
            os.close(writing)
            return 0, reading
        if helper == 0:
            try:
                os.close(reading)
                lines = (b" ".join(b"%d" % number for number in found) for found in self._touched_in(claims, size))
                _write_all(writing, b"\n".join((*lines, _COMPLETE)))
            finally:
                # Ends without cleanup: buffers and exit handlers belong to the parent.
                os._exit(0)
        os.close(writing)
        return helper, reading

    def _touched_among(self, start: int, end: int) -> list[int]:
        paths, then = self.paths[start:end], self.ctimes[start:end]
        try:  # without a line of Python for each file
            now: list[int | None] = [*map(CHANGE_TIME, map(os.lstat, paths))]
        except (FileNotFoundError, NotADirectoryError):  # rare
            now = [None if state is None else state.st_ctime_ns for state in map(lstat_or_none, paths)]
        if now == then:
            return []
        return [number for number, pair in enumerate(zip(now, then, strict=True), start) if pair[0] != pair[1]]

    def merge(self, newer: "StatSnapshot", difference: SnapshotDifference, written: "Iterable[str]") -> None:
        """Merge the snapshot of a partial build that started from a difference.

        `newer` counts only for what differed, what the build wrote (`written`), and paths that are new: the build
        decided on these. All else stays as the last full build found it. The stages that depend on it were not decided,
        so an edit that was saved during the build must be a difference for the next one.
        """
        self.since_ns = max(self.since_ns, newer.since_ns)
        self.update_times(difference)
        decided = {*difference.changed, *written}
        absent = {*self.absent} - decided
        places = dict(zip(self.paths, range(len(self.paths)), strict=True))
        gone = {path: places.pop(path) for path in decided if path in places}
        for number, path in enumerate(newer.paths):
            if path not in places and path not in absent:
                self._put(gone.pop(path, len(self.paths)), newer, number)
        # The last file takes the place of one that is gone, so that the others stay where they are.
        for number in sorted(gone.values(), reverse=True):
            last = len(self.paths) - 1
            self._put(number, self, last)
            del self.paths[last], self.ctimes[last], self.details[last * _STATE_BYTES :]
        self.absent = sorted(absent | ({*newer.absent} - places.keys()))
        inodes = {**newer._inodes(), **self._inodes()}  # noqa: SLF001 - of the same class
        self.folders = list(inodes)
        self.inodes = [number for pair in inodes.values() for number in pair]
        outside = {path: was for path, was in self.outside.items() if path not in decided}
        new = {path: was for path, was in newer.outside.items() if path not in places and path not in absent}
        self.outside = {**new, **outside}

    def copy_of_files(self) -> "StatSnapshot":
        """Return a snapshot with the same files and nothing else, which later changes to this one do not change."""
        one = StatSnapshot(self.since_ns)
        one.paths, one.ctimes, one.details, one.sums = [*self.paths], [*self.ctimes], self.details[:], {**self.sums}
        return one

    def _put(self, number: int, source: "StatSnapshot", place: int) -> None:
        """Replace the file at an index by one of a snapshot, or add that at the end."""
        self._state(number)
        state = source._state(place)  # noqa: SLF001 - of the same class
        self.paths[number : number + 1] = source.paths[place : place + 1]
        self.ctimes[number : number + 1] = source.ctimes[place : place + 1]
        self.details[number * _STATE_BYTES : (number + 1) * _STATE_BYTES] = state

    def _state(self, number: int) -> bytearray:
        """Return the bytes of a state. Those of a damaged block say that no file was hashed."""
        start = number * _STATE_BYTES
        block = start // _BLOCK_BYTES
        known = self.sums.get(block)
        if known is not None:
            states = self.details[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES]
            if _sum_of(states) != known:
                self.details[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES] = bytes(len(states))
            self.sums.pop(block, None)  # only now: another thread must not take the block for verified before
        return self.details[start : start + _STATE_BYTES]

    def _inodes(self) -> dict[str, tuple[int, int]]:
        return {folder: (self.inodes[2 * i], self.inodes[2 * i + 1]) for i, folder in enumerate(self.folders)}

    def add_path(self, path: str) -> bool:
        """Add the signature of a path; return False if the path is too young to trust."""
        known = signature(path)
        self.outside[path] = known
        return not is_racy_signature(known, self.since_ns)

    def add_unhashed_file(self, path: str) -> bool:
        """Add a file whose new content is not needed if it changes; return False if it is too young to trust.

        It is compared faster than a path of `add_path`: by its change time alone.
        """
        found = os.lstat(path)
        times = found.st_dev, found.st_mtime_ns, found.st_ctime_ns
        if not stat.S_ISREG(found.st_mode) or is_racy(*times, self.since_ns):
            return self.add_path(path)
        self.add_files([path], [found.st_ctime_ns], [("00" * _DIGEST_BYTES, 0, False)])
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

    def contents(self, numbers: "Sequence[int]") -> list[tuple[str, int, bool]]:
        """Return SHA-256 in hex, size in bytes, and whether it is executable, of the files at indices of `paths`."""
        for block in {number * _STATE_BYTES // _BLOCK_BYTES for number in numbers}:
            self._state(block * _BLOCK_BYTES // _STATE_BYTES)  # verifies it
        import struct  # noqa: PLC0415 - as in `_packed`

        starts = [number * _STATE_BYTES for number in numbers]
        states = map(struct.Struct(_STATE).unpack_from, repeat(self.details), starts)
        return [(digest.hex(), size, executable) for digest, size, executable in states]

    def add_files(self, paths: list[str], ctimes: list[int], contents: list[tuple[str, int, bool]]) -> None:
        """Add files with their contents as of `contents`; a change time is 0 if it is too young to trust."""
        self.paths += paths
        self.ctimes += ctimes
        import struct  # noqa: PLC0415 - as in `_packed`

        pack = struct.Struct(_STATE).pack
        self.details += b"".join([pack(bytes.fromhex(one), size, more) for one, size, more in contents])

    def to_bytes(self, key: bytes) -> bytes:
        """Return the bytes of the snapshot file, which `parse_snapshot` reads: a head with a MAC, then the parts.

        The head has the length and the checksum of each part, so that one can be read without the others. The states
        of files have a checksum for each block instead, which is a part before them.
        """
        states = memoryview(self.details)
        blocks = [states[start : start + _BLOCK_BYTES] for start in range(0, len(states), _BLOCK_BYTES)]
        parts: tuple[bytes | memoryview, ...] = (
            str(self.since_ns).encode(),
            _joined(text for pair in self.facts.items() for text in pair),
            _joined(text for pair in self.environ.items() for text in pair),
            _joined(self.paths),
            _packed(self.ctimes),
            b"".join(self.sums.get(number) or _sum_of(block) for number, block in enumerate(blocks)),
            states,
            _joined(self.absent),
            _joined(self.folders),
            _packed(self.inodes, signed=False),
            _joined(text for pair in self.outside.items() for text in pair),
        )
        sums = [_sum_of(b"" if number == _STATES else part) for number, part in enumerate(parts)]
        head = b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + one for part, one in zip(parts, sums, strict=True))
        return b"".join((SNAPSHOT_FORMAT, _sum_of(head, key), head, *parts))


def parse_snapshot(data: bytes, key: bytes) -> StatSnapshot | None:
    """Parse a snapshot file; return None if it is damaged, has another format, or was made with another key."""
    try:
        return _parsed(_parts(data, key, range(_PARTS)))
    except (ValueError, TypeError):  # the checksums match, so another version of orch23 wrote it
        return None


def parse_facts(data: bytes, key: bytes) -> dict[str, str] | None:
    """Return the facts of a snapshot file, without a look at its other parts; None as for `parse_snapshot`."""
    try:
        (facts,) = _parts(data, key, (_FACTS,))
        return _pairs(facts)
    except (ValueError, TypeError):
        return None


def _parts(data: bytes, key: bytes, wanted: "Iterable[int]") -> list[memoryview]:
    """Return some parts of a snapshot file; none if its MAC, or the checksum of one of them, does not match."""
    start = len(SNAPSHOT_FORMAT)
    size = _LENGTH_BYTES + _SUM_BYTES
    head = data[start + _SUM_BYTES : start + _SUM_BYTES + _PARTS * size]
    if not data.startswith(SNAPSHOT_FORMAT + _sum_of(head, key)) or len(head) != _PARTS * size:
        return []
    lengths = [int.from_bytes(head[at : at + _LENGTH_BYTES], "big") for at in range(0, len(head), size)]
    body = memoryview(data)[start + _SUM_BYTES + len(head) :]  # not copied: new memory costs more than the read
    parts = {number: body[sum(lengths[:number]) : sum(lengths[: number + 1])] for number in wanted}
    sums = {number: head[number * size + _LENGTH_BYTES : (number + 1) * size] for number in parts}
    intact = (_sum_of(b"" if number == _STATES else part) == sums[number] for number, part in parts.items())
    return [*parts.values()] if all(intact) else []


def _sum_of(data: "bytes | bytearray | memoryview", key: bytes = b"") -> bytes:
    return blake2b(data, digest_size=_SUM_BYTES, key=key).digest()


def _parsed(parts: list[memoryview]) -> StatSnapshot:
    since, facts, environ, paths, ctimes, sums, details, absent, folders, inodes, outside = parts
    snapshot = StatSnapshot(int(bytes(since)))
    snapshot.facts = _pairs(facts)
    snapshot.environ = _pairs(environ)
    snapshot.paths = _split(paths)
    snapshot.ctimes = ctimes.cast("q").tolist()
    snapshot.details = bytearray(details)
    starts = range(0, len(sums), _SUM_BYTES)
    snapshot.sums = {number: bytes(sums[start : start + _SUM_BYTES]) for number, start in enumerate(starts)}
    if not len(details) == _STATE_BYTES * len(snapshot.paths) <= _BLOCK_BYTES * len(snapshot.sums):
        raise ValueError
    snapshot.absent = _split(absent)
    snapshot.folders = _split(folders)
    snapshot.inodes = inodes.cast("Q").tolist()
    snapshot.outside = _pairs(outside)
    return snapshot


def _is_same(path: str, known: str, aged: dict[str, str]) -> bool:
    """Return whether a path has a known signature; add to `aged` what is as good for a directory of known entries."""
    if not known.startswith(ENTRIES):
        return signature(path, known) == known
    began, times = time.time_ns(), signature(path)  # before the listing, which may miss what is added meanwhile
    if signature(path, known) != known:
        return False
    if not is_racy_signature(times, began):
        aged[path] = times
    return True


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _claim(claims: int) -> int | None:
    """Return the number of the next block that no other process has taken; None if none is left."""
    number = os.read(claims, 1)
    return number[0] if number else None


def _result(helper: int, pipe: int) -> tuple[set[int], list[int]] | None:
    """Wait for a process of `_fork`; return the blocks and indices that it wrote, or None if it did not write all."""
    data = bytearray()
    try:
        while block := os.read(pipe, _BLOCK):
            data += block
    finally:
        os.close(pipe)
        if helper != 0:
            try:  # noqa: SIM105 - `contextlib` takes long to load
                os.waitpid(helper, 0)
            except ChildProcessError:  # the parent of this process ignores SIGCHLD, so the kernel has reaped it
                pass
    *found, last = data.split(b"\n")
    if last != _COMPLETE:
        return None
    done, numbers = (map(int, line.split()) for line in found)
    return {*done}, [*numbers]


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _is_file(path: str) -> bool:
    state = lstat_or_none(path)
    return state is not None and stat.S_ISREG(state.st_mode)


def _unchanged_ctime(path: str, digest: str, size: int, executable: bool) -> int | None:  # noqa: FBT001 - as stored
    """Return the change time of a file with the same content, 0 if it is too young to trust; None for another file."""
    began = time.time_ns()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        before = os.fstat(descriptor)
        program = bool(before.st_mode & stat.S_IXUSR)
        if not stat.S_ISREG(before.st_mode) or before.st_size != size or program != executable:
            return None
        hasher = sha256(size=size)
        while block := os.read(descriptor, _BLOCK):
            hasher.update(block)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if hasher.hexdigest() != digest or before.st_ctime_ns != after.st_ctime_ns:
        return None
    return 0 if is_racy(after.st_dev, after.st_mtime_ns, after.st_ctime_ns, began) else after.st_ctime_ns


def _packed(numbers: list[int], *, signed: bool = True) -> bytes:
    """Return numbers in the byte order of the machine, eight bytes each."""
    import struct  # noqa: PLC0415 - a build with nothing to do does not write a snapshot

    return struct.pack(f"{len(numbers)}{'q' if signed else 'Q'}", *numbers)


def _joined(texts: "Iterable[str]") -> bytes:
    return "\0".join(texts).encode(sys.getfilesystemencoding(), "surrogateescape")


def _split(data: memoryview) -> list[str]:
    return str(data, sys.getfilesystemencoding(), "surrogateescape").split("\0") if data else []


def _pairs(data: memoryview) -> dict[str, str]:
    texts = _split(data)
    return dict(zip(texts[::2], texts[1::2], strict=True))
