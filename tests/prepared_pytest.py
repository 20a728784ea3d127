"""Run the pytest of a step in the process that its supervisor forked: pytest and what it loads are loaded there once.

A supervisor that loads this module first confines a step as ever. Then it runs pytest itself, where it would have
executed the Python of these tests to do so. Python's start and pytest's modules take ten times as long as a few tests.
"""

import atexit
import contextlib
import fcntl
import os
import random
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

_MAIN = f"""\
import sys
sys.path.append(sys.argv[1])
from tests.prepared_pytest import prepare
prepare({sys.executable!r})
from {{program}} import main
main()
"""
_prepared: list[Any] = []  # supervisors that wait for the next module of tests


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Let builds start supervisors that are prepared, and keep these for the next time."""
    from orch23.execute import supervisor  # noqa: PLC0415  in a supervisor it is not what is tested

    supervisor.close_idle_supervisors()
    supervisor._IDLE.extend(_prepared)
    _prepared.clear()
    with patch.object(supervisor, "_MAIN", _MAIN):
        yield
    _prepared.extend(supervisor._IDLE)
    supervisor._IDLE.clear()


def end() -> None:
    """End the supervisors that wait."""
    while _prepared:
        _prepared.pop().close()


# ---- in a supervisor -------------------------------------------------------------------------------


_PATH: list[str] = []
"""Where Python would look for modules."""


def prepare(executable: str) -> None:
    """Load pytest, and let steps that run it with this Python go on in this process."""
    import site  # noqa: PLC0415  only in a supervisor

    sys.executable = executable
    own = sys.path.pop()
    site.main()
    _PATH[:] = sys.path
    sys.path.append(own)
    _load()
    from orch23.execute import supervisor_child  # noqa: PLC0415  only in a supervisor

    execute = supervisor_child._execute

    def _execute(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
        if list(argv[1:4]) == [b"-P", b"-m", b"pytest"] and _found(argv[0], env) == executable:
            _become_pytest(argv, env)
        execute(argv, env)

    supervisor_child._execute = _execute


def _load() -> None:
    import importlib  # noqa: PLC0415  only in a supervisor
    import io  # noqa: PLC0415  likewise
    import json  # noqa: F401, PLC0415  likewise
    import tempfile  # noqa: PLC0415  likewise

    import pytest  # noqa: PLC0415  likewise
    from _pytest import config  # noqa: PLC0415  likewise

    for name in (*config.default_plugins, "assertion.rewrite", "assertion.truncate", "_code.source"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"_pytest.{name}")
    # One test, so that what is loaded late is loaded too.
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        Path(folder, "test_nothing.py").write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
        os.chdir(folder)
        sys.dont_write_bytecode = True
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull, "--rootdir=.", folder])
        os.chdir("/")
    sys.modules.pop("test_nothing", None)


def _found(name: bytes, env: Mapping[bytes, bytes]) -> str:
    for folder in env.get(b"PATH", b"").split(b":"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return os.fsdecode(path)
    return ""


def _become_pytest(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
    _close_what_a_program_would_not_have()
    os.environb.clear()
    os.environb.update(env)
    sys.argv = [os.fsdecode(one) for one in (argv[0], *argv[4:])]
    sys.orig_argv = [os.fsdecode(one) for one in argv]
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(":")), *_PATH]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX") or None
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    random.seed()
    code = 1
    try:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:  # noqa: BLE001  as Python does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code & 255)


def _close_what_a_program_would_not_have() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(int(name))
        except OSError:
            continue
