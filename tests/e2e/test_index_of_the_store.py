"""The index of the store can be deleted, damaged, copied or unwritable: the answers stay the same."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.cli.partial_build import TABLE
from orch23.model.errors import ExitCode
from orch23.store.access import key_of_store
from orch23.store.index import StoreIndex
from tests.e2e.pipelines import shell
from tests.moments import Moments, age, noticed, run
from tests.project import Outcome, Project

STAGES = "".join(
    f"  s{n}: {{inputs: [in/{n}.txt], outputs: [out/{n}.txt], shell: [cp, in/{n}.txt, out/{n}.txt]}}\n"
    for n in range(70)
)
FILES = {f"in/{number}.txt": f"{number}\n" for number in range(70)}
INDEX = ".orch23/index.sqlite"


@pytest.fixture
def moments() -> Iterator[Moments]:
    """Give the moments of runs; files are believed soon, and edits are built by what they reach."""
    with noticed() as found:
        yield found


@pytest.fixture(scope="module")
def built_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a built project of 70 stages, to be copied."""
    project = Project(tmp_path_factory.mktemp("many") / "project")
    project.write(shell(STAGES, FILES))
    with noticed() as moments:
        assert ran(moments, project, "build").code == 0
    return project.root


@pytest.fixture
def many(project: Project, moments: Moments, built_many: Path) -> Project:
    """Give a copy of that project, at rest; its stages are not run again."""
    shutil.copytree(built_many, project.root, symlinks=True, dirs_exist_ok=True)
    (project.root / INDEX).unlink()
    assert ran(moments, project, "build").code == 0
    assert (project.root / INDEX).is_file()
    return project


def ran(moments: Moments, project: Project, *argv: str) -> Outcome:
    """Run the program as its command line does, with its snapshots."""
    age(str(project.root))
    with contextlib.chdir(project.root):
        return run(moments, *argv)


def edited(moments: Moments, project: Project, number: int, text: str, *, by_part: bool = True) -> None:
    """Edit one source, and build; one stage runs, and if `by_part` no other is decided."""
    project.write({f"in/{number}.txt": text})
    outcome = ran(moments, project, "build")
    assert outcome.code == 0, outcome.err
    assert "1 built, 69 fresh" in outcome.err
    assert project.read(f"out/{number}.txt") == text
    assert moments.counts["stage_decided"] == (1 if by_part else 70)


@pytest.mark.slow
def test_without_it_everything_is_decided_and_it_is_made_again(many: Project, moments: Moments) -> None:
    edited(moments, many, 3, "three\n")
    (many.root / INDEX).unlink()
    edited(moments, many, 4, "four\n", by_part=False)
    assert (many.root / INDEX).is_file()
    edited(moments, many, 5, "five\n")


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [b"", b"no database", b"SQLite format 3\0" + bytes(4080)], ids=["empty", "text", "zeros"]
)
def test_a_damaged_one_is_no_error(many: Project, moments: Moments, data: bytes) -> None:
    (many.root / INDEX).write_bytes(data)
    many.write({"in/3.txt": "three\n"})
    assert "1 of 70 stages to run" in ran(moments, many, "plan").out
    assert (many.root / INDEX).read_bytes() == data, "a plan writes nothing"
    edited(moments, many, 3, "three\n", by_part=False)
    edited(moments, many, 4, "four\n")


def rows_of_stages(project: Project) -> dict[bytes, bytes]:
    """Return the rows of the dependency index but the head, which has the ids of a run."""
    index = StoreIndex(project.root / INDEX, key_of_store(project.root / ".orch23"))
    (table,) = (name for name in index.tables() if name.startswith(TABLE))
    rows = dict(index.rows(table))
    index.close()
    del rows[b"head"]
    return rows


@pytest.mark.slow
def test_after_an_edit_of_the_graph_it_is_as_if_it_was_made_again(many: Project, moments: Moments) -> None:
    text = many.read("pipeline.yaml")
    more = "  new: {inputs: [out/9.txt], outputs: [out/new.txt], shell: [cp, out/9.txt, out/new.txt]}\n"
    edit = text.replace("{inputs: [in/3.txt]", "{inputs: [in/3.txt, out/4.txt]").replace("  s5:", "  other:") + more
    many.write({"pipeline.yaml": edit})
    before = rows_of_stages(many)
    outcome = ran(moments, many, "build")
    assert "71 stages: 2 built, 69 fresh" in outcome.err
    after = rows_of_stages(many)
    assert {key for key in before if after.get(key) == before[key]} >= {f"stage s{n}".encode() for n in range(60, 70)}
    (many.root / INDEX).unlink()
    shutil.rmtree(many.root / ".orch23/snapshots")
    assert ran(moments, many, "build").code == 0
    assert rows_of_stages(many) == after


@pytest.mark.slow
def test_after_an_edit_of_the_graph_missing_inputs_of_other_stages_are_reported(
    many: Project, moments: Moments
) -> None:
    text = many.read("pipeline.yaml")
    many.write({"pipeline.yaml": text.replace("{inputs: [in/3.txt]", "{inputs: [in/3.txt, none.txt]")})
    (many.root / "in/40.txt").unlink()
    for command in ("plan", "build"):
        outcome = ran(moments, many, command)
        assert outcome.code == ExitCode.INVALID
        missing = re.findall(r"input `(.+)` of stage `.+` does not exist", outcome.err)
        assert missing == ["none.txt", "in/40.txt"]


@pytest.mark.slow
def test_one_of_an_earlier_state_of_the_records_is_not_believed(many: Project, moments: Moments) -> None:
    before = (many.root / INDEX).read_bytes()
    snapshots = many.root / ".orch23/snapshots"
    shutil.copytree(snapshots, many.root / "kept")
    edited(moments, many, 3, "three\n")
    (many.root / INDEX).write_bytes(before)
    shutil.rmtree(snapshots)
    shutil.move(many.root / "kept", snapshots)
    assert "up to date (70 stages)" in ran(moments, many, "plan").out
    many.write({"in/3.txt": "3\n"})
    outcome = ran(moments, many, "build")
    assert "1 restored, 69 fresh" in outcome.err
    assert many.read("out/3.txt") == "3\n"


@pytest.mark.slow
def test_a_copied_project_answers_for_its_own_files(many: Project, moments: Moments, tmp_path: Path) -> None:
    copy = Project(tmp_path / "copy")
    shutil.copytree(many.root, copy.root, dirs_exist_ok=True)
    edited(moments, copy, 3, "in the copy\n", by_part=False)
    assert many.read("out/3.txt") == "3\n"
    assert "up to date (70 stages)" in ran(moments, many, "build").err
    edited(moments, many, 3, "at home\n")
    assert copy.read("out/3.txt") == "in the copy\n"
    assert "up to date (70 stages)" in ran(moments, copy, "build").err


@pytest.mark.slow
def test_on_a_file_system_that_cannot_be_written_a_plan_reads_it(many: Project, moments: Moments) -> None:
    many.write({"in/3.txt": "three\n"})
    script = (
        'set -e; mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; cd "$1"; '
        f"exec {sys.executable} -c 'from orch23.entry import run; run()' plan"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "ORCH23_TRUST": "1"}
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(many.root)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip("file systems cannot be mounted here")
    assert ran.returncode == 0, ran.stderr
    assert "1 of 70 stages to run" in ran.stdout
    assert not (many.root / f"{INDEX}-journal").exists()


@pytest.mark.slow
def test_it_holds_no_text_of_a_pipeline_that_is_a_secret(project: Project) -> None:
    secret = "hush-" + "x7Qk" * 6
    project.write(shell(f"{STAGES}  # {secret}\n", FILES))
    outcome = project.build(env={"A_TOKEN": secret})
    assert outcome.code == 0, outcome.err
    assert secret.encode() not in (project.root / INDEX).read_bytes()
    project.write({"in/3.txt": "three\n"})
    assert "1 built, 69 fresh" in project.build(env={"A_TOKEN": secret}).err
