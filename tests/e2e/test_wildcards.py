"""Stories of wildcards: they mean the user's files, so a stage that reads all of them becomes fresh."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project
from tests.repository import Repository, ends, green, up_to_date

ALL = {"inputs": ["**"], "outputs": ["out/all"], "shell": 'LIST=$(find . -type f | sort); echo "$LIST" > out/all'}


def written(project: Project, **stages: Mapping[str, Any]) -> Project:
    return project.write({"pipeline.yaml": json.dumps({"version": 1, "stages": stages})})


def built_twice(project: Project) -> None:
    green(project.build())
    up_to_date(project.build())


@pytest.mark.parametrize(
    "stage",
    [
        ALL,
        {"inputs": [{"list": "*"}], "outputs": ["out"], "shell": "echo 1 > out"},
        {"outputs": ["out"], "shell": "echo 1 > out", "verify": {"inputs": ["**"], "steps": [{"shell": "true"}]}},
        {"inputs": ["*.lock", "logs/*", ".orch23/**"], "outputs": ["out"], "shell": "echo 1 > out"},
    ],
)
def test_a_stage_that_reads_everything_is_fresh_at_the_second_build(project: Project, stage: Mapping[str, Any]) -> None:
    built_twice(written(project, g=stage).write({"a.txt": "a\n"}))


@pytest.mark.slow
def test_git_ignored_files_are_no_inputs_here_nor_in_a_clone(tmp_path: Path) -> None:
    author = Repository(tmp_path / "author")
    author.init()
    written(author, g=ALL)
    author.write({"a.txt": "a\n", ".gitignore": ".orch23/\nlogs/\n*.mo\n/node_modules\nenv/\n"})
    author.write({"po/x.mo": "1", "node_modules/.bin/x": "1", "env/bin/python": "1", ".venv/bin/python": "1"})
    built_twice(author)
    assert author.read("out/all").split() == ["./.gitignore", "./a.txt", "./pipeline.yaml"]
    author.write({"po/x.mo": "2", "env/bin/python": "2", "po/y.mo": "new"})
    up_to_date(author.build())
    author.commit()
    clone = author.clone(tmp_path / "clone")
    green(clone.build(env={"ORCH23_TRUST": "0"}))
    assert ends(clone) == {"g": "verified"}
    up_to_date(clone.build(env={"ORCH23_TRUST": "0"}))
    author.edit(".gitignore", ".orch23/\nlogs/\n/node_modules\n")
    assert author.plan() == {"g": "run"}, "po/x.mo is an input now"


@pytest.mark.slow
def test_an_output_that_git_ignores_is_an_input_of_others(project: Project) -> None:
    written(
        project,
        make={"inputs": ["a.txt"], "outputs": ["build/a.o", "gen/"], "shell": "cp a.txt build/a.o; cp a.txt gen/x.o"},
        link={"inputs": ["**/*.o"], "outputs": ["all"], "shell": "cat build/*.o gen/*.o > all"},
    ).write({"a.txt": "a\n", ".gitignore": "build\ngen/\n*.o\n", "stray.o": "no\n", "build/old.o": "no\n"})
    built_twice(project)
    assert project.read("all") == "a\na\n"
    project.edit("a.txt", "b\n")
    green(project.build())
    assert project.read("all") == "b\nb\n"


@pytest.mark.slow
def test_the_logs_of_a_user_are_ordinary_files(project: Project) -> None:
    written(
        project,
        here={"inputs": ["logs/*"], "outputs": ["here"], "shell": "ls logs > here"},
        deep={"inputs": ["**/*.log"], "outputs": ["deep"], "shell": "find . -name '*.log' | sort > deep"},
        nested={"inputs": ["sub/**"], "outputs": ["nested"], "shell": "find sub -type f > nested"},
    ).write({"logs/train.log": "", "logs/exp1/train.log": "", "logs/data.jsonl": "{}\n", "sub/a": ""})
    inner = written(Project(project.root / "sub"), a={"outputs": ["b"], "shell": "echo b > b"})
    inner.write({".git/HEAD": "", ".gitignore": "b\n"})
    green(inner.build())
    shutil.rmtree(inner.home)
    built_twice(project)
    assert project.read("here").split() == ["data.jsonl", "train.log"]
    assert project.read("deep").split() == ["./logs/exp1/train.log", "./logs/train.log"]
    assert sorted(project.read("nested").split()) == ["sub/.gitignore", "sub/a", "sub/pipeline.yaml"]
    assert len(project.run("runs", "--json").json()) == 2, "data.jsonl is no run"


@pytest.mark.slow
def test_the_lock_file_is_never_what_a_user_edited(project: Project) -> None:
    built_twice(
        written(project, g=ALL, h={"inputs": ["in"], "outputs": ["x"], "shell": "cp in x"}).write({"in": "1\n"})
    )
    project.edit("in", "2\n")
    assert "pipeline.lock" not in project.run("explain", "g").out


COPY = {"outputs": ["out"], "shell": 'LIST=$(find . -type f); echo "$LIST" > out'}


@pytest.mark.parametrize("name", ["nothere/", "src/nothere/"])
@pytest.mark.parametrize("where", ["inputs", "verify"])
def test_a_folder_that_is_not_there_is_an_error(project: Project, name: str, where: str) -> None:
    stage = {**COPY, "inputs": [name]} if where == "inputs" else {**COPY, "verify": {"inputs": [name], "steps": []}}
    refused = written(project, a=stage).write({"src/a": "a\n"}).build()
    assert refused.code == 65
    assert f"input `{name}` of stage `a` does not exist, and no stage makes it" in refused.err
    assert f"`{name}**`" in refused.err
    written(project, a={**COPY, "inputs": [f"{name}**"]})
    built_twice(project)


def test_a_folder_that_is_there_or_made_is_an_input(project: Project) -> None:
    written(
        project,
        a={"inputs": ["src/", "empty/"], "outputs": ["made/"], "shell": "mkdir -p made; ls src > made/x"},
        b={"inputs": ["made/"], "outputs": ["out"], "shell": "cat made/x > out"},
    ).write({"src/a": "a\n"})
    (project.root / "empty").mkdir()
    built_twice(project)
    assert project.read("out") == "a\n"


@pytest.mark.parametrize(("name", "pattern"), [("[id].txt", "[[]id].txt"), ("a#b.txt", "a[#]b.txt")])
def test_a_file_whose_name_has_signs_can_be_named(project: Project, name: str, pattern: str) -> None:
    refused = written(project, a={**COPY, "inputs": [name]}).write({name: "1\n"}).build()
    assert refused.code == 65
    assert f"write `{pattern}`" in refused.err
    written(project, a={**COPY, "inputs": [pattern]})
    built_twice(project)
    assert f"./{name}" in project.read("out").split()


def test_a_cycle_through_folders_is_reported_as_it_is_written(project: Project) -> None:
    refused = written(
        project,
        a={"inputs": ["src/"], "outputs": ["gen/a"], "shell": "ls src > gen/a"},
        b={"inputs": ["gen/"], "outputs": ["src/b"], "shell": "ls gen > src/b"},
    ).build()
    assert refused.code == 65
    assert "it reads `gen/`, which may be `gen/a` of `a`" in refused.err
    assert "**" not in refused.err
