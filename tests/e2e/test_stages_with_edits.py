"""Stages with `edits`: what they changed is their result, file by file; all other files are sources (ADR 87)."""

import re
from pathlib import Path

import pytest

from tests.repository import DELETED, EchoModel, Repository, addition, green, pipeline, spec, up_to_date

FEATURE = {"inputs": ["spec.md", "src/**"], "edits": ["src/**"], "llm": {"returns": "files"}, "retry": 0}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "p")
    made.init()
    return made


@pytest.mark.slow
def test_the_key_of_an_llm_stage_has_the_base_of_the_files_that_it_changed(repository: Repository) -> None:
    model = EchoModel()
    feature = {**FEATURE, "inputs": ["spec.md", "src/a.py"]}
    files = {"src/a.py": "a\n", "src/b.py": "b\n", "spec.md": spec("src/a.py: x", "src/new.py: y")}
    repository.write({**pipeline({"feature": feature}), **files})
    with model.answering():
        green(repository.build("a.yaml"))
        assert repository.read("src/a.py") == "a\n" + addition("x")
        up_to_date(repository.build("a.yaml"))
        # A file that matches, and that the stage did not change, is a source.
        repository.edit("src/b.py", "mine\n")
        up_to_date(repository.build("a.yaml"))
        repository.write({"src/c.py": "new\n"})
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 1
    shown = green(repository.run("show", "a.yaml", "--key", "feature")).out
    assert set(re.findall(r"base:\S+", shown)) == {"base:src/a.py", "base:src/new.py"}


SHOUT = {
    "edits": ["src/**"],
    "shell": "cd src; for one in *; do tr a-z A-Z < $one > ../t; cat ../t > $one; done; rm ../t",
}


@pytest.mark.slow
def test_a_program_starts_from_the_files_that_a_user_saves(repository: Repository) -> None:
    repository.write({**pipeline({"shout": SHOUT}), "src/a": "a\n", "src/b": "B\n", "src/c": "c\n"})
    green(repository.build("a.yaml"))
    assert [repository.read(f"src/{one}") for one in "abc"] == ["A\n", "B\n", "C\n"]
    up_to_date(repository.build("a.yaml"))
    repository.edit("src/b", "b\n")
    repository.edit("src/a", "A\nmore\n")
    repository.write({"src/d": "d\n"})
    assert repository.plan("a.yaml") == {"shout": "run"}
    green(repository.build("a.yaml"))
    assert [repository.read(f"src/{one}") for one in "abcd"] == ["A\nMORE\n", "B\n", "C\n", "D\n"]
    up_to_date(repository.build("a.yaml"))
    repository.delete("src/c")
    green(repository.build("a.yaml"))
    assert not repository.exists("src/c")
    up_to_date(repository.build("a.yaml"))
    repository.delete("src/d")
    green(repository.build("a.yaml"))
    assert not repository.exists("src/d")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llm", "shell"])
def test_clean_gives_back_what_was_there_and_the_next_build_restores_the_result(
    repository: Repository, kind: str
) -> None:
    command = "cd src; echo x >> a; echo y > new; rm b"
    shell = {"inputs": ["spec.md"], "edits": ["src/**"], "shell": command}
    asked = spec("src/a: x", "src/new: y", f"src/b: {DELETED}")
    before = {"src/a": "a\n", "src/b": "b\n", "src/c": "c\n"}
    model = EchoModel()
    repository.write({**pipeline({"feature": FEATURE if kind == "llm" else shell}), **before, "spec.md": asked})
    with model.answering():
        green(repository.build("a.yaml"))
        after = repository.files("src")
        assert set(after) == {"src/a", "src/c", "src/new"}
        for reset in (False, True):
            if reset:
                green(repository.run("reset", "a.yaml"))
            green(repository.run("clean", "a.yaml"))
            assert repository.files("src") == {path: text.encode() for path, text in before.items()}
            green(repository.build("a.yaml"))
            assert repository.files("src") == after
            up_to_date(repository.build("a.yaml"))
        # Without the stage, the file that it created is removed, and the others stay as they are.
        repository.write(pipeline({"other": {"outputs": ["o"], "shell": "echo o > o"}}))
        green(repository.build("a.yaml"))
    assert repository.files("src") == {path: text for path, text in after.items() if path != "src/new"}
    assert len(model.calls) == (1 if kind == "llm" else 0)


@pytest.mark.slow
def test_release_names_the_files_that_stay_deleted(repository: Repository) -> None:
    stage = {"edits": ["src/**"], "shell": "rm -f src/a"}
    repository.write({**pipeline({"remove": stage}), "src/a": "a\n", "src/b": "b\n"})
    green(repository.build("a.yaml"))
    assert not repository.exists("src/a")
    released = green(repository.run("release", "a.yaml", "remove"))
    assert released.out == "left src/a deleted; the store has its bytes\n"
