"""A check of an installed distribution: only for the pipeline that names it, and with its version in the key."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orch23.checks.registry import GROUP as CHECKS_GROUP
from orch23.checks.registry import checks_of, revision_of
from orch23.model.errors import ConfigurationError
from orch23.model.plugins import not_installed
from tests.project import Project, decisions

CODE = """\
from orch23.checks.check import Check
from orch23.model.diagnostic import Diagnostic


def run(given):
    bad = [path for path, data in given.outputs.items() if b"forbidden" in data]
    return tuple(Diagnostic("ACME1", f"`{path}` has a forbidden word", hint="use another") for path in bad)


NO_WORD = Check("no_word", 3, run)
NOT_A_CHECK = 5
"""
PIPELINE = """\
version: 1
plugins: [Acme-Checks]
stages:
  a: {inputs: [in.txt], outputs: [out.txt], shell: [cp, in.txt, out.txt], verify: [{check: no_word}]}
"""


def wheel(folder: Path, version: str) -> Path:
    """Make a wheel of a distribution with one check, as its author would publish it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"acme_checks-{version}-py3-none-any.whl"
    info = f"acme_checks-{version}.dist-info"
    files = {
        "acme_checks.py": CODE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: acme-checks\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[{CHECKS_GROUP}]\nno_word = acme_checks:NO_WORD\nodd = acme_checks:NOT_A_CHECK\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))
    return path


def install(made: Path, site: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--upgrade", "--target", site, made], check=True, capture_output=True)


class Installed:
    """A project, and a folder of installed distributions beside it."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.site = project.write({"pipeline.yaml": PIPELINE, "in.txt": "good\n"}), folder / "site"
        self.folder = folder

    def install(self, version: str) -> None:
        shutil.rmtree(self.site, ignore_errors=True)  # pip leaves what another version had in a `--target`
        install(wheel(self.folder / "wheels", version), self.site)

    def run(self, *argv: str) -> tuple[int, str]:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.project.home), "ORCH23_TRUST": "1"}
        program = [sys.executable, "-c", "from orch23.entry import run; run()"]
        env |= {"PYTHONPATH": f"{self.site}:{Path(__file__).parents[2]}"}
        done = subprocess.run(
            [*program, *argv], cwd=self.project.root, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_check_of_an_installed_wheel_judges_outputs_and_its_version_is_in_the_key(
    project: Project, tmp_path: Path
) -> None:
    world = Installed(project, tmp_path)
    code, told = world.run("plan")
    assert code == 65
    assert "error[E844]: the plugin `Acme-Checks` is not installed\n --> pipeline.yaml:2:11" in told
    assert "E828" not in told, "that follows from it"
    world.install("1.0")
    code, told = world.run("build")
    assert (code, "1 built" in told) == (0, True), told
    code, told = world.run("build")
    assert (code, "up to date" in told) == (0, True), told
    assert "acme-checks 1.0, revision 3" in project.read("pipeline.lock")
    world.install("1.1")
    code, told = world.run("plan", "--json")
    assert (code, decisions(told)) == (0, {"a": "verify"}), "another version may judge otherwise"
    assert world.run("build")[0] == 0
    assert "acme-checks 1.1, revision 3" in project.read("pipeline.lock")
    project.edit("in.txt", "a forbidden word\n")
    code, told = world.run("build")
    assert code == 1
    assert "[ACME1]" in told
    assert "`out.txt` has a forbidden word" in told


@pytest.mark.slow
def test_a_distribution_that_is_only_installed_adds_nothing(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    project.edit("pipeline.yaml", PIPELINE.replace("plugins: [Acme-Checks]\n", ""))
    code, told = world.run("plan")
    assert code == 65
    assert "error[E828]: no check is named `no_word`" in told


def test_what_a_plugin_has_is_looked_up_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(wheel(tmp_path, "2.0")) as archive:
        archive.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    names = ("acme-checks", "no-such-distribution")
    checks = checks_of(names)
    assert not_installed(names) == ("no-such-distribution",)
    assert "no_word" in checks
    assert "json_schema" in checks
    assert "other" not in checks
    assert [name for name in checks if name not in checks_of(())] == ["no_word", "odd"]
    assert (checks["no_word"].name, revision_of(checks, "no_word")) == ("no_word", "acme-checks 2.0, revision 3")
    assert revision_of(checks, "json_schema") == 1
    with pytest.raises(KeyError):
        checks["other"]
    with pytest.raises(ConfigurationError, match=r"`odd` of acme-checks 2.0 \(entry points orch23.checks\) is none: 5"):
        checks["odd"]


@pytest.mark.parametrize(("over", "check"), [("in: [x]", "nope"), ("in: [x]", "${{ item }}"), ("from: l.json", "nope")])
def test_an_unknown_check_in_a_foreach_is_told_before_anything_runs(project: Project, over: str, check: str) -> None:
    project.write(
        {
            "pipeline.yaml": f"""\
version: 1
stages:
  list: {{outputs: [l.json], shell: "echo '[1]' > l.json"}}
  a:
    foreach: {{{over}}}
    outputs: ["out/${{{{ item }}}}"]
    shell: [touch, "out/${{{{ item }}}}"]
    verify: [{{check: "{check}"}}]
"""
        }
    )
    outcome = project.build()
    assert (outcome.code, outcome.err.count("error[")) == (65, 1), outcome.err
    assert "error[E828]: no check is named `" in outcome.err
