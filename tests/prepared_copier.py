"""Render the templates of tests in processes forked from one that has loaded copier, which takes ten times as long.

What renders is the child of orch23 itself, with the arguments, the folder and the environment that it would get.
"""

import contextlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

_WORDS = 4  # of Python's command before the program: python -P -W ignore
_prepared: "list[subprocess.Popen[bytes]]" = []  # the process that has loaded copier, once a test needs it


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Let `render_templates` fork; a question at a terminal gets a process of its own as ever."""
    from orch23.execute import copier_runner  # noqa: PLC0415  a test of one folder must not load the whole tool

    class Forking:
        """What the module uses of subprocess."""

        DEVNULL, PIPE, TimeoutExpired = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired

        @staticmethod
        def run(argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[bytes]":
            if str(copier_runner._CHILD) not in argv or options.get("stdin") is None:
                return subprocess.run(argv, **options)  # noqa: PLW1510  the caller says
            assert argv[:_WORDS] == [sys.executable, "-P", "-W", "ignore"]
            return _forked(argv, options["cwd"], options["env"])

    with patch.object(copier_runner, "subprocess", Forking):
        yield


def _forked(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[bytes]":
    if not _prepared:
        command = [sys.executable, "-P", "-W", "ignore", __file__]
        _prepared.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    asked, answered = _prepared[0].stdin, _prepared[0].stdout
    assert asked is not None
    assert answered is not None
    errors = cwd / "errors"
    call = {"argv": argv[_WORDS:], "cwd": str(cwd), "env": dict(env), "errors": str(errors)}
    asked.write(json.dumps(call).encode() + b"\n")
    asked.flush()
    code = int(answered.readline())
    said = errors.read_bytes()
    errors.unlink()
    return subprocess.CompletedProcess(argv, code, b"", said)


def end() -> None:
    """End the process that has loaded copier."""
    while _prepared:
        _prepared[0].communicate()  # it ends with its input
        _prepared.pop()


# ---- in the process that has loaded copier -----------------------------------------------------------


def _serve() -> None:
    import copier  # noqa: F401, PLC0415  only here

    for line in sys.stdin.buffer:
        call = json.loads(line)
        if (child := os.fork()) == 0:
            _become(call)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(call: Mapping[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(os.open(call["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    code = 1
    try:
        from plumbum import local  # noqa: PLC0415  only here

        os.environ.clear()
        os.environ.update(call["env"])
        local.env.clear()
        local.env.update(call["env"])
        os.chdir(call["cwd"])
        sys.argv = call["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
