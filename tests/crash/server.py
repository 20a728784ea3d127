"""Run builds in forked children, of which the shim kills, cuts short or fails one call. Started with it preloaded.

Reads one JSON object a line: root, argv, at, mode, error, labels, weaken. Answers with the exit status and with what
was printed.
"""

import ctypes
import importlib
import json
import os
import sys
import traceback

from orch23.cli import build_run
from orch23.cli import main as cli
from orch23.execute.launch import TierChoice

MODES = ("count", "kill", "half", "fail_once", "fail_on", "power")
PRELOADED = (
    "orch23.cli.commands.building",
    "orch23.cli.actions.build",
    "orch23.cli.build_run",
    "orch23.cli.actions.plan",
    "orch23.cli.opening",
    "orch23.engine.build",
    "jinja2.sandbox",
    "networkx",
    "jsonschema",
    "genai_prices",
    "yaml",
    "orch23.report.text",
    "hypothesis",
)
_CRASHED_BY_ITSELF = 99


def serve() -> None:
    """Answer until stdin ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    os.environ.clear()
    os.environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    setattr(build_run, "_best_tier", lambda: TierChoice(None))  # noqa: B010 - not exported; steps note outside of their sandbox that they ran
    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()  # a pipe is no file: what is printed always arrives
        child = os.fork()
        if child == 0:
            os.close(reading)
            _build(asked, shim, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as printed:
            text = printed.read().decode("utf-8", "replace")
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{json.dumps([os.waitstatus_to_exitcode(status), text])}\n")
        sys.stdout.flush()


def _build(asked: dict[str, str | int | list[str]], shim: ctypes.CDLL, out: int) -> None:
    code = _CRASHED_BY_ITSELF
    try:
        root = str(asked["root"])
        os.chdir(root)
        os.environ.update({"HOME": f"{root}-home", "PATH": os.defpath, "LANG": "C.UTF-8", "ORCH23_TRUST": "1"})
        os.dup2(out, 1)
        os.dup2(out, 2)
        labels = os.open(str(asked["labels"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if asked["weaken"]:
            importlib.import_module("tests.crash.weakened").WEAKENED[str(asked["weaken"])]()
        mode, at, error = MODES.index(str(asked["mode"])), int(str(asked["at"])), int(str(asked["error"]))
        shim.crash_arm(ctypes.c_long(at), mode, error, root.encode(), labels)
        code = cli.main(["-C", root, *[str(one) for one in asked["argv"]]])  # type: ignore[union-attr]  # JSON
        shim.crash_disarm()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - told to the test that asked
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
