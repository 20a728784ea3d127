"""The floor: what the promises of orch23 cost at least in Python. A prototype for the bench, of the standard library.

`build [--namespaces] [--overwrite-edited]`, or `plan`. It reads a stored plan without parsing, compares the table of
file states, and keeps contents, records, a journal and a lock file. A failed step changes no file of the project, a
step reads the bytes that were hashed, a kill loses no commit, and tables are authenticated. It has no secrets, models,
limits, messages, jobs or supervisors. `floor_store.py` has its files, `floor_plan.py` what it seldom needs.
"""

import fcntl
import marshal
import os
import sys
import time
from _sha256 import sha256
from array import array
from heapq import heappop, heappush
from itertools import chain

from floor_store import HOME, RECENT_NS, Store, put, state_of, sweep, take

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
GROUP, GROUP_S, TREE, FOLDERS, KILL = 256, 0.3, 64, 10, 9


class Floor(Store):
    """Decides, runs and commits."""

    def __init__(self, options):
        super().__init__()
        self.root, self.box = os.open(".", os.O_RDONLY), f"{HOME}/box"
        fcntl.flock(self.root, fcntl.LOCK_EX)
        self.journal = os.open(f"{HOME}/journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.overwrite, self.confined = "--overwrite-edited" in options, "--namespaces" in options
        self.planning = "plan" in options
        self.dirty, self.heap, self.made, self.group, self.since = set(), [], set(), {}, 0.0
        self.young, self.built = [], []
        self.load()
        if os.path.exists(f"{HOME}/redo"):  # a kill came during a commit
            self.load_rest()
            self.group = marshal.loads(take(f"{HOME}/redo")[0])
            self.dirty.difference_update(self.group)
            self.promote()
            self.commit()

    def changed(self):
        try:
            seen = [(one.st_ctime_ns, one.st_ino) for one in map(os.lstat, self.paths)]
        except OSError:
            seen = list(map(state_of, self.paths))
        flat, known = array("Q", chain.from_iterable(seen)), self.rows
        return [] if flat == known else [i for i, one in enumerate(seen) if one != (known[2 * i], known[2 * i + 1])]

    def decide(self):
        """Take in what changed; return whether anything did."""
        changed = self.changed()
        if changed:
            self.load_rest()
        if changed and changed[-1] >= self.files:
            import floor_plan  # noqa: PLC0415 - only after an edit of the text

            self.dirty, changed = floor_plan.make(self), self.changed()
        for i in [i for i in changed if i < self.files and i - self.sources not in self.dirty]:
            data, state = take(self.paths[i]) if os.path.exists(self.paths[i]) else (None, (0, 0))
            if data is not None and sha256(data).digest() == self.digest(i):
                self.note(i, self.digest(i), state)
            elif data is not None and i < self.sources:
                self.note(i, self.store(data), state)
                self.dirty.update(self.readers[self.reads[i] : self.reads[i + 1]])
            elif i >= self.sources and (self.overwrite or data is None):
                self.accept(i - self.sources, self.digest(i), self.content(self.digest(i)))
            else:
                sys.exit(f"{self.paths[i]} is missing, or a user edited it")
        return bool(changed)

    def run(self):
        self.heap, self.lines = sorted(self.dirty), self.text.splitlines()
        while self.heap:
            stage = heappop(self.heap)
            self.dirty.discard(stage)
            inputs = self.inputs[self.offsets[stage] : self.offsets[stage + 1]].tolist()
            key = sha256(b"".join((self.lines[stage], *map(self.digest, inputs)))).hexdigest()
            if digest := self.unseal(f"records/{key}", b""):
                self.accept(stage, digest, self.content(digest))
            else:
                self.step(stage, inputs, f"records/{key}")
        self.commit()
        if self.built:
            self.write_lock(self.built)
        if os.path.exists(self.box):
            sweep(self.box, ())

    def step(self, stage, inputs, record):
        """Run a step in a directory with copies of its inputs, and take its output if it succeeded."""
        box = self.box if len(inputs) < TREE else f"{HOME}/tree{stage}"
        there = {} if box == self.box else self.unseal(f"{stage}.table", {})
        for i in (self.sources + stage, *inputs):
            path, digest = self.paths[i], self.digest(i)
            # A tree of many files stays: the step has it read-only, or it is compared.
            known = there.get(path)
            if known and known[0] == digest and (self.confined or known[1:] == state_of(f"{box}/{path}")):
                continue
            if (folder := f"{box}/{os.path.dirname(path)}") not in self.made:
                os.makedirs(folder, exist_ok=True)
                self.made.update(folder[:end] for end in range(len(box), len(folder) + 1) if f"{folder}/"[end] == "/")
            if i != self.sources + stage:
                put(f"{box}/{path}", self.content(digest), "")
                there[path] = digest, *state_of(f"{box}/{path}")
        if box != self.box:
            old_ns = time.time_ns() - RECENT_NS
            self.seal(f"{stage}.table", {path: one for path, one in there.items() if self.confined or one[1] < old_ns})
        output = self.paths[self.sources + stage]
        os.chdir(box)
        child = self.spawn(self.lines[stage].split(b"\t")[0], output)
        os.fchdir(self.root)
        _, status = os.waitpid(child, 0)
        try:
            os.killpg(child, KILL)  # what it left behind
        except ProcessLookupError:
            pass
        if status or not os.path.exists(f"{box}/{output}"):
            self.dirty.add(stage)
            self.commit()
            sys.exit(f"{output}: status {status}\n{take(f'{HOME}/log')[0].decode()}")
        data, _ = take(f"{box}/{output}")
        os.rename(f"{box}/{output}", f"{HOME}/done/{stage}")
        digest = self.store(data)
        self.seal(record, digest)
        self.accept(stage, digest)
        if box == self.box:
            self.made = self.made if len(self.made) < FOLDERS else {box}
            sweep(box, self.made)

    def spawn(self, command, output):
        argv = command.split(b"\x1f") if b"\x1f" in command else [b"bash", b"-euo", b"pipefail", b"-c", command]
        if self.confined:
            import floor_plan  # noqa: PLC0415 - only with a sandbox

            return floor_plan.confined(argv, ENV, output)
        log = (os.POSIX_SPAWN_OPEN, 1, "../log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        return os.posix_spawnp(argv[0], argv, ENV, file_actions=[log, (os.POSIX_SPAWN_DUP2, 1, 2)], setpgroup=0)

    def accept(self, stage, digest, data=None):
        """Note the result of a stage; its output goes to the project with a group of others."""
        i = self.sources + stage
        if data is not None:
            put(f"{HOME}/done/{stage}", data, "")
        os.write(self.journal, f"{self.paths[i]} {digest.hex()}\n".encode())
        if digest != self.digest(i):
            for reader in self.readers[self.reads[i] : self.reads[i + 1]]:
                if reader not in self.dirty:
                    self.dirty.add(reader)
                    heappush(self.heap, reader)
        now = time.monotonic()
        self.since = self.since if self.group else now
        self.group[stage] = self.paths[i], self.digest(i), *self.rows[2 * i : 2 * i + 2], digest
        self.note(i, digest, (0, 0))
        if len(self.group) >= GROUP or now - self.since > GROUP_S:
            self.commit()

    def commit(self):
        """Make the results of a group durable, move its outputs into the project, and store the tables."""
        if self.group:
            os.sync()
            put(f"{HOME}/redo", marshal.dumps(self.group))
            os.sync()
            self.promote()
        # Their time was too recent before, so they are compared once more.
        for i in [i for i in self.young if os.path.exists(self.paths[i])]:
            data, state = take(self.paths[i])
            self.note(i, self.digest(i), state if sha256(data).digest() == self.digest(i) else (0, 0))
        self.young = [self.sources + stage for stage in self.group]
        self.seal("stale", [self.paths[self.sources + stage] for stage in self.dirty])
        if self.dirty:
            self.rows[-2:] = array("Q", (0, 0))  # the next build has something to do
        self.seal("digests", (self.plan_id, bytes(self.digests)))
        self.seal("rows", (self.plan_id, self.rows.tobytes()))
        if self.group:
            os.sync()
            os.unlink(f"{HOME}/redo")
            self.built += self.group
            self.group = {}

    def promote(self):
        for stage, (path, known, *row, digest) in self.group.items():
            if os.path.exists(f"{HOME}/done/{stage}"):
                found = state_of(path)
                edited = found[0] and [*found] != row and sha256(take(path)[0]).digest() not in {known, digest}
                if edited and not self.overwrite:
                    sys.exit(f"{path}: a user edited it")
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                os.rename(f"{HOME}/done/{stage}", path)
            self.note(self.sources + stage, digest, (0, 0))


def main():
    floor = Floor(sys.argv[1:])
    changed = floor.decide()
    if floor.planning:
        print("\n".join(floor.affected()))
    elif changed:
        floor.run()
    print(f"{len(floor.built)} built", flush=True)
    os._exit(0)
