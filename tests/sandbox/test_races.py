"""Nothing is written outside of a project, nor read there, while somebody swaps a folder of the path for a link."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.users import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROUNDS = 500
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder in memory, if there is one: on a disk a promotion waits for it, and there are fewer races."""
    with tempfile.TemporaryDirectory(prefix="orch23-race-", dir=MEMORY if MEMORY.is_dir() else None) as made:
        yield Path(made)


def raced(folder: Path, rounds: int, *weakened: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sandbox.racing", folder, str(rounds), *weakened],
        cwd=ROOT,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stdout)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_no_write_and_no_read_leaves_the_project_however_fast_a_link_comes_and_goes(folder: Path, rounds: int) -> None:
    found = raced(folder, rounds)
    assert found["escaped"] == []
    for name, reported in found["reported"].items():
        assert "read from outside" not in reported, name
        assert reported["done"] > 0, f"{name} was never in time: the race proves nothing"
        assert reported["refused"] > 0, f"{name} never met the link: the race proves nothing"


def test_the_race_finds_out_who_looks_first_and_opens_then(folder: Path) -> None:
    escaped: set[str] = set()
    read = 0
    for number in range(10):  # on a busy machine one race may be won by the link each time
        place = folder / str(number)
        place.mkdir()
        found = raced(place, ROUNDS, "startswith")
        escaped |= set(found["escaped"])
        read += found["reported"]["read"].get("read from outside", 0)
        if len(escaped) >= 3 and read > 0:
            break
    assert len(escaped) >= 3
    assert read > 0
