"""A build after an edit uses the parameters that an earlier build parsed, and loads no click."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orch23 as package
from orch23.cli.parameters import PARSED_FACT
from orch23.model.errors import ExitCode
from orch23.snapshot.stat_snapshot import StatSnapshot, parse_snapshot
from orch23.snapshot.store_registry import sealing_key
from tests.e2e.test_nothing_to_do import orch23
from tests.project import Project

pytestmark = pytest.mark.slow

PIPELINE = """\
version: 1
name: story
vars: {word: nothing}
defaults: {sandbox: off}
stages:
  one: {shell: [cp, a.txt, one.txt], inputs: [a.txt], outputs: [one.txt]}
  two: {shell: "cat one.txt > two.txt; echo ${{ vars.word }} >> two.txt", inputs: [one.txt], outputs: [two.txt]}
"""
ROOT = Path(package.__file__).parents[1]
PARSER = "orch23.cli.commands.building"
SANDBOXES = {f"orch23.execute.sandbox.{name}" for name in ("bubblewrap", "landlock", "restricted", "seccomp")}
NEEDLESS = SANDBOXES | {"socket", "shutil", "secrets", "tempfile", "typing_extensions", "inspect", "networkx", "yaml"}


@pytest.fixture
def root(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")
    project.write({"pipeline.yaml": PIPELINE, "a.txt": "a\n"})
    return project.root


def build(root: Path, *argv: str, **environ: str) -> tuple[int, str, set[str]]:
    """Build after an edit, and return the exit code, what was written, and the modules that were loaded."""
    (root / "a.txt").write_text(f"{(root / 'a.txt').read_text()}x")
    done = orch23(root, "build", *argv, **environ)
    assert done.returncode or (root / "one.txt").read_text() == (root / "a.txt").read_text()
    return done.returncode, done.stdout + done.stderr, set((root / "modules").read_text().splitlines())


def snapshot_of(root: Path) -> StatSnapshot:
    (path,) = (root / ".orch23/snapshots").iterdir()
    snapshot = parse_snapshot(path.read_bytes(), sealing_key(str(root / ".orch23")) or b"")
    assert snapshot is not None
    return snapshot


def parser_in(snapshot: StatSnapshot) -> tuple[list[str], list[str]]:
    """Return the files and the folders of a snapshot that show an edit of the parser; folders if it is installed."""
    file = f"/{PARSER.replace('.', '/')}.py"
    folder = file.rpartition("/")[0]
    files = [path for path in snapshot.paths if path.endswith(file)]
    return files, [path for path in snapshot.outside if path.endswith(folder)]


def test_after_an_edit_neither_click_nor_any_sandbox_is_loaded(root: Path) -> None:
    code, said, loaded = build(root)
    assert code == 0
    assert "click" in loaded
    for _ in range(2):
        code, again, loaded = build(root)
        assert (code, again.splitlines()[-1][:20]) == (0, said.splitlines()[-1][:20])
        assert "orch23.cli.main" in loaded
        assert loaded & (NEEDLESS | {"click"}) == set()
        assert any(parser_in(snapshot_of(root))), "an edit of the parser would go unnoticed"


def test_with_another_option_the_command_line_is_parsed_again(root: Path) -> None:
    build(root)
    for argv in (("-j", "1"), ("-k",), ("-j1", "-k")):
        assert "click" in build(root, *argv)[2]
        assert "click" not in build(root, *argv)[2], "the snapshot has this command line now"
    assert json.loads(snapshot_of(root).facts[PARSED_FACT])[0] == ["build", "-j1", "-k"]


def test_the_parameters_are_those_of_the_command_line(root: Path) -> None:
    argv = ("pipeline.yaml", "--set", "word=two words", "-q", "two")
    code, said, loaded = build(root, *argv)
    assert (code, said, "click" in loaded) == (0, "", True)
    (root / "two.txt").unlink()
    code, said, loaded = build(root, *argv)
    assert (code, said, "click" in loaded) == (0, "", False)
    assert (root / "two.txt").read_text().endswith("two words\n")


def test_a_text_of_the_environment_is_not_stored(root: Path) -> None:
    environ = {"ORCH23_BUILD_SET": "word=secret-word"}
    for _ in range(2):
        assert "click" in build(root, **environ)[2]
    assert (root / "two.txt").read_text().endswith("secret-word\n")
    assert PARSED_FACT not in snapshot_of(root).facts
    assert not any(b"secret-word" in path.read_bytes() for path in (root / ".orch23/snapshots").iterdir())


def test_a_switch_of_the_environment_is_stored(root: Path) -> None:
    for is_first in (True, False):
        assert ("click" in build(root, ORCH23_BUILD_KEEP_GOING="1")[2]) is is_first
    assert json.loads(snapshot_of(root).facts[PARSED_FACT])[2]["keep_going"] is True


def test_another_environment_is_parsed_again(root: Path) -> None:
    build(root)
    code, said, loaded = build(root, ORCH23_BUILD_JOBS="none")
    assert (code, "click" in loaded) == (ExitCode.USAGE, True)
    assert "'none' is not a valid integer range" in said


def test_a_directory_of_the_environment_is_used_each_time(root: Path) -> None:
    below = root / "below"
    below.mkdir()
    for number in range(3):
        (root / "a.txt").write_text(f"{number}\n")
        done = orch23(below, "build", "pipeline.yaml", ORCH23_DIRECTORY=str(root))
        assert (done.returncode, (root / "one.txt").read_text()) == (0, f"{number}\n"), done.stderr


def test_errors_are_the_same(root: Path) -> None:
    build(root)
    (root / "pipeline.yaml").write_text(PIPELINE.replace("cp, a.txt", "false, a.txt"))
    failures = []
    for argv in (("build",), ("build", "-j1")):
        done = orch23(root, *argv)
        loaded = set((root / "modules").read_text().splitlines())
        failures.append((done.returncode, done.stdout, done.stderr.partition("logs/")[0], PARSER in loaded))
    (first, second) = failures
    assert first[0] != 0
    assert first[:3] == second[:3]
    assert (first[3], second[3]) == (False, True)


def test_a_changed_program_is_parsed_again(root: Path) -> None:
    build(root)
    snapshot = snapshot_of(root)
    files, folders = parser_in(snapshot)
    for file in files:
        snapshot.ctimes[snapshot.paths.index(file)] += 1
    snapshot.outside |= dict.fromkeys(folders, "changed")
    (path,) = (root / ".orch23/snapshots").iterdir()
    path.write_bytes(snapshot.to_bytes(sealing_key(str(root / ".orch23")) or b""))
    assert "click" in build(root)[2]


@pytest.mark.parametrize(
    "other", ["", "import typing_extensions\n", "import platform\nclass A(platform.uname_result): 1\n"]
)
def test_typing_extensions_can_be_imported_later(tmp_path: Path, other: str) -> None:
    (tmp_path / "typing_extensions.py").write_text("")
    if other:
        (tmp_path / "msgspec.py").write_text(other)
    code = "import sys; from orch23 import entry; entry._import_libraries('msgspec')"
    code += "; print('typing_extensions' in sys.modules); import msgspec, typing_extensions"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


LIBRARIES = """
import sys
from orch23 import entry
entry._import_libraries("msgspec", "pathlib", "subprocess")
late = {"platform", "msgspec.inspect", "urllib.parse", "locale", "selectors"}
assert not late & set(sys.modules)
import msgspec, pathlib, subprocess, uuid
print(msgspec.json.schema_components([int], ref_template="#/{name}")[0])
print(isinstance(msgspec.inspect.type_info(int), msgspec.inspect.IntType), msgspec.toml.decode("a = 1"))
print(pathlib.Path("/a b").as_uri(), uuid._LINUX)
done = subprocess.run(["sh", "-c", "cat; echo b >&2"], input="a", text=True, capture_output=True)
print(done.stdout, done.stderr)
import locale, platform, selectors, urllib.parse
print(platform.system(), urllib.parse.quote("a b"), locale.getpreferredencoding() != "", selectors.EVENT_READ)
assert late <= set(sys.modules)
"""


def test_libraries_without_some_of_their_imports_do_what_they_do_with_them() -> None:
    done = subprocess.run([sys.executable, "-c", LIBRARIES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.split("\n"), done.stderr) == (
        [
            *("({'type': 'integer'},)", "True {'a': 1}", "file:///a%20b True", "a b", ""),
            *("Linux a%20b True 1", ""),
        ],
        "",
    )
