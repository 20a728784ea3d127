"""End the process with a code, without taking apart what is loaded. Imports nothing that takes its time."""

import atexit
import os
import sys


def end(code: int) -> None:
    """End with a code, once all is written and whoever asked to be called at the end has been.

    The rest is left to the system: to take a vendor's library apart takes Python half a second.
    """
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - `contextlib` is not loaded by what answers at once
            stream.flush()
        except (OSError, ValueError):  # whoever read it is gone, or it is closed
            pass
    atexit._run_exitfuncs()  # noqa: SLF001 - what libraries have asked for, such as coverage; there is no public name
    os._exit(code)
