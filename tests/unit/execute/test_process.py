"""Running one process: its bounds, its output, and that nothing of it is left."""

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from orch23.execute import process_tree
from orch23.execute.cleanup import kill_leftovers
from orch23.execute.process import DEFAULT_OUTPUT, OutputLimits, ProcessOutcome, run_process
from orch23.execute.supervisor import ProcessSpec

PYTHON = sys.executable
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "ORCH23_ROOM": "feedfacefeedface"}


@pytest.fixture(autouse=True)
def _subreaper() -> None:
    assert process_tree.become_subreaper()


@pytest.fixture
def tag(tmp_path: Path) -> str:
    """Give a number of seconds to sleep that no other process of this machine sleeps: daemons are found by it."""
    return f"{100_000 + os.getpid()}.{abs(hash(tmp_path)) % 1_000_000:06d}"


def alive(tag: str) -> list[int]:
    """Return the processes whose command line ends in the tag."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if len(words) > 1 and words[-2] == tag.encode():
                found.append(int(name))
    return found


def run(
    tmp_path: Path,
    *argv: str,
    timeout_s: float = 30.0,
    output: OutputLimits = DEFAULT_OUTPUT,
    cancel: threading.Event | None = None,
) -> ProcessOutcome:
    return run_process(
        ProcessSpec(argv=argv, cwd=tmp_path, env=PLAIN, marker=PLAIN["ORCH23_ROOM"]),
        timeout_s=timeout_s,
        cancel=cancel or threading.Event(),
        log=tmp_path / "output.log",
        output=output,
    )


def shell(
    tmp_path: Path, script: str, timeout_s: float = 30.0, cancel: threading.Event | None = None
) -> ProcessOutcome:
    return run(tmp_path, "bash", "-c", script, timeout_s=timeout_s, cancel=cancel)


def test_both_streams_are_one_in_order_and_the_exit_code_is_reported(tmp_path: Path) -> None:
    end = shell(tmp_path, "echo one; echo two >&2; echo three; exit 7")
    assert (end.reason, end.exit_code, end.head + end.tail) == ("exited", 7, b"one\ntwo\nthree\n")
    assert end.log is None


def test_a_signal_is_reported_as_in_a_shell(tmp_path: Path) -> None:
    assert shell(tmp_path, "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_stdin_is_empty_and_nothing_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "s3cr3t")
    canary = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(canary, True)
    try:
        end = shell(tmp_path, "cat; env; ls /proc/self/fd | tr '\\n' ' '")
    finally:
        os.close(canary)
    text = (end.head + end.tail).decode()
    assert "s3cr3t" not in text
    assert text.splitlines()[-1].split() == ["0", "1", "2", "3"]  # 3 is ls reading the folder


def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(tmp_path, "no-such-program-of-any-kind")


@pytest.mark.slow
def test_time_is_up(tmp_path: Path, tag: str) -> None:
    end = shell(tmp_path, f"echo begun; sleep {tag}; echo never", timeout_s=0.3)
    assert (end.reason, end.head) == ("timed_out", b"begun\n")
    assert alive(tag) == []


@pytest.mark.slow
def test_cancel_kills_a_process_that_ignores_signals(tmp_path: Path, tag: str) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    end = shell(tmp_path, f"trap '' TERM INT HUP; sleep {tag}; sleep {tag}", cancel=cancel)
    assert end.reason == "cancelled"
    assert alive(tag) == []


@pytest.mark.slow
def test_a_process_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    end = shell(tmp_path, "exec >&- 2>&-; sleep 0.2; echo done > proof; exit 3")
    assert end.exit_code == 3
    assert (tmp_path / "proof").read_text() == "done\n"


# ---- output -----------------------------------------------------------------------------------


def test_output_is_kept_whole_up_to_the_two_caps(tmp_path: Path) -> None:
    limits = OutputLimits(head_bytes=10, tail_bytes=20, log_bytes=1000)
    end = run(tmp_path, "bash", "-c", "printf '%030d' 7", output=limits)
    assert end.head + end.tail == b"0" * 29 + b"7"
    assert end.log is None


def test_one_byte_more_leaves_head_and_tail_and_spills_everything(tmp_path: Path) -> None:
    limits = OutputLimits(head_bytes=10, tail_bytes=20, log_bytes=1000)
    end = run(tmp_path, "bash", "-c", "printf 'A%029dZ' 7", output=limits)
    assert (end.head, end.tail, end.size_bytes) == (b"A" + b"0" * 9, b"0" * 18 + b"7Z", 31)
    assert end.log is not None
    assert end.log.read_bytes() == b"A" + b"0" * 28 + b"7Z"


def test_a_flood_is_killed_and_neither_memory_nor_the_log_grow_with_it(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import resource, sys, threading
        from pathlib import Path
        from orch23.execute import process_tree
        from orch23.execute.process import run_process
        from orch23.execute.supervisor import ProcessSpec
        process_tree.become_subreaper()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yes = ProcessSpec(argv=("yes",), cwd=Path(sys.argv[1]), env={"PATH": "/usr/bin:/bin"})
        end = run_process(yes, timeout_s=60, cancel=threading.Event(), log=Path(sys.argv[1]) / "log")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(end.reason, len(end.head), len(end.tail), end.log.stat().st_size, grown)
    """)
    done = subprocess.run(
        [PYTHON, "-c", code, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    end, head, tail, log, grown_kb = done.stdout.split()
    assert (end, int(head), int(tail), int(log)) == ("flooded", 64 << 10, 192 << 10, 16 << 20)
    assert int(grown_kb) < 64 << 10


def test_limits_hold_for_the_process_and_its_children(tmp_path: Path) -> None:
    limits = OutputLimits(file_bytes=100_000)
    end = run(
        tmp_path,
        "bash",
        "-c",
        "until test $(ulimit -Hc) = 0; do :; done; head -c 200000 /dev/zero > big",
        output=limits,
    )
    assert end.exit_code != 0
    assert (tmp_path / "big").stat().st_size < 100_000


# ---- nothing is left (R10) --------------------------------------------------------------------

DOUBLE_FORK = """
import os, sys, time
def daemon():
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/"); os.closerange(0, 256)
    os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
daemon()
"""
IGNORES = """
import os, signal, sys
if os.fork() == 0:
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
    os.setpgid(0, 0)
    os.execv("/bin/sleep", ["sleep", sys.argv[1]])
"""
RESPAWNS = """
import os, sys, time
if os.fork() == 0:
    os.setsid(); os.closerange(0, 256)
    while True:
        if (pid := os.fork()) == 0:
            os.setsid(); os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
        os.waitpid(pid, 0)
time.sleep(0.2)
"""
# The kernel hides a child without an exit signal from most ways to wait for it.
CLONES = """
import ctypes, os, sys
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
if ctypes.CDLL(None).syscall(number, FLAGS, 0, 0, 0, 0) == 0:
    os.setsid(); os.closerange(0, 256)
    os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
"""
CLONE_PARENT = 0x8000
TRACED = """
import ctypes, os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME: it stops at its exec
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    os.wait(); os.closerange(0, 256)
    os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
"""
DAEMONS = {
    "background": "sleep TAG &",
    "nohup": "nohup sleep TAG >/dev/null 2>&1 &",
    "disown": "sleep TAG >/dev/null 2>&1 & disown",
    "setsid": "setsid sleep TAG >/dev/null 2>&1 &",
    "setsid with no environment": "(env -i setsid sleep TAG >/dev/null 2>&1 &)",
    "setsid twice": "(setsid bash -c 'setsid sleep TAG & exit' >/dev/null 2>&1 &)",
    "stopped": "sleep TAG >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!",
    "a tree": "bash -c 'sleep TAG & sleep TAG & wait' >/dev/null 2>&1 &",
    "all descriptors closed": "(exec 0<&- 1>&- 2>&-; setsid sleep TAG &)",
    "lowered limit": "(ulimit -f 1; env -i setsid sleep TAG >/dev/null 2>&1 &)",
    "double fork": DOUBLE_FORK,
    "ignores signals": IGNORES,
    "respawns": RESPAWNS,
    "no exit signal": CLONES.replace("FLAGS", "0"),
    "child of orch23": CLONES.replace("FLAGS", str(CLONE_PARENT | signal.SIGCHLD)),
    "child of orch23 without exit signal": CLONES.replace("FLAGS", str(CLONE_PARENT)),
    "traced": TRACED,
    "holds the output": "setsid sleep TAG & echo said",
}
ALWAYS_TRIED = {
    "setsid with no environment",
    "double fork",
    "no exit signal",
}  # the hard ones; the others are slow proofs


class WhenDaemonIsThere(threading.Event):
    """Once a process with the tag is seen: let the step go on (`exit`), or cancel it."""

    def __init__(self, tag: str, go: Path, ending: str) -> None:
        super().__init__()
        self.tag, self.go, self.ending, self.seen = tag, go, ending, False

    def is_set(self) -> bool:
        self.seen = self.seen or bool(alive(self.tag))
        if self.seen and self.ending == "exit":
            self.go.touch()
        return self.seen and self.ending == "cancel"


@pytest.mark.slow
@pytest.mark.stride(7)
@pytest.mark.parametrize(
    "kind", [kind if kind in ALWAYS_TRIED else pytest.param(kind, marks=pytest.mark.slow) for kind in DAEMONS]
)
@pytest.mark.parametrize("ending", ["exit", "cancel"])
def test_no_daemon_survives(tmp_path: Path, tag: str, kind: str, ending: str) -> None:
    script = DAEMONS[kind].replace("TAG", tag)
    if script.startswith("\nimport"):
        script = f"{PYTHON} - {tag} <<'P'{script}P"
    seen = WhenDaemonIsThere(tag, tmp_path / "go", ending)
    argv = ("bash", "-c", f"{script}\nwhile test ! -e go; do sleep 0.01; done")
    end = run_process(
        ProcessSpec(argv=argv, cwd=tmp_path, env=PLAIN, marker=PLAIN["ORCH23_ROOM"]),
        timeout_s=20.0,
        cancel=seen,
        log=tmp_path / "log",
    )
    assert seen.seen, (end.head + end.tail).decode()
    assert end.reason == ("exited" if ending == "exit" else "cancelled")
    assert end.survivors == ()
    assert alive(tag) == []


@pytest.mark.slow
def test_a_helper_of_our_own_and_another_steps_daemon_are_left_alone(tmp_path: Path, tag: str) -> None:
    """A model server is a child in a session of its own with an environment of its own: no step's end may touch it."""
    started = threading.Event()
    release = threading.Event()
    other = tmp_path / "other"
    other.mkdir()

    class Stop:
        def is_set(self) -> bool:
            if alive(f"{tag}2"):
                started.set()
            return release.is_set()

    argv = ("bash", "-c", f"(env -i setsid sleep {tag}2 >/dev/null 2>&1 &); sleep 60")
    process = ProcessSpec(argv=argv, cwd=other, env=PLAIN | {"ORCH23_ROOM": "another"}, marker="another")
    thread = threading.Thread(
        target=run_process, args=(process,), kwargs={"timeout_s": 60.0, "cancel": Stop(), "log": other / "log"}
    )
    thread.start()
    assert started.wait(20)
    script = f"sleep {tag}3 & echo $! > begun; while test ! -e go; do sleep 0.01; done"
    ends: list[ProcessOutcome] = []
    step = threading.Thread(target=lambda: ends.append(shell(tmp_path, script)))
    step.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.005)
    helper = subprocess.Popen(["/bin/sleep", f"{tag}1"], start_new_session=True, env={})
    try:
        (tmp_path / "go").touch()
        step.join()
        assert ends[0].reason == "exited"
        assert len(alive(f"{tag}1")) == 1
        assert len(alive(f"{tag}2")) == 1
        assert alive(f"{tag}3") == []
        release.set()
        thread.join()
        assert alive(f"{tag}2") == []
        assert helper.poll() is None
    finally:
        release.set()
        thread.join()
        helper.kill()
        assert helper.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_child_that_was_born_before_its_step_had_a_limit_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    """On a busy machine a shell forks before its parent runs again: seen once in fifty runs."""
    monkeypatch.setattr(resource, "prlimit", lambda *_: (-1, -1))
    shell(tmp_path, f"(env -i setsid sleep {tag} >/dev/null 2>&1 &); sleep 0.2")
    assert alive(tag) == []


def test_a_step_whose_leader_has_the_pid_of_an_earlier_one_is_not_forgotten() -> None:
    first, second = (process_tree.ProcessTree(leader=1 << 30, marker="", limit=1) for _ in range(2))
    try:
        process_tree._STEPS[first.leader] = first
        process_tree._STEPS[first.leader] = second
        process_tree.forget_tree(first)
        assert process_tree._STEPS[first.leader] is second
        process_tree.forget_tree(second)
        assert first.leader not in process_tree._STEPS
    finally:
        process_tree._STEPS.pop(first.leader, None)


def test_strays_are_ended_when_no_step_runs(tmp_path: Path, tag: str) -> None:
    with process_tree.starting_leader():
        subprocess.run(["/bin/sh", "-c", f"setsid sleep {tag} >/dev/null 2>&1 &"], check=True)
    helper = subprocess.Popen(["/bin/sleep", f"{tag}1"], start_new_session=True, env={})
    for _ in range(1000):
        if alive(tag):
            break
        time.sleep(0.005)
    assert process_tree.kill_strays() == ()
    assert alive(tag) == []
    assert helper.poll() is None
    helper.kill()
    helper.wait()


def test_steps_of_a_killed_build_are_found_and_no_other_process_is_touched(tmp_path: Path, tag: str) -> None:
    sandbox_dirs = tmp_path / "rooms"
    first, second, other = (secrets.token_hex(8) for _ in range(3))
    (sandbox_dirs / first).mkdir(parents=True)
    (sandbox_dirs / f"{second}.own").mkdir()
    sleep = f"exec sleep {tag}"
    fake = ["-c", f"sleep {tag}; :", "--bind", f"{sandbox_dirs}/{first}", "/room"]
    started = {
        "step": ({"ORCH23_ROOM": first}, ["sh", "-c", f"env -i sleep {tag}; :"], tmp_path),
        "step of which only a part is left": ({"ORCH23_ROOM": second}, ["sh", "-c", sleep], tmp_path),
        "bwrap": ({}, ["bwrap", *fake], tmp_path),
        "bwrap of a read-only tree": (
            {},
            ["bwrap", *fake[:2], "--ro-bind", f"{sandbox_dirs}/{first}", "/room"],
            tmp_path,
        ),
        "shell in a sandbox directory": ({"PWD": f"{sandbox_dirs}/{first}"}, ["sh", "-c", sleep], sandbox_dirs / first),
        "names a sandbox directory": ({"ROOM": f"{sandbox_dirs}/{first}"}, ["sh", *fake], tmp_path),
        "step of another project": ({"ORCH23_ROOM": other}, ["sh", "-c", sleep], tmp_path),
        "bwrap of another project": ({}, ["bwrap", "-c", f"sleep {tag}; :", "--bind", f"/rooms/{first}"], tmp_path),
    }
    processes = {
        name: subprocess.Popen(
            argv, executable="/bin/sh", env={"PATH": "/usr/bin:/bin", **env}, cwd=cwd, start_new_session=True
        )
        for name, (env, argv, cwd) in started.items()
    }
    try:
        while len(alive(tag)) < len(processes):
            time.sleep(0.005)
        found = kill_leftovers(sandbox_dirs)
        ended = {"step", "step of which only a part is left", "bwrap", "bwrap of a read-only tree"}
        for name in ended:
            processes[name].wait(20)
        assert {name for name in processes if processes[name].poll() is not None} == ended
        assert {processes[name].pid for name in ended} <= set(found)
        assert len(alive(tag)) == len(processes) - len(ended)
        assert kill_leftovers(sandbox_dirs) == ()
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_a_step_that_a_killed_build_had_not_executed_yet_is_ended_too(tmp_path: Path, tag: str) -> None:
    sandbox_dir = secrets.token_hex(8)
    (tmp_path / "rooms" / sandbox_dir).mkdir(parents=True)
    code = f"""
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(process_tree._MARK)}}})
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(0.3)
    os.execve("/bin/sleep", ["sleep", "{tag}"], {{"{process_tree.MARKER_VARIABLE}": "{sandbox_dir}"}})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as build:
        assert build.stdout is not None
        step = int(build.stdout.readline())
        build.kill()
        build.wait()
        assert kill_leftovers(tmp_path / "rooms") == (step,)
    assert alive(tag) == []


LONE = """
import threading
from pathlib import Path
from orch23.execute import process_tree
from orch23.execute.process import run_process
from orch23.execute.supervisor import ProcessSpec

process_tree.become_subreaper()
process_tree.process_ids = process_tree._children = None
process = ProcessSpec(argv=("/bin/sh", "-c", "exit 3"), cwd=Path("/"), env={})
end = run_process(process, timeout_s=60, cancel=threading.Event(), log=Path("log"))
print(end.exit_code, end.survivors)
"""


def test_a_lone_step_that_left_nothing_is_not_searched_for(tmp_path: Path) -> None:
    # In a process of its own, which has no other children.
    ran = subprocess.run([PYTHON, "-c", LONE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("3 ()\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["double fork", "no exit signal", "child of orch23 without exit signal"])
def test_a_lone_step_that_left_a_daemon_is_searched_for(tmp_path: Path, tag: str, kind: str) -> None:
    code = LONE.replace("process_tree.process_ids = process_tree._children = None\n", "")
    script = f"{DAEMONS[kind]}\nimport time; time.sleep(0.2); sys.exit(3)"
    code = code.replace('("/bin/sh", "-c", "exit 3")', repr((PYTHON, "-c", script, tag)))
    ran = subprocess.run([PYTHON, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("3 ()\n", "")
    assert alive(tag) == []


def test_the_exit_codes_of_other_children_are_never_taken(tmp_path: Path) -> None:
    """Reaping by `waitpid(-1)` would make every other child look like a success."""
    helper = subprocess.Popen(["/bin/sh", "-c", "exit 42"])
    shell(tmp_path, "(setsid true &) ; sleep 0.05")
    assert helper.wait() == 42


@pytest.mark.slow
def test_no_zombie_is_left_of_what_was_killed(tmp_path: Path, tag: str) -> None:
    before = set(process_tree._children(os.getpid()))  # of other tests in this process
    shell(tmp_path, f"for i in 1 2 3; do setsid sleep {tag} >/dev/null 2>&1 & done; sleep 0.1")
    mine = [
        kin
        for pid in process_tree._children(os.getpid())
        if pid not in before and (kin := process_tree.process_info(pid))
    ]
    assert [kin for kin in mine if kin.state == "Z"] == []


@pytest.mark.slow
def test_children_are_found_without_the_kernels_list_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    def look_everywhere(pid: int) -> Iterable[int]:
        return process_tree._snapshot()(pid)

    monkeypatch.setattr(process_tree, "_children", look_everywhere)
    shell(tmp_path, f"(env -i setsid sleep {tag} >/dev/null 2>&1 &); sleep 0.2")
    assert alive(tag) == []


def _forked(blocked: set[int]) -> int:
    """Fork a child that has blocked these signals, does not exec, and sleeps until it is killed."""
    ready, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.write(telling, b".")
        while True:
            signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(telling)
    return pid


def test_a_helper_between_its_fork_and_its_exec_is_no_orphan_of_a_step() -> None:
    """There it has every signal blocked, also the one that marks what steps start; it was taken for one and killed."""
    mark = signal.SIGRTMAX - 7
    helper, orphan = _forked(set(signal.valid_signals())), _forked({mark})
    try:
        assert not process_tree._is_marked(helper)
        assert process_tree._is_marked(orphan)
    finally:
        for pid in (helper, orphan):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


_BLOCKING = """
import signal
everything = signal.valid_signals()
signal.pthread_sigmask(signal.SIG_SETMASK, KEPT)
print(flush=True)
while True:
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    signal.pthread_sigmask(signal.SIG_SETMASK, KEPT)
"""


@pytest.mark.parametrize(("kept", "is_a_steps"), [("()", False), ("everything", True)])
def test_who_blocks_every_signal_for_a_moment_is_no_orphan_of_a_step(*, kept: str, is_a_steps: bool) -> None:
    """A shell does so whenever it waits for a child: a model's program was taken for a step's orphan, and killed."""
    command = [sys.executable, "-c", _BLOCKING.replace("KEPT", kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.read(1)
            assert {process_tree._is_marked(process.pid) for _ in range(300 if not is_a_steps else 1)} == {is_a_steps}
        finally:
            process.kill()
