"""Run the program: answer from a snapshot if possible, else load the command line; exit."""

import _signal  # type: ignore[import-not-found]  # the C part of `signal`, without its enumerations: they load slowly
import atexit
import os
import sys

from orch23 import __version__


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


def exit_process(code: int) -> None:
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


_ALLOCATED = 200_000
"""So many more containers than before are looked through for cycles: what is loaded has none worth the time."""


_INTERRUPTED = 130
_acting: list[bool] = []
"""Not empty while a command runs, which takes a KeyboardInterrupt. Before and after it, nothing does."""


def run() -> None:
    """Run the command line and end with its code."""
    _signal.signal(_signal.SIGINT, _interrupted)
    open_streams()
    exit_process(main(sys.argv[1:]))


def _interrupted(signum: int, frame: object) -> None:
    """End at once while the program is loaded or ends: no file is being written then."""
    if not _acting:
        os._exit(_INTERRUPTED)
    _signal.default_int_handler(signum, frame)


def main(argv: list[str]) -> int:
    """Run a command line and return its exit code; never leaves by an exception."""
    if argv == ["--version"]:
        return _version()
    try:
        from orch23.snapshot.fast_path import answer_from_snapshot  # noqa: PLC0415 - its imports take their time, and may be interrupted

        answer = answer_from_snapshot(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    if isinstance(answer, int):
        return answer
    import gc  # noqa: PLC0415 - nothing above makes enough to be collected

    gc.set_threshold(_ALLOCATED)
    from orch23.cli.main import main as act  # noqa: PLC0415 - heavy

    _acting.append(True)
    try:
        return act(argv, answer)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        _acting.clear()


def _version() -> int:
    try:
        sys.stdout.write(f"orch23 {__version__}\n")
        sys.stdout.flush()
    except OSError:
        from orch23.cli.main import main as act  # noqa: PLC0415 - it reports what the machine refused

        return act(["--version"])
    return 0
