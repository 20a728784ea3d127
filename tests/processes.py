"""The command line as a process of its own, as a user starts it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
