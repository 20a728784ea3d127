"""What `bench/floor.py` needs seldom: the plan of a new text, and a step in namespaces of its own."""

import ctypes
import os
import time
from array import array
from itertools import chain

_NEW = 0x1000_0000 | 0x2_0000 | 0x4000_0000 | 0x800_0000  # user, mounts, network, processes' messages
_BIND, _RECURSIVE, _PRIVATE, _SETATTR, _HERE = 1 << 12, 1 << 14, 1 << 18, 442, -100


def make(floor):
    """Store the plan of the text; return the stages whose lines are new or changed, or whose folders changed."""
    before = {
        path: (floor.digest(i), floor.rows[2 * i : 2 * i + 2]) for i, path in enumerate(floor.paths[: floor.files])
    }
    with open("floor.txt", "rb") as file:
        source = file.read()
    lines, old, folders = source.splitlines(), set(floor.text.splitlines()), {}
    rows = [line.decode().split("\t") for line in lines]
    for row in rows:
        for name in [one for one in row[2:] if one.endswith("/")]:
            walked = [(where, found) for where, _, found in os.walk(name[:-1])]
            folders.update(dict.fromkeys(where for where, _ in walked))
            row[2:] = [one for one in row[2:] if one != name]
            row += sorted(f"{where}/{one}" for where, found in walked for one in found)
    outputs = {row[1] for row in rows}
    sources = dict.fromkeys(path for row in rows for path in row[2:] if path not in outputs)
    number = {path: i for i, path in enumerate([*sources, *(row[1] for row in rows)])}
    inputs, readers = [[number[path] for path in row[2:]] for row in rows], [[] for _ in number]
    for stage, read in enumerate(inputs):
        for i in read:
            readers[i].append(stage)
    names, plan_id = "\0".join([*number, *folders, "floor.txt"]), os.urandom(16)
    floor.seal("plan", (plan_id, len(sources), len(number), names, *_packed(inputs), *_packed(readers)))
    floor.seal("text", (plan_id, source))
    stale = {floor.paths[floor.sources + stage] for stage in floor.dirty}
    floor.load()
    floor.text, floor.digests = source, bytearray(32 * floor.files)
    now_ns = time.time_ns()
    for i, path in enumerate(floor.paths):
        if i < floor.files and path in before:
            floor.note(i, *before[path])
        elif i >= floor.files:
            state = os.lstat(path)
            settled = state.st_ctime_ns + 100_000_000 < now_ns
            floor.rows[2 * i : 2 * i + 2] = array("Q", (state.st_ctime_ns, state.st_ino) if settled else (0, 0))
    return {
        stage
        for stage, (line, row) in enumerate(zip(lines, rows, strict=True))
        if line not in old or row[1] in stale or b"/\t" in line + b"\t"
    }


def _packed(lists):
    """Return lists as offsets and numbers."""
    offsets = array("I", [0])
    for one in lists:
        offsets.append(offsets[-1] + len(one))
    return offsets.tobytes(), array("I", chain.from_iterable(lists)).tobytes()


def confined(argv, env, output):
    """Start a program that can write only this folder, without its folders of inputs, and that has no network."""
    here, user, group, libc = os.getcwd().encode(), os.getuid(), os.getgid(), ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)
        log = os.open("../log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        libc.unshare(_NEW)
        for name, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        fixed = {one.name for one in os.scandir(".") if one.is_dir() and not output.startswith(f"{one.name}/")}
        done = [libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), libc.mount(here, here, None, _BIND, None)]
        done += [
            libc.mount(b"/".join(pair), b"/".join(pair), None, _BIND, None)
            for pair in [(here, one.encode()) for one in fixed]
        ]
        done += [_set_read_only(libc, b"/", 0x8000, 1), _set_read_only(libc, here, 0, 0)]
        if any(done):
            raise OSError(ctypes.get_errno(), "mount")
        os.chdir(here)
        os.execvpe(argv[0], argv, env)
    finally:
        os._exit(126)


def _set_read_only(libc, folder, flags, on):
    attributes = (ctypes.c_uint64 * 4)(on, 1 - on, 0, 0)
    return libc.syscall(_SETATTR, _HERE, folder, flags, attributes, 32)
