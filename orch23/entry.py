"""The program: it answers from a snapshot where it can, and else loads what builds."""

import _signal  # type: ignore[import-not-found]  # the C part of `signal`, without its enumerations: they load slowly
import os
import sys

from orch23 import __version__
from orch23.cli.ending import end, open_streams

_ALLOCATED = 200_000
"""So many more containers than before are looked through for cycles: what is loaded has none worth the time."""


_INTERRUPTED = 130
_acting: list[bool] = []
"""Not empty while a command runs, which takes a KeyboardInterrupt. Before and after it, nothing does."""


def run() -> None:
    """Run the command line and end with its code."""
    _signal.signal(_signal.SIGINT, _interrupted)
    open_streams()
    end(main(sys.argv[1:]))


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
        from orch23.snapshot.reply import reply  # noqa: PLC0415 - its imports take their time, and may be interrupted

        answer = reply(argv)
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
