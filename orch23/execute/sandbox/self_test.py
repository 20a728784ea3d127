"""Try a tier of the sandbox on this machine: run something, write outside of the room and to a read-only tree, connect.

What counts is what happened outside; that the attempts were made is all that is believed from within.
"""

import contextlib
import errno
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Final

from orch23.execute.launch import Launch, Launcher, LaunchRefusedError
from orch23.execute.process import ProcessEnd, run_process
from orch23.execute.rooms import Room
from orch23.execute.scratch_folders import scratch_folder

_WITHIN_S = 20.0
_OF_THE_MACHINE = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EINTR}
)
_CANARY = b"untouched\n"
_WRITABLE = "out"

_PROGRAM: Final = """\
import _socket, sys
canary, port, tree, *inside = sys.argv[1:]
def attempt(name, act):
    try:
        act()
    except OSError:
        print(name, "refused", flush=True)
    else:
        print(name, "done", flush=True)
def write(path):
    with open(path + "/inside" if path != canary else path, "w") as file:
        file.write("x")
def connect():
    one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    one.settimeout(5)
    one.connect(("127.0.0.1", int(port)))
attempt("inside", lambda: [write(folder) for folder in inside])
attempt("tree", lambda: write(tree))
attempt("outside", lambda: write(canary))
attempt("connect", connect)
"""


def fault(launcher: Launcher) -> str | None:
    """Return what a tier does not do on this machine, or None where it does all that it must.

    Raises:
        OSError: the machine refused what the test needs: a file, a descriptor.

    """
    try:
        with scratch_folder("sandbox") as folder:
            return _tried(launcher, folder)
    except LaunchRefusedError as refused:
        return refused.diagnostic.message
    except OSError as problem:
        if problem.errno in _OF_THE_MACHINE:
            raise  # it says nothing of the tier: to take a lesser one for it would be wrong
        return str(problem)


def _tried(launcher: Launcher, folder: Path) -> str | None:
    canary = folder / "canary"
    canary.write_bytes(_CANARY)
    room = Room(folder / "room", "self-test")
    for part in (room.own, room.root, room.work, room.work / _WRITABLE, room.home, room.tmp):
        part.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        end = _run(launcher, room, canary, listener.getsockname()[1])
        reached = False
        with contextlib.suppress(BlockingIOError):
            listener.accept()[0].close()
            reached = True
    said = end.head.decode("utf-8", "replace").split("\n")
    if (
        (end.end, end.exit_code) != ("exited", 0)
        or "inside done" not in said
        or not (room.work / _WRITABLE / "inside").exists()
    ):
        return _last_line(end)
    if canary.read_bytes() != _CANARY or "outside refused" not in said:
        return "a file outside of the room could be written"
    if reached or "connect refused" not in said:
        return "this machine's network could be reached"
    if (room.work / "inside").exists() or "tree refused" not in said:
        return "a tree that is read-only could be written"
    return None


def _run(launcher: Launcher, room: Room, canary: Path, port: int) -> ProcessEnd:
    seen = launcher.seen(room)
    interpreter = Path(sys.executable)
    inside = map(str, (seen.work, seen.work / _WRITABLE, seen.home, seen.tmp))
    wanted = Launch(
        argv=(str(interpreter), "-I", "-S", "-B", "-c", _PROGRAM, str(canary), str(port), *inside),
        env={"PATH": os.defpath, "HOME": str(seen.home), "TMPDIR": str(seen.tmp), "LANG": "C.UTF-8"},
        cwd=room.work,
        room=room,
        interpreter=interpreter,
        writable=(f"{_WRITABLE}/",),
    )
    with launcher.prepare(wanted) as launch:
        end = run_process(
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            timeout_s=_WITHIN_S,
            cancel=threading.Event(),
            log=room.own / "output.log",
            pass_fds=launch.pass_fds,
            stdin=launch.stdin,
            confinement=launch.confinement,
            gate=launch.gate,
        )
        return end if launch.judge is None else launch.judge(end)


def _last_line(end: ProcessEnd) -> str:
    """Say in a line why even honest work failed."""
    lines = [line for line in end.head.decode("utf-8", "replace").splitlines() if line.strip()]
    return f"an honest program ended with {end.exit_code}: {lines[-1] if lines else 'it said nothing'}"
