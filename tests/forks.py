"""The child process that renders templates, as a fork of this one, in which copier is loaded already."""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Never

_CRASHED = 1
_INTERRUPTED = 130


def run_forked(
    work: Callable[[], int | None], *, cwd: str | Path, env: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    """Do some work in a fork with this environment and without stdin; return its exit code, stdout and stderr.

    pytest's limit of time ends a test whose fork hangs.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # this process may have threads, the fork needs none
            pid = os.fork()
        if pid == 0:
            _be_a_process(work, cwd, env, out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(status), out.read(), err.read())


def _be_a_process(work: Callable[[], int | None], cwd: str | Path, env: Mapping[str, str], out: int, err: int) -> Never:
    code: int | None = _CRASHED
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        tempfile.tempdir = None
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  it ends with them
        code = work()
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BaseException:  # noqa: BLE001  whoever waits for the fork sees it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


# ---- copier ----------------------------------------------------------------------------------------


class Subprocesses:
    """Stands for the module `subprocess` where templates are rendered: loading copier takes longer than rendering."""

    DEVNULL = subprocess.DEVNULL
    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(argv: Sequence[str], **given: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run a program; copier in a fork, unless it asks questions."""
        if list(argv[:4]) != [sys.executable, "-P", "-W", "ignore"] or given["stdin"] is None:
            return subprocess.run(argv, **given)  # noqa: PLW1510  `check` is given
        import copier  # noqa: F401, PLC0415  only what renders templates loads it, and then once

        return run_forked(lambda: _render(argv[4:], given["env"]), cwd=given["cwd"], env=given["env"])


def _render(argv: Sequence[str], env: Mapping[str, str]) -> None:
    from plumbum import local  # noqa: PLC0415  of copier, which starts git with the variables that this read once

    local.env.clear()
    local.env.update(env)
    warnings.simplefilter("ignore")
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")
