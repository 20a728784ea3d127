"""`orch23 release` gives a file to the user: it is asked for before a stage writes it, also in a clone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.repository import EchoModel, Repository, addition, ends, green, llm, pipeline, spec

ZERO = {"zero": {"outputs": ["zero.txt"], "shell": "echo 0 > zero.txt"}}
EACH = {"foreach": {"in": [1], "as": "n"}, "inputs": ["S.md"], "outputs": ["out/${{ n }}.txt"]}
GENERATED: dict[str, dict[str, Any]] = {
    "shell": {"inputs": ["S.md"], "outputs": ["out/1.txt"], "shell": "mkdir -p out; cat S.md > out/1.txt"},
    "folder": {"inputs": ["S.md"], "outputs": ["out/"], "shell": "mkdir -p out; cat S.md > out/1.txt"},
    "render": {"inputs": ["S.md"], "outputs": ["out/1.txt"], "render": "copy.j2"},
    "item": {**EACH, "shell": "mkdir -p out; cat S.md > out/${{ n }}.txt"},
}
PATH = "out/1.txt"
Where = Callable[[Repository, Path], Repository]


@pytest.fixture(autouse=True)
def model() -> Iterator[EchoModel]:
    with EchoModel().answering() as answering:
        yield answering


def same(repository: Repository, _root: Path) -> Repository:
    return repository


def clone(repository: Repository, root: Path) -> Repository:
    return repository.clone(root / "clone")


def clone_without_its_lock(repository: Repository, root: Path) -> Repository:
    repository.delete("a.lock")
    repository.commit()
    return clone(repository, root)


def reset_clone(repository: Repository, root: Path) -> Repository:
    one = clone(repository, root)
    green(one.run("build", "a.yaml", "zero"))
    green(one.run("reset"))
    return one


WHERE = [same, clone, clone_without_its_lock, reset_clone]


def released(root: Path, stage: dict[str, Any], *, removed: bool = False) -> Repository:
    """Return a project whose stage `make` was built, committed and released; with `removed`, it is declared again."""
    repository = Repository(root / "project")
    repository.init()
    declared = pipeline({"make": stage, **ZERO})
    files = {"S.md": spec(f"{PATH}: a"), "copy.j2": "{{ inputs[0].text }}"}
    repository.write({**declared, **files})
    green(repository.run("build", "a.yaml"))
    repository.commit()
    green(repository.run("release", "a.yaml", "make"))
    if removed:
        repository.write(pipeline(ZERO))
        green(repository.run("build", "a.yaml"))
        repository.commit()
        repository.write(declared)
    repository.commit()
    return repository


@pytest.mark.stride(13)
@pytest.mark.slow
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", GENERATED)
def test_a_released_file_is_not_generated_again(tmp_path: Path, kind: str, where: Where, removed: bool) -> None:
    project = where(released(tmp_path, GENERATED[kind], removed=removed), tmp_path)
    before = project.read(PATH)
    project.edit("S.md", "another\n")
    for _ in range(2):
        assert project.run("build", "a.yaml").code == 6
        assert project.read(PATH) == before
    green(project.run("build", "a.yaml", "--overwrite-edited"))
    assert project.read(PATH) == "another\n"


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("outputs", [[PATH], ["out/"]])
def test_a_model_starts_from_a_released_file(
    tmp_path: Path, model: EchoModel, outputs: list[str], where: Where, removed: bool
) -> None:
    project = where(released(tmp_path, llm(["S.md"], outputs), removed=removed), tmp_path)
    project.edit("S.md", spec(f"{PATH}: b"))
    green(project.run("build", "a.yaml"))
    assert model.last.base == {PATH: addition("a")}
    assert project.read(PATH) == addition("a") + addition("b")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shell", "folder"])
def test_a_stage_that_makes_a_released_file_unchanged_owns_it_again(tmp_path: Path, kind: str) -> None:
    project = clone(released(tmp_path, GENERATED[kind]), tmp_path)
    green(project.run("build", "a.yaml"))
    assert "released" not in json.loads(project.read("a.lock"))
    project.edit("S.md", "another\n")
    green(project.run("build", "a.yaml"))
    assert project.read(PATH) == "another\n"


def test_a_release_does_not_bring_back_the_files_of_stages_that_have_ended(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "project")
    stages = {name: llm([f"{name}.md"], [f"{name}.txt"]) for name in ("one", "two")}
    repository.write({f"{name}.{end}": spec(f"{name}.txt: a") for name in stages for end in ("md", "txt")})
    for declared in (stages, {"two": stages["two"]}):
        repository.write(pipeline(declared))
        green(repository.run("build", "a.yaml"))
    made = repository.read("one.txt")
    green(repository.run("release", "a.yaml", "two"))
    green(repository.run("clean", "a.yaml"))
    assert repository.read("one.txt") == made


@pytest.mark.slow
def test_the_lock_file_has_a_released_file_until_it_is_deleted(tmp_path: Path) -> None:
    project = clone(released(tmp_path, GENERATED["shell"], removed=True), tmp_path)
    project.write(pipeline(ZERO))
    green(project.run("build", "a.yaml"))
    assert json.loads(project.read("a.lock"))["released"].keys() == {"make"}
    project.delete(PATH)
    project.edit("a.yaml", project.read("a.yaml").replace("echo 0", "echo 1"))
    green(project.run("build", "a.yaml"))
    assert "released" not in json.loads(project.read("a.lock"))


@pytest.mark.slow
def test_a_merge_with_a_branch_that_released_a_file_asks(tmp_path: Path) -> None:
    """One side of the conflict has released the file, the other one has the stage's record with these bytes."""
    other = Repository(tmp_path / "project")
    other.init()
    stages = {"make": GENERATED["shell"], **ZERO}
    other.write({**pipeline(stages), "S.md": "one\n"})
    green(other.run("build", "a.yaml"))
    other.commit()
    project = other.clone(tmp_path / "mine")
    green(other.run("release", "a.yaml", "make"))
    other.commit()
    project.write(pipeline({**stages, "make": {**GENERATED["shell"], "shell": "mkdir -p out; cp S.md out/1.txt"}}))
    green(project.run("build", "a.yaml"))
    project.commit()
    project.git("fetch", "-q", str(other.root), "main")
    with pytest.raises(AssertionError, match="merge"):
        project.git("merge", "FETCH_HEAD")
    project.commit()
    found = project.clone(tmp_path / "clone")
    found.edit("S.md", "another\n")
    assert found.run("build", "a.yaml").code == 6
    assert (found.read(PATH), ends(found)["make"]) == ("one\n", "edited")


ITEMS = [{"id": name, "files": [PATH], "text": name} for name in ("c", "d")]
SEQUENCE = {"foreach": {"in": ITEMS, "key": "id", "as": "one", "order": "sequential"}}


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("more", [{}, SEQUENCE])
@pytest.mark.parametrize("outputs", [[PATH], ["out/"]])
def test_after_clean_a_build_restores_what_was_made_of_a_released_file(
    tmp_path: Path, model: EchoModel, outputs: list[str], more: dict[str, Any], reset: bool
) -> None:
    project = released(tmp_path, {**llm(["S.md"], outputs), **more})
    original = project.read(PATH)
    project.edit("S.md", spec(f"{PATH}: b"))
    green(project.run("build", "a.yaml"))
    made, called = project.read(PATH), len(model.calls)
    if reset:
        green(project.run("reset", "a.yaml"))
    green(project.run("clean", "a.yaml"))
    assert project.read(PATH) == original
    green(project.run("build", "a.yaml"))
    assert (project.read(PATH), len(model.calls)) == (made, called)
    assert project.run("build", "a.yaml").code == 0
    project.edit(PATH, "mine\n")
    assert project.run("build", "a.yaml").code == 6
