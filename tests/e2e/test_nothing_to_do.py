"""A build with nothing to do, as a process of its own: what it says and leaves, and how little it loads."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import orch23 as package
from orch23.snapshot.signatures import FINE_RACY_NS, is_racy
from tests.project import Project

pytestmark = pytest.mark.slow

AHEAD = "import time; real = time.time_ns; time.time_ns = lambda: real() + 10**10"  # so that no file is young
PROGRAM = f"""
{AHEAD}
import sys
from orch23.entry import main
code = main(sys.argv[1:])
with open("modules", "w") as stream:
    stream.write("\\n".join(sys.modules))
sys.exit(code)
"""
PIPELINE = """\
version: 1
name: story
stages:
  one: {shell: [cp, a.txt, one.txt], inputs: [a.txt], outputs: [one.txt]}
  two: {render: {template: two.j2}, inputs: ["*.md", one.txt], outputs: [two.txt]}
  three: {if: false, shell: [cp, a.txt, three.txt], inputs: [a.txt], outputs: [three.txt]}
"""


def orch23(root: Path, *argv: str, program: str = PROGRAM, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *argv]
    return subprocess.run(
        command, cwd=root, env=os.environ | environ, capture_output=True, text=True, check=False, timeout=60
    )


def was_quick(root: Path) -> bool:
    """Say whether the last process answered without what reads pipelines."""
    loaded = set((root / "modules").read_text().splitlines())
    heavy = {"click", "yaml", "jinja2", "networkx", "pathlib", "json", "re", "dataclasses", "subprocess"}
    return not loaded & (heavy | {"orch23.cli.main"})


@pytest.fixture
def root(project: Project) -> Path:
    project.write({"pipeline.yaml": PIPELINE, "a.txt": "a\n", "b.md": "b\n", "two.j2": "{{ inputs[0].text }}"})
    assert orch23(project.root, "build").returncode == 0
    assert orch23(project.root, "build").returncode == 0
    assert not was_quick(project.root)
    return project.root


def test_it_says_the_same_and_loads_nothing(root: Path) -> None:
    done = orch23(root, "build")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "story: up to date (2 stages, 1 skipped)\n")
    assert was_quick(root)
    assert "hashlib" not in (root / "modules").read_text().splitlines()


def test_it_loads_nothing_a_moment_after_the_build_that_made_everything(project: Project) -> None:
    """The files, and a folder that a pattern lists, are as young as they can be."""
    pipeline = """\
version: 1
stages:
  one: {shell: [cp, a.txt, made/one.txt], inputs: [a.txt], outputs: [made/one.txt]}
  two: {shell: [cp, made/one.txt, two.txt], inputs: ["made/*.txt"], outputs: [two.txt]}
"""
    root = project.write({"pipeline.yaml": pipeline, "a.txt": "a\n"}).root
    found = (root / "a.txt").stat()
    if is_racy(found.st_dev, 0, found.st_ctime_ns, found.st_ctime_ns + FINE_RACY_NS):
        pytest.skip("the clock of this file system is not known to be fine")
    while time.time_ns() < found.st_ctime_ns + 2 * FINE_RACY_NS:
        pass
    program = PROGRAM.replace(AHEAD, "")
    for quick in (False, True, True):
        done = orch23(root, "build", program=program)
        assert (done.returncode, was_quick(root)) == (0, quick), done.stderr
        assert quick is ("hashlib" not in (root / "modules").read_text().splitlines())
    (root / "made" / "new.txt").write_text("")
    assert orch23(root, "build", program=program).returncode == 0
    assert not was_quick(root)


def test_a_forced_stage_runs_each_time_and_leaves_the_build_without_force_nothing_to_decide(root: Path) -> None:
    for option in ("--force", "-f", "--force"):
        done = orch23(root, "build", option, "one")
        assert (done.returncode, "1 built" in done.stderr, was_quick(root)) == (0, True, False), done.stderr
        assert (orch23(root, "build").returncode, was_quick(root)) == (0, True)


def test_what_a_variable_forces_runs_in_each_build(root: Path) -> None:
    for _ in range(3):
        done = orch23(root, "build", ORCH23_BUILD_FORCE="one")
        assert (done.returncode, "1 built" in done.stderr) == (0, True), done.stderr


def test_plan_too(root: Path) -> None:
    done = orch23(root, "plan")
    assert was_quick(root)
    (root / "plan.j2").touch()  # nothing of the pipeline
    slow = orch23(root, "plan", "--verbose")
    assert not was_quick(root)
    assert (done.returncode, done.stdout, done.stderr) == (0, slow.stdout, "")


def test_status_too(root: Path) -> None:
    done = orch23(root, "status")
    assert was_quick(root)
    slow = orch23(root, "-C", ".", "status")
    assert not was_quick(root)
    assert (done.returncode, done.stdout, done.stderr) == (0, slow.stdout, "")
    assert "up to date" in done.stdout


def test_another_question_is_not_answered(root: Path) -> None:
    for argv in (["build", "one"], ["build", "-v"], ["status", "--json"], ["status", "two"], ["plan", "two"]):
        assert orch23(root, *argv).returncode == 0
        assert not was_quick(root)
    assert orch23(root, "build", "one").returncode == 0
    assert was_quick(root)


def test_with_how_many_jobs_nothing_is_done_does_not_matter(root: Path) -> None:
    for argv in (["-j1"], ["-j", "4"], ["--jobs=2", "-k"], ["--jobs", "8", "--keep-going"]):
        assert orch23(root, "build", *argv).returncode == 0
        assert was_quick(root)
    for argv in (["-j0"], ["-jx"], ["--jobs"], ["-j", "one"]):
        assert orch23(root, "build", *argv).returncode == 64
        assert not was_quick(root)


SHARED = ("--overwrite-edited", "--allow-unsandboxed", "--offline", "--replay", "--keep-going")


@pytest.mark.stride(5)
@pytest.mark.parametrize("option", SHARED)
def test_builds_with_and_without_an_option_that_decides_nothing_are_quick_after_each_other(
    root: Path, option: str
) -> None:
    assert orch23(root, "build", option).returncode == 0
    assert was_quick(root)
    (root / "one.txt").unlink()  # a build with the option does something
    assert "1 restored" in orch23(root, "build", option).stderr
    assert not was_quick(root)
    for argv in (["build"], ["plan"], ["build", option]):
        done = orch23(root, *argv)
        assert (done.returncode, was_quick(root)) == (0, True), (argv, done.stderr)


def test_an_edit_that_was_overwritten_leaves_the_next_build_nothing_to_decide(root: Path) -> None:
    (root / "one.txt").write_text("by hand\n")
    assert "1 restored" in orch23(root, "build", "--overwrite-edited").stderr
    assert orch23(root, "build").returncode == 0
    assert was_quick(root)
    (root / "one.txt").write_text("by hand\n")
    assert orch23(root, "build").returncode == 6


def test_options_that_contradict_each_other_are_refused_with_nothing_to_do(root: Path) -> None:
    assert orch23(root, "build", "--replay", "--offline").returncode == 64


def test_options_in_the_environment_count(root: Path) -> None:
    assert orch23(root, "build", ORCH23_BUILD_VERBOSE="1").returncode == 0
    assert not was_quick(root)
    options = {"ORCH23_STATUS_ALL": "1", "ORCH23_PLAN_JSON": "1"}
    assert orch23(root, "build", **options).returncode == 0
    assert "\n = one  " in orch23(root, "status", **options).stdout
    assert "orch23_plan" in orch23(root, "plan", **options).stdout


def test_a_stage_to_run_is_run_and_the_build_after_it_is_quick_again(root: Path) -> None:
    (root / "a.txt").write_text("other\n")
    assert "2 stages" in orch23(root, "plan").stdout
    assert "1 built" in orch23(root, "build", "one").stderr
    for quick in (False, True, True):
        assert orch23(root, "build").returncode == 0
        assert was_quick(root) == quick
    assert (root / "one.txt").read_text() == "other\n"


def test_a_new_file_of_a_pattern_is_seen(root: Path) -> None:
    (root / "a.md").write_text("new\n")
    assert "two" in orch23(root, "plan").stdout
    assert orch23(root, "build").returncode == 0
    assert (root / "two.txt").read_text() == "new\n"


def test_its_journal_tells_that_it_began_and_ended(root: Path) -> None:
    before = set((root / "logs").glob("*.jsonl"))
    orch23(root, "build")
    (journal,) = set((root / "logs").glob("*.jsonl")) - before
    began, ended = map(json.loads, journal.read_text().splitlines())
    assert (began["type"], began["data"]["run_id"], began["seq"]) == ("run_started", journal.stem, 1)
    assert (ended["type"], ended["data"]["stages"], ended["seq"]) == ("run_finished", {"fresh": 2, "skipped": 1}, 2)
    assert began["ts"] == ended["ts"] > "2026"
    (reported,) = (line for line in orch23(root, "runs").stdout.splitlines() if line.startswith(f"{journal.stem} "))
    assert "2 fresh" in reported
    assert journal.stem.split("-")[1] == began["data"]["key"] == began["data"]["run_id"].split("-")[1]
    assert len(began["data"]["key"]) == 8
    assert "run_finished" in orch23(root, "log", journal.stem).stdout
    assert '"SUCCESS"' in orch23(root, "log", "--state", journal.stem).stdout


def test_beside_another_build_it_says_who_that_is(root: Path) -> None:
    with (root / ".orch23" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        done = orch23(root, "build")
    assert done.returncode == 75
    assert "process 4711 holds the lock" in done.stderr


def test_the_version_is_reported_without_loading_anything(project: Project) -> None:
    done = orch23(project.root, "--version")
    assert was_quick(project.root)
    slow = orch23(project.root, "--color", "never", "--version")
    assert not was_quick(project.root)
    assert (done.returncode, done.stdout, done.stderr) == (0, slow.stdout, slow.stderr) != (0, "", "")


def test_an_orch23_that_was_installed_again_decides_again(root: Path, tmp_path: Path) -> None:
    libraries = tmp_path / "site-packages"
    shutil.copytree(Path(package.__file__).parent, libraries / "orch23")
    environ = {"PYTHONPATH": str(libraries)}
    for _ in range(2):
        assert orch23(root, "build", **environ).returncode == 0
    assert orch23(root, "build", **environ).returncode == 0
    assert was_quick(root)
    module = libraries / "orch23" / "report" / "values.py"
    module.with_name("new").write_bytes(module.read_bytes())
    module.with_name("new").replace(module)  # as installers do
    assert orch23(root, "build", **environ).returncode == 0
    assert not was_quick(root)


def test_reading_writes_nothing(root: Path) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*")) if path.name != "modules"}

    (root / "a.txt").touch()
    before = stamps()
    assert orch23(root, "plan").returncode == 0
    assert was_quick(root)
    assert stamps() == before
