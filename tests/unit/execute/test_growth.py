"""What a step takes of the machine while it runs is noticed, and is the end of it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.execute.growth import Growth, Limits
from orch23.execute.local import LocalExecutor
from orch23.execute.rooms import Rooms
from orch23.model.action import Action, ActionResult, Completed

LIMITS = Limits(room_bytes=8 << 20, room_entries=500, processes=20, step_bytes=1 << 20, step_entries=50)


class Nothing:
    """A store that keeps nothing, and a source that has nothing."""

    def copy_into(self, *_):
        return True

    def put_open(self, descriptor, name):
        raise AssertionError(name)

    def put_bytes(self, data):
        raise AssertionError(data)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    one = LocalExecutor(rooms=Rooms(tmp_path, Nothing()), contents=Nothing(), workers=1, limits=LIMITS)
    yield one
    one.close()


def run(executor: LocalExecutor, script: str) -> ActionResult:
    action = Action(argv=("bash", "-c", script), inputs={}, interpreter=sys.executable, timeout_s=30, scratch=("*",))
    outcome = executor.run(action)
    assert isinstance(outcome, Completed), outcome
    return outcome.result


@pytest.mark.parametrize("where", ["$PWD", "$TMPDIR", "$HOME"])
def test_a_room_that_fills_the_disk_is_stopped(executor: LocalExecutor, where: str) -> None:
    result = run(executor, f"i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero > {where}/$i; sleep 0.01; done")
    assert [(d.code, d.message) for d in result.violations] == [
        ("E620", "killed: its room held more than 8388608 bytes")
    ]
    assert result.exit_code == 128 + 9


def test_too_many_files_are_noticed_though_they_are_empty(executor: LocalExecutor) -> None:
    result = run(executor, "i=0; while :; do : > $TMPDIR/$((i+=1)); done")
    assert [d.message for d in result.violations] == ["killed: its room held more than 500 files"]


def test_too_many_processes_are_the_end_of_all_of_them(executor: LocalExecutor) -> None:
    result = run(executor, "for i in $(seq 40); do sleep 77.125 & done; wait")
    assert [d.message for d in result.violations] == ["killed: it had more than 20 processes at once"]
    for name in os.listdir("/proc"):
        if name.isdigit() and Path(f"/proc/{name}").exists():
            try:
                assert Path(f"/proc/{name}/cmdline").read_bytes() != b"sleep\x0077.125\0"
            except (FileNotFoundError, ProcessLookupError):
                continue


def test_a_step_that_prints_all_the_time_is_watched_too(executor: LocalExecutor) -> None:
    result = run(executor, "for i in $(seq 40); do sleep 77.125 & done; while :; do echo x; sleep 0.01; done")
    assert [d.code for d in result.violations] == ["E620"]


def test_a_room_is_not_measured_as_long_as_nothing_is_taken(tmp_path: Path, monkeypatch) -> None:
    growth = Growth(tmp_path, Limits())
    monkeypatch.setattr(os, "scandir", None)
    assert growth.fault(1) is None


def test_a_room_too_deep_to_be_measured_is_refused(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    growth = Growth(tmp_path, Limits(step_entries=-(1 << 60)))
    assert growth.fault(1) == "its folders are nested too deep to be measured"


def test_only_the_room_is_measured_when_a_folder_becomes_a_link_meanwhile(tmp_path: Path, monkeypatch) -> None:
    room, outside = tmp_path / "room", tmp_path / "outside"
    (room / "sub").mkdir(parents=True)
    outside.mkdir()
    for number in range(10):
        (outside / str(number)).touch()
    growth = Growth(room, Limits(step_entries=-(1 << 60), room_entries=5))
    look = os.scandir
    looked: list[object] = []

    def swap_before_the_second_look(folder):
        if looked:
            (room / "sub").rename(room / "aside")
            (room / "sub").symlink_to(outside)
        looked.append(folder)
        return look(folder)

    monkeypatch.setattr(os, "scandir", swap_before_the_second_look)
    assert growth.fault(1) is None
    assert len(looked) == 2
