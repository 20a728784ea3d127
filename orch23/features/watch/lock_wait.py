"""Wait until another command releases the build lock, for `watch` and `--wait-lock` (ADR 79)."""

import contextlib
import fcntl
import os
import shlex
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.model.errors import BusyError
from orch23.model.text import format_duration, one_line, visible
from orch23.store.access import PID_BYTES
from orch23.store.safe_files import closing, open_own, read_regular

_STEP_S, _BEAT_S = 0.2, 30.0


def wait_for_lock(console: Console, busy: BusyError, longest_s: float, began_s: float) -> bool:
    """Wait until a build lock is free, and return whether it is, `longest_s` after the command began at most.

    If it is not, the error says how long the command waited.
    """
    shown, due_s = "", 0.0
    with contextlib.suppress(OSError), closing(open_own(Path(busy.lock), os.O_RDWR)) as lock:  # the command reports it
        while not _can_share(lock):
            now_s = time.monotonic()
            pid = os.pread(lock, PID_BYTES, 0).decode("ascii", "replace").strip()
            if pid != shown:
                console.write_err(f"waiting for another build: {visible(_described(pid, lock))}\n")
                shown, due_s = pid, now_s + _BEAT_S
            elif now_s >= due_s and not sys.stderr.isatty():
                console.write_err(
                    f"still waiting for process {visible(pid)}, {format_duration(now_s - began_s)} so far\n"
                )
                due_s = now_s + _BEAT_S
            if now_s >= began_s + longest_s:
                waited = f"; waited {format_duration(longest_s)}"
                busy.diagnostics = tuple(replace(one, message=one.message + waited) for one in busy.diagnostics)
                return False
            time.sleep(min(_STEP_S, began_s + longest_s - now_s))
    return True


def is_locked(path: Path) -> bool:
    """Return whether a build lock is held."""
    with contextlib.suppress(OSError), closing(open_own(path, os.O_RDWR)) as lock:  # there was no build yet
        return not _can_share(lock)
    return False


def _can_share(lock: int) -> bool:
    """Return whether no build holds a lock. Commands that only look at it do not exclude each other."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def _described(pid: str, lock: int) -> str:
    """Return who holds a lock, since when, and with which command."""
    # The holder writes its number when it takes the lock.
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(os.fstat(lock).st_mtime))
    if not pid.isdigit():
        return f"another process holds the lock since {since}"
    command = _command_of(pid, os.fstat(lock))
    return f"process {pid} holds the lock since {since}" + (f": `{one_line(command)}`" if command else "")


def _command_of(pid: str, lock: os.stat_result) -> str:
    """Return the command line of a process that has this file open; empty for one of another container, or user."""
    with contextlib.suppress(OSError):
        if any(os.path.samestat(one.stat(), lock) for one in Path(f"/proc/{pid}/fd").iterdir()):
            data = read_regular(Path(f"/proc/{pid}/cmdline")) or b""
            words = data.decode("utf-8", "replace").rstrip("\0").split("\0")
            start = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == "orch23"), 0)
            return shlex.join([words[start].rpartition("/")[2], *words[start + 1 :]])
    return ""
