"""The program: it answers from a snapshot where it can, and else loads what builds."""

import sys

from orch23 import __version__
from orch23.cli.ending import end


def run() -> None:
    """Run the command line and end with its code."""
    end(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run a command line and return its exit code; never leaves by an exception."""
    from orch23.snapshot.reply import reply  # noqa: PLC0415 - its imports take their time, and may be interrupted

    if argv == ["--version"]:
        sys.stdout.write(f"orch23 {__version__}\n")
        return 0
    try:
        answer = reply(argv)
    except KeyboardInterrupt:
        return 130
    if isinstance(answer, int):
        return answer
    from orch23.cli.main import main as act  # noqa: PLC0415 - heavy

    return act(argv, answer)
