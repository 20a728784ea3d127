"""The files and tables of `bench/floor.py`: contents, records, a plan, and the states and digests of its files."""

import marshal
import os
import sys
import time
from _blake2 import blake2b  # hashlib would load OpenSSL
from _sha256 import sha256
from array import array

HOME, TEXT, LOCK = ".floor", "floor.txt", "floor.lock"
RECENT_NS = 100_000_000


def put(path, data, end=".new"):
    """Write a file that is there as a whole or not at all; with no `end`, one that no one else reads."""
    file = os.open(path + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    os.write(file, data)
    os.close(file)
    if end:
        os.rename(path + end, path)


def take(path):
    """Return the bytes of a file, and its state, or zeros if a later change could have the same state."""
    now_ns, file = time.time_ns(), os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    state = os.fstat(file)
    data = os.read(file, state.st_size + 1)
    os.close(file)
    return data, (state.st_ctime_ns, state.st_ino) if state.st_ctime_ns + RECENT_NS < now_ns else (0, 0)


def state_of(path):
    """Return what changes whenever a file does; a missing one has no time."""
    try:
        state = os.lstat(path)
    except OSError:
        return 0, 1
    return state.st_ctime_ns, state.st_ino


def sweep(folder, kept):
    """Remove all files below a folder, and the folders that are not kept."""
    for one in list(os.scandir(folder)):
        sweep(one.path, kept) if one.is_dir(follow_symlinks=False) else os.unlink(one.path)
    if folder not in kept:
        os.rmdir(folder)


class Store:
    """Sources have the first numbers, then the output of each stage; then come folders, and the text."""

    def __init__(self):
        if not os.path.exists(HOME):
            [os.mkdir(HOME + name) for name in ("", "/cas", "/records", "/done")]
        if not os.path.exists(secret := os.environ["HOME"] + "/.floor-key"):
            put(secret, os.urandom(32))
        self.key = take(secret)[0]

    def seal(self, name, value):
        data = marshal.dumps(value)
        put(f"{HOME}/{name}", blake2b(data, key=self.key).digest() + data)

    def unseal(self, name, otherwise):
        data = memoryview(take(f"{HOME}/{name}")[0] if os.path.exists(f"{HOME}/{name}") else b"")
        return marshal.loads(data[64:]) if blake2b(data[64:], key=self.key).digest() == data[:64] else otherwise

    def load(self):
        plan = self.unseal("plan", (b"none", 0, 0, TEXT, bytes(4), b"", bytes(4), b""))
        self.plan_id, self.sources, self.files, names, *parts = plan
        self.offsets, self.inputs, self.reads, self.readers = (memoryview(part).cast("I") for part in parts)
        self.paths = names.split("\0")
        plan_id, rows = self.unseal("rows", (b"", b""))
        self.rows = array("Q", rows if plan_id == self.plan_id else bytes(16 * len(self.paths)))

    def load_rest(self):
        """Load what a build needs that has something to do."""
        (plan_id, text), (known, digests) = self.unseal("text", (b"", b"")), self.unseal("digests", (b"", b""))
        known = known == self.plan_id == plan_id
        self.text, self.digests = text if known else b"", bytearray(digests if known else 32 * self.files)
        stale = set(self.unseal("stale", []))
        self.dirty = {stage for stage in range(self.files - self.sources) if self.paths[self.sources + stage] in stale}

    def digest(self, i):
        return bytes(self.digests[32 * i : 32 * i + 32])

    def note(self, i, digest, state):
        self.digests[32 * i : 32 * i + 32], self.rows[2 * i : 2 * i + 2] = digest, array("Q", state)

    def content(self, digest):
        data = take(f"{HOME}/cas/{digest.hex()}")[0]
        return data if sha256(data).digest() == digest else sys.exit(f"{digest.hex()} is damaged")

    def store(self, data):
        digest = sha256(data).digest()
        if not self.planning and not os.path.exists(path := f"{HOME}/cas/{digest.hex()}"):
            put(path, data)
        return digest

    def write_lock(self, built):
        """Write the lock file, with a line for each stage."""
        stages, lines = self.files - self.sources, take(LOCK)[0].split(b"\n") if os.path.exists(LOCK) else []
        for stage in built if len(lines) == stages else range(stages):
            line = f"{self.paths[self.sources + stage]} {self.digest(self.sources + stage).hex()}".encode()
            lines[stage : stage + 1] = [line]
        put(LOCK, b"\n".join(lines[:stages]))

    def affected(self):
        """Return the outputs of stages that may run."""
        for stage in range(self.files - self.sources):
            if stage in self.dirty:
                i = self.sources + stage
                self.dirty.update(self.readers[self.reads[i] : self.reads[i + 1]])
        return [self.paths[self.sources + stage] for stage in sorted(self.dirty)]
