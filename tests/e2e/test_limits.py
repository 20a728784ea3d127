"""`limits` of a stage in whole builds, in each tier: what uses more is killed, and the stage fails."""

from typing import Any

import pytest

from tests.e2e.test_sandbox import chosen, tier
from tests.project import Project, scripted

TIERS = ["bubblewrap", "namespaces", "landlock"]
MEMORY = "import time; x = bytearray(400 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(60)"
DISK = "import time; open('big', 'wb').write(b'x' * (8 << 20)); time.sleep(60)"
DAEMON = f"import os; os.fork() or os.setsid() and os.fork() or exec({MEMORY!r}); import time; time.sleep(60)"
REMOVED = DISK.replace("open('big', 'wb')", "(f := open('big', 'wb', 0), __import__('os').unlink('big'))[0]")
QUICK = DISK.partition("; time.sleep")[0]
CASES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "memory": (["python", "-c", MEMORY], {"memory": "200MiB"}, "it used more than 209715200 bytes of memory"),
    "memory of a daemon": (["python", "-c", DAEMON], {"memory": "200MiB"}, "of memory (`limits.memory`)"),
    "disk": (["python", "-c", DISK], {"disk": "4MiB"}, "more than 4194304 bytes (`limits.disk`)"),
    "disk of a removed file": (["python", "-c", REMOVED], {"disk": "4MiB"}, "more than 4194304 bytes (`limits.disk`)"),
    "disk at the end": (["python", "-c", QUICK], {"disk": "4MiB"}, "more than 4194304 bytes (`limits.disk`)"),
    "files": (["bash", "-c", "mkdir $(seq 200); sleep 60"], {"files": 100}, "more than 100 files (`limits.files`)"),
    "processes": (
        ["bash", "-c", "for i in $(seq 30); do sleep 60 & done; wait"],
        {"processes": 20},
        "more than 20 processes at once (`limits.processes`)",
    ),
}


def stage(command: list[str], limits: dict[str, Any]) -> dict[str, Any]:
    return {"outputs": ["a"], "shell": command, "limits": limits}


@pytest.mark.stride(9)
@pytest.mark.slow
@pytest.mark.parametrize("what", CASES)
@pytest.mark.parametrize("name", TIERS)
def test_a_step_over_its_limits_is_killed(project: Project, name: str, what: str) -> None:
    command, limits, message = CASES[what]
    with tier(chosen(name)):
        outcome = project.write(scripted({"a": stage(command, limits)}, {})).build()
    assert outcome.code == 2
    assert "E620" in outcome.err
    assert message in outcome.err
    assert not project.exists("a")


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
@pytest.mark.parametrize("name", ["bubblewrap", "namespaces"])
def test_file_systems_in_memory_count_as_disk(project: Project, name: str, folder: str) -> None:
    command = ["python", "-c", REMOVED.replace("'big'", f"'{folder}/big'")]
    with tier(chosen(name)):
        outcome = project.write(scripted({"a": stage(command, {"disk": "4MiB"})}, {})).build()
    assert outcome.code == 2
    assert "more than 4194304 bytes (`limits.disk`)" in outcome.err


@pytest.mark.parametrize("name", TIERS)
def test_the_kernel_kills_steps_first_and_address_space_is_limited_on_request(project: Project, name: str) -> None:
    script = "until [ $(ulimit -v) != unlimited ]; do :; done; (cat /proc/self/oom_score_adj; ulimit -v) > a"
    with tier(chosen(name)):
        made = project.write(scripted({"a": stage(["bash", "-c", script], {"address_space": "1GiB"})}, {})).build()
    assert made.code == 0, made.err
    assert project.read("a") == "1000\n1048576\n"


def test_limits_are_no_part_of_the_key_and_defaults_are_merged(project: Project) -> None:
    files = scripted({"a": stage(["bash", "-c", "ulimit -v > a"], {"memory": "1GiB"})}, {})
    assert project.write(files).build().code == 0
    assert project.read("a") == "unlimited\n"
    text = files["pipeline.yaml"].replace("1GiB", "2GiB")
    assert project.write({"pipeline.yaml": text}).build().err == "pipeline: up to date (1 stage)\n"


def test_a_size_that_is_none_is_reported_at_its_place(project: Project) -> None:
    outcome = project.write(scripted({"a": stage(["true"], {"memory": "lots"})}, {})).build()
    assert outcome.code == 65
    assert "E815" in outcome.err
    assert "write 512MiB, 4GiB or a number of bytes" in outcome.err
