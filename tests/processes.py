"""The command line as a process of its own, as a user starts it."""

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PROGRAM = "import sys; sys.argv[0] = 'orch23'; from orch23.entry import run; sys.exit(run())"


def run_program(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], program: Path = ROOT, before: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run the command line of the orch23 in a folder, after some code."""
    path = os.pathsep.join(filter(None, (str(program), env.get("PYTHONPATH", ""))))
    code = f"{before}\n{_PROGRAM}"
    environ = {**env, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


class ForkedProgram(subprocess.Popen[bytes]):
    """The command line in a fork of this process: the library of a vendor, which takes seconds to load, is there.

    For stories that are about the end of a build, not about its start. stdout is discarded, stderr is a pipe.
    """

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], library: str, before: Callable[[], object] = object
    ) -> None:
        """Load a library, and start a command; `before` is called in the fork."""
        import_module(library)
        self._before = before
        super().__init__(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _execute_child(self, argv: Sequence[str], *given: Any) -> None:
        """Fork where subprocess would execute a program."""
        # Of the parameters of this private method: the environment, and both ends of the three pipes.
        env, pipes = given[5], given[9:15]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child uses none of them
            self.pid = os.fork()
        if self.pid == 0:
            _become(argv, env, self._before, stdout=pipes[3], stderr=pipes[5])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # of this class of the standard library


def _become(
    argv: Sequence[str], env: Mapping[str, str], before: Callable[[], object], *, stdout: int, stderr: int
) -> None:
    try:
        from orch23.entry import run  # noqa: PLC0415  a test of one folder must not load the whole tool
        from orch23.execute import supervisor  # noqa: PLC0415  likewise

        supervisor._IDLE.clear()  # those of the parent
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process lives
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  likewise
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["orch23", *argv]
        before()
        run()
    except BaseException:  # noqa: BLE001  as Python does
        traceback.print_exc()
    finally:
        os._exit(1)
