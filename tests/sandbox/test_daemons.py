"""A step is over when it is over: whatever kind of daemon it leaves, in every tier, is gone with it."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.daemons import KINDS
from tests.sandbox.probe import Memory, executor
from tests.sandbox.users import ROOT, TIERS, need

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


@pytest.mark.stride(5)
@pytest.mark.slow  # a dozen steps each
@pytest.mark.parametrize("tier", [*TIERS, "none"])
def test_no_daemon_is_left(tier: str, tmp_path: Path) -> None:
    need(tier)
    memory = Memory({"daemons.py": SCRIPT})
    seen: dict[str, bool] = {}
    left: dict[str, list[int]] = {}
    with executor(tier, memory, tmp_path / "rooms", ()) as running, ThreadPoolExecutor(1) as threads:
        for number, kind in enumerate(sorted(KINDS)):
            tag = f"{100_000 + os.getpid()}.{number:03d}{tier_number(tier)}"
            action = Action(
                argv=("python", "daemons.py", kind, tag, "1"),
                inputs={"daemons.py": FileEntry(digest_bytes(SCRIPT))},
                scratch=("seen",),
            )
            future = threads.submit(running.run, action)
            watcher = threading.Event()
            while not future.done():
                seen[kind] = seen.get(kind, False) or len(alive(f"sleep\0{tag}")) > 0
                if seen[kind]:
                    for work in (tmp_path / "rooms").glob("*/work"):
                        with contextlib.suppress(FileNotFoundError):
                            (work / "seen").touch()
                watcher.wait(0.02)
            outcome = future.result()
            assert isinstance(outcome, Completed), outcome
            assert outcome.result.exit_code == 0, outcome.result.output.text
            left[kind] = alive(tag)
    assert {kind: pids for kind, pids in left.items() if pids} == {}
    assert sum(seen.values()) >= 10, seen  # they were alive at some moment: the test sees daemons where there are some


WITH_NAMESPACES = ["bubblewrap", "namespaces"]


def tier_number(tier: str) -> int:
    return [*TIERS, "none"].index(tier)


_BUILDER = """
import sys, tempfile
from pathlib import Path
from orch23.model.action import Action
from tests.sandbox.probe import Memory, executor
with tempfile.TemporaryDirectory() as folder, executor(sys.argv[2], Memory({}), Path(folder), ()) as running:
    script = "exec sleep " + sys.argv[1]
    running.run(Action(argv=("bash", "-c", script), inputs={}))
"""


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("tier", WITH_NAMESPACES)
def test_a_build_that_is_killed_takes_its_steps_with_it(tier: str) -> None:
    """No one is left to sweep: the kernel ends the namespace with the process that made it."""
    need(tier)
    tag = f"{100_000 + os.getpid()}.777"
    with subprocess.Popen([sys.executable, "-c", _BUILDER, tag, tier], env={"PYTHONPATH": str(ROOT)}) as builder:
        pause = threading.Event()
        while not alive(f"sleep\0{tag}"):
            assert builder.poll() is None
            pause.wait(0.005)
        builder.kill()
    deadline = time.monotonic() + 10
    while alive(f"sleep\0{tag}"):
        assert time.monotonic() < deadline, "it lives on"
        pause.wait(0.005)


_KILLS = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 6
_FIRST_MOMENTS_S = 0.03
_REPORTED_BUILDER = """
import os, subprocess, sys
from pathlib import Path
from orch23.execute import supervisor_child
from orch23.model.action import Action
from tests.sandbox.probe import Memory, executor
class Told(subprocess.Popen):
    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        if sys.argv[1] in words[0]:
            os.write(1, b"started")
subprocess.Popen = Told
send_message = supervisor_child.send_message
def send(control, message, descriptors=()):
    send_message(control, message, descriptors)
    if descriptors:
        os.write(1, b"started")
supervisor_child.send_message = send
with executor(sys.argv[3], Memory({}), Path(sys.argv[2]), ()) as running:
    running.run(Action(argv=("sleep", sys.argv[1]), inputs={}))
"""


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tier", WITH_NAMESPACES)
def test_a_build_that_is_killed_in_the_first_moments_of_a_step_leaves_no_step(tier: str, tmp_path: Path) -> None:
    """bwrap ties itself to its parent only after it has started the step, which therefore waits for that.

    A bwrap whose own first process was killed before may wait for ever, without a step: the next build ends it. A
    supervisor ends its step when its socket is closed.
    """
    need(tier)
    pause = threading.Event()
    left: list[int] = []
    rooms = tmp_path / "rooms"
    for number in range(_KILLS):
        tag = f"{100_000 + os.getpid()}.5{number:03d}"
        argv = [sys.executable, "-c", _REPORTED_BUILDER, tag, str(rooms), tier]
        with subprocess.Popen(argv, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as builder:
            assert builder.stdout is not None
            assert builder.stdout.read(7) == b"started"
            pause.wait(_FIRST_MOMENTS_S * number / _KILLS)
            builder.kill()
        left += that_stay(steps, tag)
        SandboxDirs(rooms, Memory({})).sweep()
        left += that_stay(alive, tag)
    assert left == []


def that_stay(look: Callable[[str], list[int]], tag: str) -> list[int]:
    """Return what is still there after 20 s; nothing once three looks saw none: exec hides one for a moment."""
    deadline = time.monotonic() + 20
    empty = 0
    while empty < 3 and time.monotonic() < deadline:
        empty = 0 if look(tag) else empty + 1
        time.sleep(0.01)
    return look(tag) if empty < 3 else []


def steps(tag: str) -> list[int]:
    """Return the processes of a tag that are no bwrap."""
    found = []
    for pid in alive(tag):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # they end with each other
            if Path(f"/proc/{pid}/comm").read_text() != "bwrap\n":
                found.append(pid)
    return found
