"""Tier A as a process sees it, and how it begins and ends."""

import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from orch23.execute import process_tree
from orch23.execute.launch import Launch
from orch23.execute.sandbox.bubblewrap import _Descriptors, _waiting
from orch23.execute.sandbox_tree import SandboxDir
from orch23.model.action import Action, Completed, StepLimits
from tests.sandbox.probe import Memory, executor
from tests.sandbox.users import need

pytestmark = pytest.mark.slow  # sandboxes are started

TIERS = pytest.mark.parametrize("tier", ["bubblewrap", "namespaces"])


def said(folder: Path, script: str, tier: str = "bubblewrap") -> str:
    """Return what a script prints in namespaces; it must end well."""
    with executor(tier, Memory({}), folder / "rooms", ()) as running:
        outcome = running.run(Action(argv=("bash", "-c", script), inputs={}))
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0, outcome.result.output.text
    return outcome.result.output.text


@TIERS
def test_files_of_settings_are_copies_that_cannot_be_changed(tmp_path: Path, tier: str) -> None:
    need(tier)
    assert said(tmp_path, "cat /etc/nsswitch.conf", tier) == Path("/etc/nsswitch.conf").read_text()
    script = "chmod u+w /etc/passwd 2>&1; rm -f /etc/passwd 2>&1; grep -c ' /etc/passwd ' /proc/self/mountinfo || true"
    *refusals, mounts = said(tmp_path, script, tier).splitlines()
    assert [one.endswith("Read-only file system") for one in refusals] == [True, True]
    assert mounts == "0"


@TIERS
def test_a_long_file_of_settings_is_a_mount(tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need(tier)
    monkeypatch.setattr("orch23.execute.sandbox.bubblewrap._COPIED_BYTES", 10)
    assert said(tmp_path, "cat /etc/nsswitch.conf; grep -c ' /etc/nsswitch.conf ' /proc/self/mountinfo", tier) == (
        Path("/etc/nsswitch.conf").read_text() + "1\n"
    )


@TIERS
def test_a_command_has_no_files_open_but_its_own(tmp_path: Path, tier: str) -> None:
    need(tier)
    assert said(tmp_path, "ls /proc/$$/fd; readlink /proc/$$/fd/0", tier).split() == ["0", "1", "2", "/dev/null"]


@TIERS
def test_a_command_has_the_environment_and_the_signals_of_any_process(tmp_path: Path, tier: str) -> None:
    need(tier)
    inside = said(tmp_path, "env; cat /proc/self/status", tier).splitlines()
    with executor("none", Memory({}), tmp_path / "others", ()) as running:
        plain = running.run(Action(argv=("bash", "-c", "env; cat /proc/self/status"), inputs={}))
    assert isinstance(plain, Completed)
    outside = plain.result.output.text.splitlines()
    differing = ("HOME=", "TMPDIR=", "GIT_CEILING_DIRECTORIES=", "__CARGO_TEST_ROOT=", "ORCH23_ROOM=", "PWD=", "_=")
    assert {one for one in inside if "=" in one and not one.startswith(differing)} == {
        one for one in outside if "=" in one and not one.startswith(differing)
    }
    assert [one for one in inside if one.startswith(("SigIgn", "SigCgt"))] == [
        one for one in outside if one.startswith(("SigIgn", "SigCgt"))
    ]


@TIERS
def test_a_command_has_its_limits_before_it_begins(tmp_path: Path, tier: str) -> None:
    need(tier)
    script = "ulimit -Hu; ulimit -Hf; grep 'core file' /proc/self/limits"
    processes, size, core = said(tmp_path, script, tier).splitlines()
    assert processes == str(4096 + 64)
    assert core.split()[-3:] == ["1", "1", "bytes"]  # fs/coredump.c: the one value that also stops a piped core
    assert 0 < (4 << 20) - int(size) < 1000  # 4 GiB in KiB, less the number of the step


@TIERS
def test_what_a_command_leaves_ends_without_a_look_at_all_processes(
    tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(tier)

    def looked() -> None:
        pytest.fail("it was searched for")

    monkeypatch.setattr(process_tree, "_snapshot", looked)
    tag = f"{300_000 + os.getpid()}.25"
    said(tmp_path, f"for i in 1 2 3; do (setsid sleep {tag} > /dev/null 2>&1 &); done; sleep 0.05", tier)
    listed = subprocess.run(["pgrep", "-f", f"sleep {tag}"], capture_output=True, check=False)
    assert listed.stdout == b""


def test_only_the_first_process_of_a_namespace_is_taken_for_one() -> None:
    with process_tree.starting_leader():
        child = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
        tree = process_tree.register_leader(child.pid, "", 1 << 32)
    try:
        process_tree.note_namespace(
            tree, child.pid
        )  # a child of this process, not of the leader, and first in no namespace
        assert tree.namespace_init is None
    finally:
        process_tree.kill_tree(tree)
        child.wait()
        process_tree.forget_tree(tree)


def test_a_command_begins_with_permission_and_not_when_orch23_has_ended(tmp_path: Path) -> None:
    sandbox_dir = SandboxDir(tmp_path, "m")
    launch = Launch(
        argv=("touch", "ran"), env={}, cwd=tmp_path, sandbox_dir=sandbox_dir, interpreter=Path(sys.executable)
    )
    for reported in (False, True):
        near, far = socket.socketpair()
        with (
            near,
            subprocess.Popen(_waiting(launch), stdin=far.fileno(), cwd=tmp_path, env={"PATH": os.defpath}) as shell,
        ):
            far.close()
            assert near.recv(1) == b"\n"
            assert not (tmp_path / "ran").exists()
            if reported:
                near.sendall(b"\n")
            near.close()
            assert shell.wait() == (0 if reported else 1)
        assert (tmp_path / "ran").exists() == reported


def shell(script: str) -> subprocess.Popen[bytes]:
    """Start a shell that is the first of its group, and wait until it has said something."""
    started = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert started.stdout is not None
    started.stdout.readline()
    return started


def test_a_process_is_waited_for_until_it_sleeps_beside_what_it_started() -> None:
    sleeps, runs = shell("sleep 1000 & echo; wait"), shell("sleep 1000 & echo; while :; do :; done")
    try:
        while (started := process_tree.children_if_asleep(sleeps.pid)) is None:
            pass
        seen = {process_tree.children_if_asleep(runs.pid) is None for _ in range(100)}
    finally:
        for one in (sleeps, runs):
            os.killpg(one.pid, signal.SIGKILL)
            one.communicate()
    assert len(started) == 1
    assert seen == {True}
    assert process_tree.children_if_asleep(sleeps.pid) == []


def test_a_command_may_begin_only_when_the_sandbox_is_tied_to_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it would do before could go on after a death of this process."""
    answers: list[list[int] | None] = [[], None, None]
    reported: list[list[int]] = []
    far = -1

    def look(_: int) -> list[int] | None:
        reported.append(select.select([far], [], [], 0)[0])
        return answers.pop()

    monkeypatch.setattr(process_tree, "children_if_asleep", look)
    child = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        with ExitStack() as stack:
            given = _Descriptors(stack, b"", {}, StepLimits())
            far = os.dup(given.begin_theirs)
            os.write(given.status_theirs, b'{ "child-pid": %d }' % child.pid)
            os.write(far, b"\n")
            given.let_begin(process_tree.ProcessTree(os.getpid(), "", 1 << 32))
    finally:
        child.kill()
        child.wait()
    assert reported == [[], [], []]
    assert os.read(far, 2) == b"\n"
    os.close(far)
