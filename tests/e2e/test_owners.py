"""An output has one owner in a project, also where only a run tells which files a stage writes."""

import json

import pytest

from tests.e2e.pipelines import pipeline as model_pipeline
from tests.e2e.pipelines import proposing
from tests.project import Project

COPY = "mkdir -p site && cp in.txt site/page.txt"


def pipeline(name: str, **stages: object) -> dict[str, str]:
    return {f"{name}.yaml": json.dumps({"version": 1, "name": name, "stages": stages})}


@pytest.fixture
def two(project: Project) -> Project:
    """Give a project of which a.yaml has made site/page.txt, and b.yaml would make it too."""
    one = {"inputs": ["in.txt"], "outputs": ["site/page.txt"], "shell": COPY}
    other = {"inputs": ["in.txt"], "outputs": ["site/"], "shell": f"{COPY} && echo b >> site/page.txt"}
    project.write({"in.txt": "1\n", **pipeline("a", page=one), **pipeline("b", pages=other)})
    assert project.build("a.yaml").code == 0
    return project


@pytest.mark.slow
def test_a_file_in_a_folder_output_is_refused_once_it_is_written(two: Project) -> None:
    outcome = two.build("b.yaml")
    assert outcome.code == 1
    assert "E712" in outcome.err
    assert "`page` in a.yaml" in outcome.err
    assert "orch23 release a.yaml page" in outcome.err
    assert two.read("site/page.txt") == "1\n"
    assert two.build("a.yaml").err == "a: up to date (1 stage)\n"


@pytest.mark.slow
def test_the_outcome_of_a_response_is_recorded_although_its_files_are_refused(two: Project) -> None:
    """It was accepted, and no result is stored with which its exchange would be written."""
    page = proposing("pages", {"site/page.txt": "'b'"})
    llm = "{outputs: [site/], llm: {prompt: pages.md.j2, returns: files}}"
    two.write(model_pipeline(f"  pages: {llm}\n", {"pages.md.j2": page}))
    outcome = two.build("pipeline.yaml")
    assert outcome.code == 1
    assert "E712" in outcome.err
    (recorded,) = (two.root / ".orch23/exchanges").glob("??/*.json")
    assert json.loads(recorded.read_text())["outcome"] == "accepted"


@pytest.mark.slow
def test_after_the_older_owner_is_released_the_file_is_not_overwritten_without_a_word(two: Project) -> None:
    assert two.run("release", "a.yaml", "page").code == 0
    two.delete("a.yaml")
    outcome = two.build("b.yaml")
    assert outcome.code == 6, "it is the user's file now, and a program would overwrite it"
    assert two.read("site/page.txt") == "1\n"
    assert two.build("b.yaml", "--overwrite-edited").code == 0
    assert two.read("site/page.txt") == "1\nb\n"


@pytest.mark.slow
def test_a_stage_that_moves_to_another_pipeline_takes_its_files_with_it(project: Project) -> None:
    page = {"inputs": ["in.txt"], "outputs": ["page.txt"], "shell": "cp in.txt page.txt"}
    keep = {"outputs": ["k.txt"], "shell": "echo k > k.txt"}
    project.write({"in.txt": "1\n", **pipeline("a", page=page, keep=keep)})
    assert project.build("a.yaml").code == 0
    project.write({**pipeline("a", keep=keep), **pipeline("b", page=page)})
    assert project.build("b.yaml").code == 0
    assert project.run("clean", "a.yaml").out == "removed 1 file\n"
    assert project.read("page.txt") == "1\n", "it is a file of the other pipeline now"
    assert not project.exists("k.txt")
    assert project.build("a.yaml").code == 0
    assert project.read("page.txt") == "1\n"
    assert project.build("b.yaml").err == "b: up to date (1 stage)\n"


@pytest.mark.slow
def test_items_that_are_known_late_are_refused_before_they_run(project: Project) -> None:
    items = {
        "foreach": {"from": "list.json", "as": "one", "key": "id"},
        "outputs": ["${{ one.id }}.txt"],
        "shell": ["sh", "-c", "echo item > x.txt; echo item > y.txt"],
    }
    lister = {"inputs": ["in.txt"], "outputs": ["list.json"], "shell": "cp in.txt list.json"}
    older = {"outputs": ["x.txt"], "shell": "echo older > x.txt"}
    project.write(
        {"in.txt": '[{"id": "x"}]', **pipeline("a", older=older), **pipeline("b", lister=lister, items=items)}
    )
    assert project.build("a.yaml").code == 0
    outcome = project.build("b.yaml")
    assert outcome.code == 1
    assert "`older` in a.yaml" in outcome.err
    assert not [event for event in project.events_of("attempt_started") if event["role"] == "items@x"]
    assert project.read("x.txt") == "older\n"


@pytest.mark.slow
def test_a_pipeline_that_cannot_be_loaded_keeps_its_files(two: Project) -> None:
    two.write({"a.yaml": "version: 1\nstages: {page: {outputs: [site/page.txt], shel: x}}\n"})
    outcome = two.build("b.yaml")
    assert outcome.code == 1
    assert "E712" in outcome.err
    assert two.read("site/page.txt") == "1\n"
