"""What is damaged in the store, or replaced in the workspace, is noticed: healed, made again, or told."""

import shutil

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, shell
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

COPY = "  copy: {inputs: [in.txt], outputs: [out.txt], shell: cp in.txt out.txt}\n"
ASK = "  ask: {inputs: [out.txt], outputs: [said.txt], llm: {prompt: ask.md.j2, returns: text}}\n"
FILES = {"in.txt": "x\n", "ask.md.j2": prompt("ask", "{{ inputs[0].text }}")}


def stored(project: Project, part: str) -> None:
    """Cut the ends off all files of one part of the store."""
    place = project.root / ".orch23" / part
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("part", ["cas", "records", "exchanges", "index.sqlite"])
def test_a_damaged_part_of_the_store_is_made_again(project: Project, part: str) -> None:
    project.write(pipeline(COPY + ASK, FILES))
    green(project.build())
    before = project.files()
    for path in ("out.txt", "said.txt", "pipeline.lock"):
        project.delete(path)
    stored(project, part)
    green(project.build())
    assert project.files() == before
    assert calls(project) == ["ask"], "bytes, record and answer stand in for each other"


def test_damaged_bytes_of_the_right_size_are_never_restored(project: Project) -> None:
    project.write(shell(COPY, {"in.txt": "x"}))
    green(project.build())
    project.delete("out.txt")
    for path in (project.root / ".orch23/cas").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"y")
    assert project.plan() == {"copy": "restore"}, "a dry-run reads no bytes it does not need"
    green(project.build())
    assert project.read("out.txt") == "x"
    assert ends(project) == {"copy": "built"}
    green(project.build())
    assert project.ran() == []


def test_an_output_that_became_a_link_is_not_written_through(project: Project) -> None:
    project.write(shell(COPY, {"in.txt": "x\n"}))
    green(project.build())
    project.delete("out.txt")
    (project.root / "out.txt").symlink_to("in.txt")
    project.edit("in.txt", "y\n")
    assert project.build().code in {2, 6}
    assert project.read("in.txt") == "y\n"
    assert (project.root / "out.txt").is_symlink()


def test_an_output_that_became_a_folder_is_left_and_reported(project: Project) -> None:
    project.write(shell(COPY, {"in.txt": "x\n"}))
    green(project.build())
    project.delete("out.txt")
    project.write({"out.txt/mine": "mine\n"})
    stopped = project.build()
    assert stopped.code in {2, 6}
    assert "out.txt" in stopped.err
    assert project.read("out.txt/mine") == "mine\n"


@pytest.mark.slow
def test_an_edited_output_blocks_what_reads_it_until_it_is_accepted(project: Project) -> None:
    project.write(shell(COPY + "  next: {inputs: [out.txt], outputs: [n.txt], shell: cp out.txt n.txt}\n", FILES))
    green(project.build())
    project.edit("out.txt", "mine\n")
    assert project.plan() == {"copy": "edited", "next": "blocked"}
    assert project.build().code == 6
    assert ends(project) == {"copy": "edited", "next": "blocked"}
    assert project.read("n.txt") == "x\n"
    green(project.run("accept", "copy"))
    assert project.plan() == {"copy": "fresh", "next": "run"}
    green(project.build())
    assert project.read("n.txt") == "mine\n"


@pytest.mark.slow
def test_a_clean_tree_comes_back_from_the_store_and_a_reset_store_from_the_answers(project: Project) -> None:
    project.write(pipeline(COPY + ASK, FILES))
    green(project.build())
    before = project.files()
    green(project.run("clean"))
    assert not project.exists("out.txt")
    assert not project.exists("said.txt")
    green(project.build())
    assert project.ran() == []
    assert project.files() == before
    green(project.run("reset"))
    green(project.build())
    assert calls(project) == ["ask"]
    assert project.files() == before


@pytest.mark.slow
def test_a_replay_asks_no_one(project: Project) -> None:
    project.write(pipeline(COPY + ASK, FILES))
    assert project.build("--replay").code == 5
    assert calls(project) == []
    green(project.build())
    shutil.rmtree(project.root / ".orch23/records")
    for path in ("out.txt", "said.txt", "pipeline.lock"):
        project.delete(path)
    green(project.build("--replay"))
    assert calls(project) == ["ask"]


def test_a_model_that_cannot_be_asked_is_a_failure_of_the_provider_and_stops_only_its_stage(project: Project) -> None:
    aside = f"  aside: {{outputs: [a.txt], shell: 'echo a > a.txt; {note(project, 'aside')}'}}\n"
    project.write(pipeline(COPY + ASK + aside, FILES))
    project.edit("model.py", "import sys\nsys.exit('no quota')\n")
    failed = project.build("-k")
    assert failed.code == 5
    assert "no quota" in failed.err
    assert noted(project) == ["aside"]
    assert ends(project) == {"copy": "built", "ask": "failed", "aside": "built"}
