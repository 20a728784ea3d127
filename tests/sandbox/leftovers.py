"""Leave a process that has nothing left of its step: `leftovers.py KIND TAG`; every one ends as `sleep TAG`.

It has another parent, session, group and environment than its step, no descriptor of it, and lower limits.
"""

import ctypes
import os
import resource
import sys
import time

LIBC = ctypes.CDLL(None)
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
CLONE_PARENT, SIGCHLD = 0x8000, 17


def cloned() -> bool:
    """Start a sibling of this process, not a child; return whether this is the new one."""
    return bool(LIBC.syscall(ctypes.c_long(CLONE), ctypes.c_long(CLONE_PARENT | SIGCHLD), None, None, None, None) == 0)


def shed() -> None:
    """Drop all by which a process can be found again."""
    os.setsid()
    os.chdir("/")
    os.closerange(0, 256)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def sleep_on(tag: str) -> None:
    os.execve("/bin/sleep", ["sleep", tag], {})


def sibling(tag: str) -> None:
    if cloned():
        shed()
        sleep_on(tag)


def orphan(tag: str) -> None:
    if os.fork() == 0:
        if os.fork() == 0:
            shed()
            sleep_on(tag)
        os._exit(0)


def hopping(tag: str) -> None:
    """Be another process every moment: who looks at a number, looks at one that is gone."""
    if cloned():
        shed()
        until = time.monotonic() + 8
        while time.monotonic() < until:
            if not cloned():
                os._exit(0)
            os.setsid()
        sleep_on(tag)


if __name__ == "__main__":
    reading, _writing = os.pipe()
    globals()[sys.argv[1]](sys.argv[2])
    os.close(_writing)
    os.read(reading, 1)  # until the other one has closed its descriptors
