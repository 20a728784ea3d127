"""The shipped pipelines, built as a user with less builds them: without bubblewrap, without any tier, as nobody.

Each is laid by `orch23 init` into a fresh folder of that user's, and built twice, in processes of their own: nothing is
patched.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox.installed import ROOT, install
from tests.sandbox.users import NOBODY, TIERS, interpreter_for_everybody

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.needs("templates")]

CATALOGUE = ROOT / "orch23/features/templates/catalogue.json"
TEMPLATES = sorted(one["name"] for one in json.loads(CATALOGUE.read_text())["templates"]) if CATALOGUE.is_file() else []
PIPELINES = [*TEMPLATES, "sdist"]
WITHOUT = {
    "namespaces": "nothing",
    "bubblewrap": "mount_setattr",
    "landlock": "bubblewrap,namespaces",
    "none": "bubblewrap,namespaces,landlock",
}
ALLOWED = "--allow-unsandboxed"


@dataclass(frozen=True, slots=True)
class Machine:
    """One with a tier and none better, and somebody who builds there."""

    folder: Path
    tier: str
    user: int
    python: Path

    def place_(self, name: str) -> Path:
        """Make a fresh project of a shipped pipeline: a copy of the one that `init` placed for this user."""
        project = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        shutil.copytree(self.placed(name), project, dirs_exist_ok=True)
        for path in (project, *project.rglob("*")):
            os.chown(path, self.user, self.user)
        return project

    def placed(self, name: str) -> Path:
        """Place a shipped pipeline, once for each user."""
        project = self.folder / f"{name}-of-{self.user}"
        if project.exists():
            return project
        if name == "sdist" and not (ROOT / "vendor").is_dir():
            pytest.skip("the archives are not there (make vendor)")
        project.mkdir()
        os.chown(project, self.user, self.user)
        if name == "sdist":
            (project / "pipelines").mkdir()
            shutil.copy(ROOT / "pipelines/sdist.yaml", project / "pipelines")
            shutil.copytree(ROOT / "vendor", project / "vendor")
            return project
        done = self.run(project, "init", name, "--defaults")
        assert done.returncode == 0, done.stderr
        return project

    def run(self, project: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run orch23 there."""
        own = f"import sys; sys.path.insert(0, {str(ROOT)!r}); " if self.user == os.getuid() else ""
        script = f"{own}from orch23.entry import run; run()"
        command = [str(self.python), "-P", "-c", script, "-C", str(project), *argv]
        lesser = [sys.executable, "-m", "tests.sandbox.lesser", WITHOUT[self.tier], str(self.user)]
        home = self.folder / f"home-of-{self.user}"
        home.mkdir(exist_ok=True)
        os.chown(home, self.user, self.user)
        return subprocess.run(
            [*lesser, *command],
            cwd=ROOT,
            env={"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Give a folder that everybody can enter; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="orch23-tiers-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def everybodys(place: Path) -> Path:
    """Give orch23, installed for everybody."""
    return install(place / "venv", interpreter_for_everybody())


@pytest.fixture
def machine(request: pytest.FixtureRequest, place: Path) -> Machine:
    """Give a machine with this tier, and this user."""
    tier, user = request.param
    if user == "self":
        return need(Machine(place, tier, os.getuid(), Path(sys.executable)))
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    return need(Machine(place, tier, NOBODY, request.getfixturevalue("everybodys")))


def need(machine: Machine) -> Machine:
    """Skip where a machine cannot be made to have this tier and none better."""
    if (reason := lacking(machine)) is not None:
        pytest.skip(reason)
    return machine


@functools.cache
def lacking(machine: Machine) -> str | None:
    """Return why a machine cannot be made to have this tier and none better."""
    done = machine.run(machine.folder, "doctor", "--json")
    if not done.stdout:
        return f"bubblewrap cannot be hidden here: {done.stderr.strip().splitlines()[-1]}"
    facts = {fact["name"]: fact["value"] for fact in json.loads(done.stdout)["facts"]}
    found = facts["sandbox"].split()[0].strip(":,").lower()
    same = found == machine.tier
    return None if same else f"this machine has no tier {machine.tier} for user {machine.user}: {facts['sandbox']}"


def built(machine: Machine, name: str, *flags: str) -> None:
    """Place and build a pipeline, and build it again, when nothing is left to do."""
    project = machine.place_(name)
    first = machine.run(project, "build", f"pipelines/{name}.yaml", *flags)
    assert first.returncode == 0, first.stderr
    assert f"sandbox: {machine.tier}" in first.stderr
    again = machine.run(project, "build", f"pipelines/{name}.yaml", *flags)
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith(f"{name}: up to date (")


@pytest.mark.stride(11)
@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(
    "machine",
    [
        ("landlock", "self"),
        pytest.param(("namespaces", "nobody"), marks=pytest.mark.thorough),
        pytest.param(("bubblewrap", "nobody"), marks=pytest.mark.thorough),
        pytest.param(("landlock", "nobody"), marks=pytest.mark.thorough),
    ],
    indirect=True,
    ids="-".join,
)
def test_each_shipped_pipeline_builds_in_each_tier(machine: Machine, name: str) -> None:
    built(machine, name)


@pytest.mark.parametrize("machine", [(tier, "nobody") for tier in TIERS], indirect=True, ids="-".join)
def test_nobody_builds_in_each_tier(machine: Machine) -> None:
    """One that renders, asks, runs programs and tests stands for the others, which `make thorough` builds."""
    built(machine, "tdd_loop")


@pytest.mark.stride(5)
@pytest.mark.parametrize("name", ["quickstart", "layered_app"])
@pytest.mark.parametrize("machine", [("none", "self"), ("none", "nobody")], indirect=True, ids="-".join)
def test_without_any_tier_each_is_refused_and_builds_where_that_is_allowed(machine: Machine, name: str) -> None:
    project = machine.place_(name)
    refused = machine.run(project, "build", f"pipelines/{name}.yaml")
    assert refused.returncode == 78
    assert "E483" in refused.stderr
    assert ALLOWED in refused.stderr
    assert not (project / "workspace").exists()
    built(machine, name, ALLOWED)
