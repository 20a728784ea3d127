import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orch23.model.errors import BusyError, CorruptStateError, ExitCode
from orch23.store.access import hold_build_lock

HOLD = """
import sys
from pathlib import Path
from orch23.store.access import hold_build_lock
with hold_build_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from orch23.model.errors import BusyError
from orch23.store.access import hold_build_lock
inside = Path(sys.argv[1]).with_name("inside")
won = 0
for _ in range(40):
    try:
        with hold_build_lock(Path(sys.argv[1])):
            inside.touch(exist_ok=False)
            won += 1
            inside.unlink()
    except BusyError:
        pass
print(won)
"""


def start(code: str, lock: Path) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=30)
    return out


def test_a_second_build_reports_which_process_holds_the_lock(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path / "lock")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BusyError) as caught, hold_build_lock(tmp_path / "lock"):
        pass
    assert caught.value.exit_code == ExitCode.BUSY
    assert f"process {holder.pid}" in caught.value.diagnostics[0].message
    finish(holder)
    with hold_build_lock(tmp_path / "lock"):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path / "lock")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    os.kill(holder.pid, signal.SIGKILL)
    finish(holder)
    with hold_build_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text().split() == [str(os.getpid())]


def test_a_child_of_the_holder_does_not_hold_the_lock(tmp_path: Path) -> None:
    with hold_build_lock(tmp_path / "lock"):
        child = os.fork()  # it shares every descriptor until it executes something
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with hold_build_lock(tmp_path / "lock"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_lock_is_not_given_to_programs_that_the_holder_starts(tmp_path: Path) -> None:
    with hold_build_lock(tmp_path / "lock"):
        command = ["ls", "-l", "/proc/self/fd"]
        out = subprocess.run(command, capture_output=True, text=True, close_fds=False, check=True)
    assert "/dev/null" in out.stdout or "pipe:" in out.stdout
    assert str(tmp_path) not in out.stdout


@pytest.mark.slow
def test_of_several_processes_one_at_a_time_is_inside(tmp_path: Path) -> None:
    processes = [start(TRY, tmp_path / "lock") for _ in range(4)]
    won = [int(finish(process)) for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert sum(won) > 0  # who is refused is refused because another is inside; how often depends on the machine


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with hold_build_lock(tmp_path / "x" / "lock"):
        with pytest.raises(BusyError), hold_build_lock(tmp_path / "x" / "lock"):
            pass
        with pytest.raises(BusyError), hold_build_lock(tmp_path / "x" / "lock"):
            pass


def test_a_lock_can_be_taken_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), hold_build_lock(tmp_path / "lock"):
        raise RuntimeError
    with hold_build_lock(tmp_path / "lock"):
        pass


def test_an_error_in_a_store_that_was_removed_names_the_store(tmp_path: Path) -> None:
    def remove_and_fail() -> None:
        (tmp_path / ".orch23").rename(tmp_path / "gone")
        raise RuntimeError

    with pytest.raises(FileNotFoundError) as caught, hold_build_lock(tmp_path / ".orch23" / "lock"):
        remove_and_fail()
    assert caught.value.filename == str(tmp_path / ".orch23")


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "pipe"])
def test_anything_but_a_lock_is_reported_and_left(tmp_path: Path, kind: str) -> None:
    lock, outside = tmp_path / ".orch23" / "lock", tmp_path / "outside"
    lock.parent.mkdir()
    if kind == "folder":
        lock.mkdir()
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(outside)
        if kind == "link":
            outside.write_text("mine")
    with pytest.raises(CorruptStateError) as caught, hold_build_lock(lock):
        pytest.fail("it was taken")
    [found] = caught.value.diagnostics
    assert (found.code, caught.value.exit_code) == ("E692", ExitCode.CORRUPT)
    assert str(lock) in (found.hint or "")
    assert os.path.lexists(lock)
    assert not outside.exists() or outside.read_text() == "mine"
