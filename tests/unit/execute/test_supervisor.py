"""The supervisor of steps: what it starts, what it ends, and what becomes of it when one of the two is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orch23.execute import process_tree, supervisor
from orch23.execute.process import ProcessOutcome, run_process
from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.landlock import confinement
from orch23.execute.supervisor import ProcessSpec
from tests.sandbox.users import ROOT, need

EVERYTHING = [("/", landlock.READ_RIGHTS | landlock.WRITE_RIGHTS)]


@pytest.fixture(autouse=True)
def _own_supervisors() -> Iterator[None]:
    need("landlock")
    process_tree.become_subreaper()
    yield
    supervisor.close_idle_supervisors()


def run(
    tmp_path: Path, *argv: str, timeout_s: float = 30, cancel: threading.Event | None = None, **more: Any
) -> ProcessOutcome:
    with landlock.ruleset(EVERYTHING) as rules:
        fields: dict[str, Any] = {"cwd": tmp_path, "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}
        process = ProcessSpec(argv=argv, confinement=confinement(rules, network=True), **{**fields, **more})
        return run_process(
            process, timeout_s=timeout_s, cancel=cancel or threading.Event(), log=tmp_path / "output.log"
        )


def states(pids: list[int]) -> list[str]:
    """Return the states of those processes that are there and have not ended."""
    found = []
    for pid in pids:
        kin = process_tree.process_info(pid)
        if kin is not None and kin.state not in "ZX":
            found.append(kin.state)
    return found


def test_exit_codes_output_and_environment_are_those_of_the_step(tmp_path: Path) -> None:
    end = run(
        tmp_path, "bash", "-c", "echo $A; echo err >&2; pwd; cat; exit 7", env={"PATH": "/usr/bin:/bin", "A": "ä\udcff"}
    )
    assert (end.exit_code, end.head) == (7, os.fsencode(f"ä\udcff\nerr\n{tmp_path}\n"))
    assert run(tmp_path, "bash", "-c", "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_a_step_has_the_descriptors_that_it_is_given_by_their_numbers_and_no_others(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"through\n")
        end = run(
            tmp_path,
            "bash",
            "-c",
            f"head -n1 <&{reading}; ls /proc/self/fd | tr '\\n' ' '",
            pass_fds=(reading, writing),
        )
    finally:
        os.close(reading)
        os.close(writing)
    lines = end.head.decode().splitlines()
    assert lines[0] == "through"
    assert set(lines[1].split()) <= {"0", "1", "2", "3", str(reading), str(writing), str(max(reading, writing) + 1)}


@pytest.mark.parametrize(("program", "error"), [("no-such-program", FileNotFoundError), ("./text", PermissionError)])
def test_a_program_that_cannot_be_run_is_an_error_and_the_next_one_runs(
    tmp_path: Path, program: str, error: type[OSError]
) -> None:
    (tmp_path / "text").write_text("x")
    with pytest.raises(error):
        run(tmp_path, program)
    assert run(tmp_path, "true").exit_code == 0


def test_one_supervisor_serves_one_step_after_the_other(tmp_path: Path) -> None:
    first, second = (run(tmp_path, "bash", "-c", "echo $PPID").head for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_a_closed_supervisor_leaves_no_child(tmp_path: Path) -> None:
    supervisor.close_idle_supervisors()  # of earlier tests: this run would take one of them
    before = set(process_tree.descendant_processes(os.getpid()))
    run(tmp_path, "true")
    assert set(process_tree.descendant_processes(os.getpid())) - before
    # The process that waits for the next step ends with it, and would be ours: one zombie for each build of a watch.
    supervisor.close_idle_supervisors()
    assert set(process_tree.descendant_processes(os.getpid())) <= before


def test_limits_hold_from_the_first_moment(tmp_path: Path) -> None:
    end = run(tmp_path, "bash", "-c", "ulimit -Hc; ulimit -Hf")
    core, size = end.head.decode().split()
    assert int(core) == 0
    assert int(size) < 4 << 20  # in KiB


@pytest.mark.slow
def test_a_supervisor_that_is_killed_is_noticed_and_its_step_is_ended(tmp_path: Path) -> None:
    """Before Linux 6.12 a step may send it signals: Landlock has no say in them there."""

    class Killed(threading.Event):
        def is_set(self) -> bool:
            path = tmp_path / "daemon"
            if path.exists() and path.read_text():
                os.kill(int((tmp_path / "supervisor").read_text()), signal.SIGKILL)
                return True
            return False

    script = "echo $PPID > supervisor; setsid sleep 600 >/dev/null 2>&1 & echo $! > daemon; wait"
    end = run(tmp_path, "bash", "-c", script, cancel=Killed())
    assert end.lost
    assert end.exit_code == 128 + signal.SIGKILL
    assert states([int((tmp_path / name).read_text()) for name in ("supervisor", "daemon")]) == []
    assert run(tmp_path, "true").exit_code == 0


BUILDER = """
import sys, threading
from pathlib import Path
from orch23.execute.process import run_process
from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.landlock import confinement
from orch23.execute.supervisor import ProcessSpec
with landlock.ruleset([("/", landlock.READ_RIGHTS | landlock.WRITE_RIGHTS)]) as rules:
    script = "setsid sleep 600 >/dev/null 2>&1 & echo $PPID $$ $! > pids.new; mv pids.new pids; trap '' TERM; wait"
    step = ProcessSpec(argv=("bash", "-c", script), cwd=Path(sys.argv[1]), env={"PATH": "/usr/bin:/bin"},
                       confinement=confinement(rules, network=True))
    run_process(step, timeout_s=600, cancel=threading.Event(), log=Path(sys.argv[1], "log"))
"""


@pytest.mark.slow
def test_when_orch23_is_killed_its_steps_end(tmp_path: Path) -> None:
    pause = threading.Event()
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", BUILDER, str(tmp_path)], env=environ) as builder:
        while not (tmp_path / "pids").exists():
            assert builder.poll() is None
            pause.wait(0.005)
        builder.kill()
    pids = list(map(int, (tmp_path / "pids").read_text().split()))
    deadline = time.monotonic() + 20
    while states(pids):
        assert time.monotonic() < deadline, states(pids)
        pause.wait(0.005)


def test_processes_that_a_killed_supervisor_left_are_reported_although_their_leader_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reaped(tree: process_tree.ProcessTree) -> tuple[int, ...]:
        tree.status = -signal.SIGKILL
        return (7,)

    monkeypatch.setattr(process_tree, "kill_tree", reaped)
    assert supervisor._kill_orphans(process_tree.ProcessTree(leader=os.getpid(), marker="", limit=1)) == (7,)
