"""As whom, and with which interpreter, a script of these tests can be run: as whoever runs them, and as nobody."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.bubblewrap import BWRAP_PATHS
from orch23.execute.sandbox.tier_selection import tier_fault
from tests.sandbox.probe import launcher

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
OTHER_GROUP = 12345
TIERS = ("bubblewrap", "namespaces", "landlock")


def need(tier: str) -> None:
    """Skip where this machine has no such tier."""
    if tier == "bubblewrap" and not any(Path(name).exists() for name in BWRAP_PATHS):
        pytest.skip("bubblewrap is not installed")
    if tier == "landlock" and landlock.abi() < landlock.MIN_ABI:
        pytest.skip(f"Landlock's interface is version {landlock.abi()}")
    reason = tier_fault(launcher(tier)) if tier != "none" else None
    if tier in ("bubblewrap", "namespaces") and reason is not None:
        pytest.skip(f"{tier} does not work here: {reason}")
    assert reason is None, reason


def run_as(user: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, as whoever runs the tests (`self`) or as `nobody`; skip where that cannot be."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}
    command = [sys.executable, *arguments]
    if user == "nobody":
        if os.getuid() != 0:
            pytest.skip("only root can become another user")
        command = [interpreter_for_everybody(), *arguments]
    other = user == "nobody"
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        user=NOBODY if other else None,
        group=NOBODY if other else None,
        extra_groups=[OTHER_GROUP] if other else None,
    )


def interpreter_for_everybody() -> str:
    """Return an interpreter that nobody may start and that finds orch23; skip where there is none."""
    script = "import sys; assert sys.version_info >= (3, 11); import orch23.execute.local_executor"
    for name in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        if name is None:
            continue
        try:
            done = subprocess.run(
                [name, "-B", "-c", script],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                env={"PYTHONPATH": str(ROOT)},
                cwd="/",
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return name
    pytest.skip("nobody can start no interpreter of 3.11 or newer, or cannot read this project")
