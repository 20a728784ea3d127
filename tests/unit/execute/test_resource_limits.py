"""What a step takes of the machine while it runs is noticed, and is the end of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.execute import resource_limits
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.process_tree import read_proc
from orch23.execute.resource_limits import ResourceMonitor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, ActionResult, Completed, StepLimits
from tests.doubles import memory

pytestmark = pytest.mark.slow  # processes run

LIMITS = StepLimits(disk=8 << 20, files=500, processes=20, memory=256 << 20)


class Nothing:
    """A source that has nothing."""

    def copy_into(self, *_):
        return True


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    one = LocalExecutor(sandbox_dirs=SandboxDirs(tmp_path, Nothing()), contents=memory(), workers=1)
    yield one
    one.close()


def run(executor: LocalExecutor, script: str, limits: StepLimits = LIMITS) -> ActionResult:
    command = ("bash", "-c", script)
    action = Action(argv=command, inputs={}, timeout_s=30, scratch=("*",), limits=limits)
    outcome = executor.run(action)
    assert isinstance(outcome, Completed), outcome
    return outcome.result


@pytest.mark.parametrize("where", ["$PWD", "$TMPDIR", "$HOME"])
def test_a_step_that_fills_the_disk_is_stopped(executor: LocalExecutor, where: str) -> None:
    result = run(executor, f"i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero > {where}/$i; sleep 0.01; done")
    assert [(d.code, d.message) for d in result.violations] == [
        ("E620", "killed: its sandbox directory held more than 8388608 bytes (`limits.disk`)")
    ]
    assert result.exit_code == 128 + 9


def test_too_many_files_are_noticed_though_they_are_empty(executor: LocalExecutor) -> None:
    result = run(executor, "i=0; while :; do : > $TMPDIR/$((i+=1)); done")
    assert [d.message for d in result.violations] == [
        "killed: its sandbox directory held more than 500 files (`limits.files`)"
    ]


def test_too_many_processes_are_the_end_of_all_of_them(executor: LocalExecutor) -> None:
    result = run(executor, "for i in $(seq 40); do sleep 77.125 & done; wait")
    assert [d.message for d in result.violations] == [
        "killed: it had more than 20 processes at once (`limits.processes`)"
    ]
    for name in os.listdir("/proc"):
        if name.isdigit() and Path(f"/proc/{name}").exists():
            try:
                assert Path(f"/proc/{name}/cmdline").read_bytes() != b"sleep\x0077.125\0"
            except (FileNotFoundError, ProcessLookupError):
                continue


def test_a_step_that_prints_all_the_time_is_watched_too(executor: LocalExecutor) -> None:
    result = run(executor, "for i in $(seq 40); do sleep 77.125 & done; while :; do echo x; sleep 0.01; done")
    assert [d.code for d in result.violations] == ["E620"]


def test_a_directory_is_not_measured_while_no_space_is_taken(tmp_path: Path, monkeypatch) -> None:
    growth = ResourceMonitor(tmp_path, StepLimits())
    monkeypatch.setattr(os, "scandir", None)
    assert growth.exceeded_limit([os.getpid()]) is None


def test_a_directory_too_deep_to_be_measured_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    monkeypatch.setattr("orch23.execute.resource_limits._STEP_ENTRIES", -(1 << 60))
    growth = ResourceMonitor(tmp_path, StepLimits())
    assert growth.exceeded_limit([]) == "its folders are nested too deep to be measured"


def test_only_the_sandbox_directory_is_measured_when_a_folder_becomes_a_link(tmp_path: Path, monkeypatch) -> None:
    sandbox_dir, outside = tmp_path / "room", tmp_path / "outside"
    (sandbox_dir / "sub").mkdir(parents=True)
    outside.mkdir()
    for number in range(10):
        (outside / str(number)).touch()
    monkeypatch.setattr("orch23.execute.resource_limits._STEP_ENTRIES", -(1 << 60))
    growth = ResourceMonitor(sandbox_dir, StepLimits(files=5))
    look = os.scandir
    looked: list[object] = []

    def swap_before_the_second_look(folder):
        if looked:
            (sandbox_dir / "sub").rename(sandbox_dir / "aside")
            (sandbox_dir / "sub").symlink_to(outside)
        looked.append(folder)
        return look(folder)

    monkeypatch.setattr(os, "scandir", swap_before_the_second_look)
    assert growth.exceeded_limit([]) is None
    assert len(looked) == 2


HOLD = "x = bytearray(400 << 20); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(60)"
MEMORY = [("E620", "killed: it used more than 268435456 bytes of memory (`limits.memory`)")]


def codes(result: ActionResult) -> list[tuple[str, str]]:
    return [(found.code, found.message) for found in result.violations]


def test_a_step_that_uses_too_much_memory_is_killed(executor: LocalExecutor) -> None:
    result = run(executor, f'exec {sys.executable} -c "{HOLD}"')
    assert codes(result) == MEMORY
    assert result.exit_code == 128 + 9


def test_the_memory_of_all_processes_counts_together(executor: LocalExecutor) -> None:
    half = HOLD.replace("400", "160")
    assert codes(run(executor, f'for i in 1 2; do {sys.executable} -c "{half}" & done; wait')) == MEMORY


def test_a_process_that_left_its_parents_counts_too(executor: LocalExecutor) -> None:
    """One in a session of its own, without the environment, whose parents have ended: a child of the build."""
    script = f'(env -i setsid {sys.executable} -c "{HOLD}" < /dev/null &); sleep 60'
    assert codes(run(executor, script)) == MEMORY


def test_a_page_that_processes_share_counts_once(executor: LocalExecutor) -> None:
    shared = HOLD.replace("400", "180").replace("import time", "import os, time; os.fork(); os.fork()")
    result = run(executor, f'exec {sys.executable} -c "{shared.replace("sleep(60)", "sleep(1)")}"')
    assert codes(result) == []
    assert result.exit_code == 0


def test_shared_pages_count_once_though_a_process_ends_between_the_readings(tmp_path: Path, monkeypatch) -> None:
    """Each of three processes counts a third of the pages, then half of them, then all: more than there are."""
    script = HOLD.replace("400", "180").replace("import time", "import os, time; os.fork() and os.fork()")
    script = script.replace("time.sleep", "print(flush=True); time.sleep")
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            for _ in range(3):
                parent.stdout.readline()
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            assert len(children) == 2
            read = read_proc

            def read_and_kill(pid: int, name: str) -> bytes:
                data = read(pid, name)
                if name == "smaps_rollup" and pid != parent.pid:
                    os.kill(pid, signal.SIGKILL)
                    while read(pid, "statm") != b"0 0 0 0 0 0 0\n":
                        pass
                return data

            monkeypatch.setattr(resource_limits, "read_proc", read_and_kill)
            assert not resource_limits._use_more_memory([*map(int, children), parent.pid], LIMITS.memory)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_memory_that_counts_twice_for_a_moment_is_not_the_end_of_a_step(tmp_path: Path, monkeypatch) -> None:
    """As with a process between vfork and exec, which has the memory of its parent."""
    growth = ResourceMonitor(tmp_path, LIMITS)
    used_bytes = iter([200, 300, 200, 300, 300])
    monkeypatch.setattr(resource_limits, "_resident_bytes", lambda _: 300 << 20)
    monkeypatch.setattr(resource_limits, "_shared_bytes", lambda _: next(used_bytes) << 20)
    found = [growth.exceeded_limit([os.getpid()]) for _ in range(5)]
    assert found == [None] * 4 + ["it used more than 268435456 bytes of memory (`limits.memory`)"]


def test_the_address_space_is_limited_only_on_request(executor: LocalExecutor) -> None:
    """It is set from outside, just after the score by which the kernel chooses whom it kills."""
    script = "until grep -qx 1000 /proc/self/oom_score_adj; do :; done; ulimit -v"
    assert run(executor, script).output.text == "unlimited\n"
    script = "until [ $(ulimit -v) != unlimited ]; do :; done; ulimit -v"
    assert run(executor, script, StepLimits(address_space=1 << 30)).output.text == "1048576\n"
