"""A step is over when it is over: whatever kind of daemon it leaves, in every tier, is gone with it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.daemons import KINDS
from tests.sandbox.probe import Memory, executor
from tests.sandbox.users import ROOT, need

SCRIPT = Path(__file__).with_name("daemons.py").read_bytes()


def alive(tag: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if tag.encode() in words:
                found.append(int(name))
    return found


def test_there_are_at_least_ten_kinds() -> None:
    assert len(KINDS) >= 10


@pytest.mark.slow  # a dozen steps each
@pytest.mark.parametrize("tier", ["bubblewrap", "landlock", "none"])
def test_no_daemon_is_left(tier: str, tmp_path: Path) -> None:
    need(tier)
    memory = Memory({"daemons.py": SCRIPT})
    seen: dict[str, bool] = {}
    left: dict[str, list[int]] = {}
    with executor(tier, memory, tmp_path / "rooms", ()) as running:
        for number, kind in enumerate(sorted(KINDS)):
            tag = f"{100_000 + os.getpid()}.{number:03d}{tier_number(tier)}"
            action = Action(
                argv=("python", "daemons.py", kind, tag),
                inputs={"daemons.py": FileEntry(digest_bytes(SCRIPT))},
                interpreter=sys.executable,
            )
            future = running.submit(action)
            watcher = threading.Event()
            while not future.done():
                seen[kind] = seen.get(kind, False) or len(alive(f"sleep\0{tag}")) > 0
                watcher.wait(0.002)
            outcome = future.result()
            assert isinstance(outcome, Completed), outcome
            assert outcome.result.exit_code == 0, outcome.result.output.text
            left[kind] = alive(tag)
    assert {kind: pids for kind, pids in left.items() if pids} == {}
    assert sum(seen.values()) >= 5, seen  # most were alive at some moment: the test sees daemons where there are some


def tier_number(tier: str) -> int:
    return ["bubblewrap", "landlock", "none"].index(tier)


_BUILDER = """
import sys, tempfile
from pathlib import Path
from orch23.model.action import Action
from tests.sandbox.probe import Memory, executor
with tempfile.TemporaryDirectory() as folder, executor("bubblewrap", Memory({}), Path(folder), ()) as running:
    script = "sleep 0.5; exec sleep " + sys.argv[1]
    running.submit(Action(argv=("bash", "-c", script), inputs={}, interpreter=sys.executable)).result()
"""


def test_a_build_that_is_killed_takes_its_steps_with_it_in_bubblewrap() -> None:
    """Nobody is left to sweep: the kernel ends the namespace with the process that made it.

    The step takes its time first: bwrap ties itself to its parent in the moment after it has started the step.
    """
    need("bubblewrap")
    tag = f"{100_000 + os.getpid()}.777"
    with subprocess.Popen([sys.executable, "-c", _BUILDER, tag], env={"PYTHONPATH": str(ROOT)}) as builder:
        pause = threading.Event()
        while not alive(f"sleep\0{tag}"):
            assert builder.poll() is None
            pause.wait(0.005)
        builder.kill()
    deadline = time.monotonic() + 10
    while alive(f"sleep\0{tag}"):
        assert time.monotonic() < deadline, "it lives on"
        pause.wait(0.005)
