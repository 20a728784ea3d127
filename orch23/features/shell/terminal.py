"""Connect a process in a sandbox with the terminal or the streams of this one, which it never gets itself."""

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Final

from orch23.store.safe_files import write_all

_LOOK_EACH_MS = 100
_REST_WITHIN_S = 5.0

# The sandbox starts a process with its own stdin, stdout and stderr, in a session without a terminal. This program, in
# the sandbox, takes the streams of the shell in their place; job control needs it as the terminal of the session.
TAKE_STREAMS: Final = """\
import fcntl, os, signal, sys, termios
given, argv = [int(one) for one in sys.argv[1:4]], sys.argv[4:]
for number, one in enumerate(given):
    os.dup2(one, number)
for one in {*given} - {0, 1, 2}:
    os.close(one)
if os.isatty(0):
    try:
        os.setsid()
    except PermissionError:
        pass
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for one in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(one, signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
except OSError as problem:
    print(f"{argv[0]}: {problem.strerror}", file=sys.stderr, flush=True)
    os._exit(127 if isinstance(problem, FileNotFoundError) else 126)
"""


def has_terminal() -> bool:
    """Return whether stdin and stdout are terminals."""
    return os.isatty(0) and os.isatty(1)


@contextlib.contextmanager
def relayed_streams() -> Iterator[tuple[int, int, int]]:
    """Yield the descriptors that a process is to have as stdin, stdout and stderr, relayed until the end of the block.

    They are a new terminal if this process has one, else pipes. So the process can neither type into the terminal of
    the user, nor open what stdout is redirected to.
    """
    with contextlib.ExitStack() as stack:
        ended, never = threading.Event(), threading.Event()
        theirs, pairs = _terminal(stack) if has_terminal() else _pipes()
        threads = [
            threading.Thread(target=_relay, args=(*pair, ended if pair[0] == 0 else never), daemon=True)
            for pair in pairs
        ]
        for thread in threads:
            thread.start()
        try:
            yield theirs
        finally:
            # What the process wrote is read up to the end, which comes when no process has the other side.
            for one in {*theirs}:
                os.close(one)
            for thread in threads[1:]:
                thread.join(_REST_WITHIN_S)
            ended.set()


def _pipes() -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
    # Without a stdin, what has its number is another file.
    given = 0 if sys.stdin is not None else os.memfd_create("orch23-stdin")
    (stdin, ours), (out, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
    return (stdin, stdout, stderr), [(given, ours), (out, 1), (errors, 2)]


def _terminal(stack: contextlib.ExitStack) -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
    near, far = os.openpty()
    settings = termios.tcgetattr(0)
    termios.tcsetattr(far, termios.TCSANOW, settings)

    def resize(*_: object) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(near, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))

    def restore() -> None:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(0, termios.TCSADRAIN, settings)

    resize()
    stack.callback(signal.signal, signal.SIGWINCH, signal.signal(signal.SIGWINCH, resize))
    # Every key goes to the other terminal, also Ctrl-C, and what was typed ahead.
    tty.setraw(0, termios.TCSADRAIN)
    stack.callback(restore)
    return (far, far, far), [(0, os.dup(near)), (near, 1)]


def _relay(source: int, target: int, ended: threading.Event) -> None:
    """Copy until the end of the source, or until one side is gone; then close our end."""
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    with contextlib.suppress(OSError):
        while not ended.is_set():
            if waiting.poll(_LOOK_EACH_MS):
                data = os.read(source, 1 << 16)
                if not data:
                    break
                write_all(target, data)
    # A process that writes to a closed pipe ends, as one in a shell would.
    os.close(source if target in (1, 2) else target)
