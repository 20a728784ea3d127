"""Namespaces that a supervisor prepares: a step sees nothing of the step before, and ends with its supervisor."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.execute import process_tree, supervisor
from orch23.execute.local_executor import LocalExecutor
from orch23.model.action import Action, Completed
from tests.sandbox.probe import Memory, executor
from tests.sandbox.test_daemons import alive
from tests.sandbox.users import ROOT, need

pytestmark = pytest.mark.slow  # sandboxes are started

FOLDERS = "/tmp /var/tmp /dev/shm /run"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LocalExecutor]:
    """Give an executor with supervisors of its own."""
    need("namespaces")
    supervisor.close_idle_supervisors()
    with executor("namespaces", Memory({}), tmp_path / "rooms", ()) as one:
        yield one


def said(running: LocalExecutor, script: str) -> str:
    outcome = running.run(Action(argv=("bash", "-c", script), inputs={}))
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0, outcome.result.output.text
    return outcome.result.output.text


def test_a_step_finds_nothing_of_the_step_before(running: LocalExecutor) -> None:
    look = f"ls -A {FOLDERS}; ipcs -m | grep -c ^0x; set -- /proc/[0-9]*; echo $#; cat /proc/net/unix | wc -l"
    before = said(running, look + "; true")
    leave = f"for one in {FOLDERS}; do echo secret > $one/left; done; ipcmk -M 10; setsid sleep 1000 > /dev/null 2>&1 &"
    said(running, leave)
    assert said(running, look + "; true") == before
    assert len(supervisor._IDLE) == 1, "all had the same supervisor"


def test_a_changed_file_of_settings_is_seen_by_the_next_step(
    running: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its namespaces were prepared with the file as it was before."""
    settings = tmp_path / "settings"
    monkeypatch.setattr("orch23.execute.sandbox.visible_paths.SETTINGS_FILES", (str(settings),))
    for text in ("one", "another"):
        settings.write_text(text)
        assert said(running, f"cat {settings}") == text
        prepared = supervisor._IDLE[-1].pid
        while len(process_tree.descendant_processes(prepared)) < 2:
            pass


BUILDER = """
import sys
from pathlib import Path
from orch23.model.action import Action
from tests.sandbox.probe import Memory, executor
with executor("namespaces", Memory({}), Path(sys.argv[2]), ()) as running:
    running.run(Action(argv=("bash", "-c", "exec sleep " + sys.argv[1]), inputs={}))
"""


def test_a_step_ends_with_its_supervisor_also_if_orch23_does_nothing(tmp_path: Path) -> None:
    need("namespaces")
    tag = f"{100_000 + os.getpid()}.9"
    pause = threading.Event()
    argv = [sys.executable, "-c", BUILDER, tag, str(tmp_path)]
    with subprocess.Popen(argv, env={"PYTHONPATH": str(ROOT)}) as builder:
        try:
            while not alive(f"sleep\0{tag}"):
                assert builder.poll() is None
                pause.wait(0.005)
            builder.send_signal(signal.SIGSTOP)
            supervisors = process_tree._children(builder.pid)
            assert len(supervisors) == 1
            os.kill(supervisors[0], signal.SIGKILL)
            deadline = time.monotonic() + 10
            while alive(f"sleep\0{tag}"):
                assert time.monotonic() < deadline, "it lives on"
                pause.wait(0.005)
        finally:
            builder.kill()


def test_a_supervisor_that_prepares_ends_with_orch23(tmp_path: Path) -> None:
    """No process of it stays, neither of the prepared namespaces nor itself."""
    need("namespaces")
    script = (
        "import sys, os; from pathlib import Path; from tests.sandbox.probe import Memory, executor\n"
        "from orch23.model.action import Action\n"
        "from orch23.execute import process_tree, supervisor\n"
        "with executor('namespaces', Memory({}), Path(sys.argv[1]), ()) as running:\n"
        "    running.run(Action(argv=('true',), inputs={}))\n"
        "    pid = supervisor._IDLE[0].pid\n"
        "    while len(process_tree.descendant_processes(pid)) < 2: pass\n"
        "    print(pid, *process_tree.descendant_processes(pid), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 3, done.stderr
    pause = threading.Event()
    deadline = time.monotonic() + 10
    while any((found := process_tree.process_info(pid)) and found.state not in "ZX" for pid in pids):
        assert time.monotonic() < deadline, "one is left"
        pause.wait(0.005)
