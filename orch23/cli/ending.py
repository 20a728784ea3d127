"""Begin and end the process: its streams, its code. Imports nothing that takes its time."""

import atexit
import os
import sys


def open_streams() -> None:
    """Open each standard stream that was closed before the start, on `/dev/null`.

    Python has none for it, and the next file that is opened would get its number: what is printed would go there.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise


def end(code: int) -> None:
    """End with a code, once whoever asked to be called at the end has been, and all is written.

    The rest is left to the system: to take a vendor's library apart takes Python half a second.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what libraries have asked for, such as coverage; there is no public name
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - `contextlib` is not loaded by what answers at once
            stream.flush()
        except (OSError, ValueError):  # whoever read it is gone, or it is closed
            pass
    os._exit(code)
