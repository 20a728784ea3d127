"""The floor builds what is right, builds again what an edit changes, and finds nothing to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.floor_store import take
from bench.graph import BLOCK, make_graph
from bench.project import Project
from bench.tools.floor import START, TEXT, text

pytestmark = pytest.mark.slow  # it starts the commands of a hundred stages


def run(root: Path, *arguments: str, code: int = 0) -> str:
    home = root.with_name("home")
    home.mkdir(exist_ok=True)
    argv = [sys.executable, "-I", "-c", START, *arguments]
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def project(root: Path, *, cat: bool = False) -> Project:
    made = Project(root / "project", make_graph(BLOCK, cat=cat), text)
    made.place_()
    return made


@pytest.mark.stride(2)
@pytest.mark.parametrize("cat", [False, True])
def test_it_builds_and_rebuilds_what_is_right_and_then_has_nothing_to_do(tmp_path, cat) -> None:
    made = project(tmp_path, cat=cat)
    assert len(run(made.root, "plan").splitlines()) == BLOCK + 1
    assert run(made.root, "build") == f"{BLOCK} built\n"
    assert made.wrong() == []
    assert run(made.root, "build") == "0 built\n"
    made.write_source(made.graph.leaf_source, "edited\n")
    assert run(made.root, "build") == "1 built\n"
    assert made.wrong() == []
    assert run(made.root, "build") == "0 built\n"


def test_a_deleted_output_is_restored_and_an_edited_one_is_kept_or_replaced(tmp_path) -> None:
    made = project(tmp_path)
    run(made.root, "build")
    (made.root / made.graph.middle_output).unlink()
    run(made.root, "build")
    assert made.wrong() == []
    made.tamper(made.graph.middle_output)
    assert "a user edited it" in run(made.root, "build", code=1)
    run(made.root, "build", "--overwrite-edited")
    assert made.wrong() == []


def test_an_edit_of_a_source_and_of_a_line_reach_what_depends_on_them(tmp_path) -> None:
    made = project(tmp_path)
    run(made.root, "build")
    made.write_source(made.graph.root_source, made.graph.sources[made.graph.root_source] * 2)
    assert run(made.root, "build") == "1 built\n"
    made.write_source(made.graph.root_source, "another line\n")
    run(made.root, "build")
    assert made.wrong() == []


def test_a_failed_step_changes_nothing_and_a_table_of_someone_else_is_not_used(tmp_path) -> None:
    made = project(tmp_path)
    run(made.root, "build")
    lines = (made.root / TEXT).read_text().splitlines()
    _, output, *inputs = lines[0].split("\t")
    before = (made.root / output).read_text()
    failing = "\t".join((f"echo x > {output}; false", output, *inputs))
    (made.root / TEXT).write_text("\n".join([failing, *lines[1:]]) + "\n")
    assert "status" in run(made.root, "build", code=1)
    assert (made.root / output).read_text() == before
    (made.root / TEXT).write_text("\n".join(lines) + "\n")
    table = made.root / ".floor" / "rows"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    run(made.root, "build")
    assert made.wrong() == []


def test_a_file_that_was_just_written_is_compared_again(tmp_path) -> None:
    (tmp_path / "file").write_text("text")
    assert take(str(tmp_path / "file")) == (b"text", (0, 0))
