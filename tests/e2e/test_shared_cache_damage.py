"""What is damaged in a shared cache costs the stage that needs it, is reported, and is repaired."""

from pathlib import Path

import pytest

from orch23.model.digest import digest_bytes
from tests.e2e.pipelines import green, shell
from tests.project import Project

pytestmark = pytest.mark.slow

UNSANDBOXED = {"ORCH23_ALLOW_UNSANDBOXED": "1"}
HEAD = "cache: {platform: any}\ndefaults: {sandbox: off}\n"
NAMES = ("a", "b", "c", "d")
LARGE = "x" * 100_000
STAGES = "".join(
    f'  {name}: {{inputs: [in.txt], outputs: [{name}.txt, {name}2.txt], shell: "echo {name} > {name}.txt; '
    f'echo {name}2 > {name}2.txt"}}\n'
    for name in NAMES
)


@pytest.fixture(autouse=True)
def unsandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in UNSANDBOXED.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "shared"


def checkout(root: Path) -> Project:
    return Project(root).write(shell(STAGES, {"in.txt": "in\n"}, head=HEAD))


def blob(cache: Path, data: bytes) -> Path:
    sha256 = digest_bytes(data).sha256
    return cache / "cas" / sha256[:2] / sha256


def test_a_file_that_cannot_be_replaced_costs_only_its_stage(tmp_path: Path, cache: Path) -> None:
    place = blob(cache, b"a\n")
    (place / "not empty").mkdir(parents=True)
    for name, counts in (("one", "4 not found, 3 stored"), ("two", "3 restored")):
        done = checkout(tmp_path / name).build("--cache", str(cache))
        green(done)
        assert counts in done.err
        assert "1 not stored (a)" in done.err
        (warning,) = (line for line in done.err.splitlines() if line.startswith("warning"))
        assert warning.startswith(
            "warning: results are not stored in the shared cache, and stay on this machine: a (cas/"
        )
        assert place.name in warning


def flip(place: Path) -> None:
    """Change the last byte of a file."""
    data = place.read_bytes()
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_wrong_bytes_are_reported_with_their_stage_and_repaired(tmp_path: Path, cache: Path) -> None:
    stages = "  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}\n"
    one, two, three = (
        Project(tmp_path / name).write(shell(stages, {"in.txt": LARGE}, head=HEAD)) for name in ("one", "two", "three")
    )
    green(one.build("--cache", str(cache)))
    flip(blob(cache, LARGE.encode()))
    done = two.build("--cache", str(cache))
    green(done)
    why = (
        "[W698] a result in the shared cache is ignored, and the stage is built: the cache has wrong bytes for out.txt"
    )
    assert f"copy: {why}" in done.err
    assert "W698" in two.run("log").out
    assert two.read("out.txt") == LARGE
    done = three.build("--cache", str(cache))
    green(done)
    assert (three.ran(), "W698" in done.err) == ([], False)


def test_a_cache_whose_blobs_are_all_wrong_is_repaired_by_one_build(tmp_path: Path, cache: Path) -> None:
    green(checkout(tmp_path / "one").build("--cache", str(cache)))
    for place in cache.glob("cas/*/*"):
        if place.stat().st_size:
            flip(place)
    done = checkout(tmp_path / "two").build("--cache", str(cache))
    green(done)
    assert "4 not found, 4 stored" in done.err
    assert done.err.count("W698") == 3, "no more warnings are shown"
    three = checkout(tmp_path / "three")
    green(three.build("--cache", str(cache)))
    assert three.ran() == []
