"""The launcher times a process of its own, sees its end, and ends it when its time is over."""

import sys

from bench.measure import Stopwatch

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def test_a_run_has_its_exit_code_and_its_output(tmp_path) -> None:
    with Stopwatch(tmp_path / "output") as stopwatch:
        run = stopwatch.run(["/bin/sh", "-c", "pwd; echo no >&2; exit 3"], tmp_path, ENVIRONMENT, 20)
        assert stopwatch.said() == f"{tmp_path}\nno"
    assert run.code == 3
    assert not run.late
    assert 0 < run.wall_s < 20


def test_the_processor_and_memory_of_children_count(tmp_path) -> None:
    work = "x = bytearray(60 << 20); sum(range(300000))"
    with Stopwatch(tmp_path / "output") as stopwatch:
        small = stopwatch.run(["/bin/true"], tmp_path, ENVIRONMENT, 20)
        large = stopwatch.run(["/bin/sh", "-c", f"{sys.executable} -c '{work}'; :"], tmp_path, ENVIRONMENT, 20)
    assert small.memory_bytes < 16 << 20
    assert large.memory_bytes > 60 << 20
    assert large.cpu_s > small.cpu_s


def test_a_run_whose_time_is_over_is_ended_and_said_to_be_late(tmp_path) -> None:
    with Stopwatch(tmp_path / "output") as stopwatch:
        run = stopwatch.run(["/bin/sh", "-c", "sleep 60"], tmp_path, ENVIRONMENT, 0.05)
        after = stopwatch.run(["/bin/true"], tmp_path, ENVIRONMENT, 20)
    assert run.late
    assert run.code == -15
    assert run.wall_s < 20
    assert after.code == 0
