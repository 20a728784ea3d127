"""What a step takes of the machine while it runs is noticed, and is the end of it."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from array import array
from collections import Counter
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

TAKEN = StepLimits(disk=8 << 20)
DISK = [("E620", "killed: its sandbox directory held more than 8388608 bytes (`limits.disk`)")]
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
    assert growth.exceeded_limit([os.getpid()]) == "its folders are nested too deep to be measured"


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
    looked.clear()
    assert growth.exceeded_limit([os.getpid()]) is None
    assert len(looked) == 2


WRITE = "f.write(bytes(12 << 20)); f.flush(); time.sleep(60)"
REMOVED = f"f = open('big', 'wb'); os.unlink('big'); {WRITE}"
MAPPED = """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
f = open("big", "wb+"); f.truncate(12 << 20); os.unlink("big")
at = libc.mmap(None, 12 << 20, 3, 1, f.fileno(), 0); f.close()
ctypes.memset(at, 1, 12 << 20); time.sleep(60)
"""
TAKING = {
    "a removed file": REMOVED,
    "a file that never had a name": f"f = open(os.open('.', os.O_TMPFILE | os.O_RDWR), 'wb'); {WRITE}",
    "a removed file of a daemon": f"os.fork() or os.setsid() or os.fork() or exec({REMOVED!r}); time.sleep(60)",
    "a removed file of a daemon after the end of its parents": f"os.fork() or os.setsid() or exec({REMOVED!r})",
    "a removed file of a thread with its own descriptors": "threading.Thread(target=lambda: "
    f"ctypes.CDLL(None).unshare(0x400) or exec({REMOVED!r})).start()",
    "a removed file that is only mapped": MAPPED,
    "a folder of long names": "os.mkdir('d'); [os.link('x', f'd/{i:0240}') for i in range(40000)]; time.sleep(60)",
}


@pytest.mark.parametrize("what", TAKING)
def test_blocks_count_with_a_name_or_without(executor: LocalExecutor, tmp_path: Path, what: str) -> None:
    if "folder" in what and not tmp_path.stat().st_blocks:
        pytest.skip("folders take no blocks on this file system")
    if "mapped" in what and os.geteuid():
        pytest.skip("only root can follow a mapping to its file")
    script = f"import ctypes, os, threading, time; open('x', 'w'); exec({TAKING[what]!r})"
    result = run(executor, f"exec {sys.executable} -c {shlex.quote(script)}", TAKEN)
    assert codes(result) == DISK
    assert result.exit_code == (0 if "end" in what else 128 + 9)


def test_a_step_that_ends_before_it_is_looked_at_is_measured_too(executor: LocalExecutor, monkeypatch) -> None:
    monkeypatch.setattr("orch23.execute.process._CHECK_EVERY_S", 20.0)
    result = run(executor, "head -c 12000000 /dev/zero > big", TAKEN)
    assert codes(result) == [("E620", "its sandbox directory held more than 8388608 bytes (`limits.disk`)")]
    assert result.exit_code == 0


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    "script",
    [
        "truncate -s 1G big; sleep 0.5",  # no blocks
        "head -c 6000000 /dev/zero > big; for i in 1 2 3 4; do ln big $i; done; sleep 0.5",  # one file
        "for i in 1 2 3 4; do head -c 6000000 /dev/zero > big; sleep 0.2; done",  # one after the other
        "exec 3< /proc/self/exe; sleep 0.5",  # not its own
    ],
)
def test_only_blocks_that_are_taken_at_once_count(executor: LocalExecutor, script: str) -> None:
    assert codes(run(executor, script, TAKEN)) == []


def test_copies_of_inputs_do_not_count_and_what_is_added_to_them_does(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(bytes(12 << 20))
    (tmp_path / "other").touch()
    monitor = ResourceMonitor(tmp_path, StepLimits(disk=1 << 20, files=2))
    (tmp_path / "new").touch()
    assert monitor.exceeded_limit([]) is None
    (tmp_path / "input").write_bytes(bytes(14 << 20))
    assert monitor.exceeded_limit([]) == "its sandbox directory held more than 1048576 bytes (`limits.disk`)"
    (tmp_path / "input").unlink()
    assert monitor.exceeded_limit([]) is None
    for name in "abcd":
        (tmp_path / name).touch()
    assert monitor.exceeded_limit([]) == "its sandbox directory held more than 2 files (`limits.files`)"


def test_a_file_that_is_renamed_while_the_tree_is_walked_counts_once(tmp_path: Path, monkeypatch) -> None:
    monitor = ResourceMonitor(tmp_path, StepLimits(disk=1 << 20))
    sizes = iter([[2 << 20], [0]])
    monkeypatch.setattr(resource_limits, "_named_sizes", lambda _: next(sizes))
    assert monitor.exceeded_limit([]) is None


def test_a_step_is_measured_although_others_free_more_than_it_takes(tmp_path: Path, monkeypatch) -> None:
    """Without a limit of its own only when the file system has less space than at any time before."""
    free = iter([100, 300, 299, 298])
    monkeypatch.setattr(resource_limits, "_free_space", lambda _: (next(free) << 30, 0))
    monitor = ResourceMonitor(tmp_path, StepLimits())
    measured: list[object] = []
    monkeypatch.setattr(monitor, "_exceeded_disk_limit", measured.append)
    for _ in range(3):
        monitor.exceeded_limit([1])
    assert measured == [[1], [1]]
    monkeypatch.setattr(resource_limits, "_free_space", lambda _: (1 << 50, 0))
    of_its_own = ResourceMonitor(tmp_path, StepLimits(disk=1 << 20))
    monkeypatch.setattr(of_its_own, "_exceeded_disk_limit", measured.append)
    of_its_own.exceeded_limit([2])
    assert measured == [[1], [1], [2]]


def test_a_stage_without_limits_of_its_own_costs_one_call_for_each_look(tmp_path: Path, monkeypatch) -> None:
    asked: list[object] = []
    real = os.statvfs

    def count(path: Path) -> os.statvfs_result:
        asked.append(path)
        return real(path)

    with monkeypatch.context() as patched:
        for name in ("scandir", "listdir", "stat"):
            patched.setattr(os, name, None)
        patched.setattr(os, "statvfs", count)
        monitor = ResourceMonitor(tmp_path, StepLimits(), tmpfs=("/tmp",))
        found = [monitor.exceeded_limit(processes) for processes in ([os.getpid()], [os.getpid()], [])]
    assert found == [None] * 3
    assert asked == [tmp_path] * 3


@pytest.mark.parametrize("how", ["in a socket", "in a folder", "in a process"])
def test_what_a_confined_step_hides_counts_as_all_that_its_file_system_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    free = [100 << 30]
    monkeypatch.setattr(resource_limits, "_free_space", lambda _: (free[0], 0))
    confined = ResourceMonitor(tmp_path, StepLimits(disk=1 << 20), is_confined=True)
    others = [
        ResourceMonitor(tmp_path, StepLimits(disk=1 << 20)),
        ResourceMonitor(tmp_path, StepLimits(), is_confined=True),
    ]
    free[0] -= 2 << 20
    here, there = socket.socketpair()
    assert not any(one.exceeded_limit([os.getpid()]) for one in (confined, *others))
    if how == "in a socket":
        socket.send_fds(here, [b"."], [0])
        assert not any(one.exceeded_limit([os.getpid()]) for one in (confined, *others))
        socket.send_fds(here, [b"."], [0])
    elif how == "in a folder":
        monkeypatch.setattr(os, "scandir", refuse)
    else:
        listed = os.listdir
        monkeypatch.setattr(os, "listdir", lambda path: refuse() if path.endswith("/fd") else listed(path))
    for one in (confined, *others):
        one._due_s = 0.0
    found = confined.exceeded_limit([os.getpid()])
    what = "its file system lost 2097152 bytes while it had files that cannot be measured"
    assert found == f"{what}, which is more than `limits.disk`; others may have taken them"
    assert not any(one.exceeded_limit([os.getpid()]) for one in others)
    here.close()
    there.close()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
@pytest.mark.parametrize(("sent", "taken"), [("pipe", []), ("input", []), ("removed", [4096]), ("nested", [4096])])
def test_what_is_on_its_way_to_a_socket_is_measured_and_arrives(
    tmp_path: Path, kind: int, sent: str, taken: list[int]
) -> None:
    devices = {tmp_path.stat().st_dev}
    before = list(resource_limits._unnamed_sizes([os.getpid()], devices))
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    outer = socket.socketpair(socket.AF_UNIX, kind)
    # Credentials, and the descriptor of a process, come with the message and are closed.
    there.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(OSError):
        there.setsockopt(socket.SOL_SOCKET, 76, 1)  # SO_PASSPIDFD
    file = (tmp_path / "file").open("wb+")
    file.write(bytes(4096))
    file.flush()
    if sent in ("removed", "nested"):
        (tmp_path / "file").unlink()
    reads, writes = os.pipe()
    socket.send_fds(here, [b"hello"], [reads if sent == "pipe" else file.fileno()])
    file.close()
    if sent == "nested":
        socket.send_fds(outer[0], [b"x"], [there.fileno()])
        there.close()
    opened = len(os.listdir("/proc/self/fd"))
    assert Counter(resource_limits._unnamed_sizes([os.getpid()], devices)) == Counter([*before, *taken])
    assert len(os.listdir("/proc/self/fd")) == opened
    if sent == "nested":
        _, (number,), *_ = socket.recv_fds(outer[1], 9, 1)
        there = socket.socket(fileno=number)
    data, others, *_ = there.recvmsg(9, 1 << 10)
    numbers = array("i")
    for _, other, found in others:
        numbers.frombytes(found if other in (socket.SCM_RIGHTS, 4) else b"")
    assert (data, bool(numbers)) == (b"hello", True)
    for one in (here, there, *outer):
        one.close()
    for number in (*numbers, reads, writes):
        os.close(number)


def refuse(*_: object) -> None:
    raise PermissionError


def test_a_process_that_is_ending_hides_nothing(tmp_path: Path) -> None:
    """Its descriptors cannot be listed by an ordinary user."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.MonkeyPatch.context() as patched:
            listed = os.listdir
            patched.setattr(os, "listdir", lambda path: refuse() if path.endswith("/fd") else listed(path))
            assert list(resource_limits._references(ended.pid)) == []
            assert None in list(resource_limits._references(os.getpid()))


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
