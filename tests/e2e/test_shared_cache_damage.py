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
