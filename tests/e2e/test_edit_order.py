"""Stages with `edits` over the same files are one chain; each reader sees the version at its place in the order."""

import pytest

from tests.e2e.pipelines import calls, green, pipeline, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

TIDY = "for f in src/*.txt; do sed -i 's/ *$//' $f; done"
STAGES = f"""\
  feature: {{inputs: [FEATURE.md, "src/**"], edits: ["src/**"], llm: {{prompt: feature.j2, returns: files}}}}
  count: {{inputs: ["src/**"], outputs: [build/count.txt], shell: "cat src/*.txt > build/count.txt"}}
  tidy: {{needs: [count], edits: ["src/**"], shell: "{TIDY}"}}
  read: {{inputs: ["src/**"], outputs: [build/all.txt], shell: "cat src/*.txt > build/all.txt"}}
"""
FILES = {
    "FEATURE.md": "one",
    "src/a.txt": "a  \n",
    "src/b.txt": "b\n",
    "src/c.txt": "c  \n",
    "feature.j2": proposing(
        "feature",
        {
            "src/a.txt": "'feature ' ~ (inputs | selectattr('path', 'equalto', 'FEATURE.md') | first).text ~ '  \\n'",
            "src/new.txt": "'new  \\n'",
        },
    ),
}


@pytest.fixture
def edited(project: Project) -> Project:
    project.write(pipeline(STAGES, FILES))
    return project


def test_a_reader_between_two_editors_sees_the_first_and_one_after_both_sees_the_last(edited: Project) -> None:
    green(edited.build())
    assert calls(edited) == ["feature"]
    assert edited.read("build/count.txt") == "feature one  \nb\nc  \nnew  \n"
    assert edited.read("build/all.txt") == "feature one\nb\nc\nnew\n"
    assert edited.read("src/a.txt") == "feature one\n"
    assert edited.read("src/new.txt") == "new\n"
    assert set(edited.plan().values()) == {"fresh"}


def test_a_changed_task_runs_both_editors_again_and_each_reader_sees_its_own_version(edited: Project) -> None:
    green(edited.build())
    edited.edit("FEATURE.md", "two")
    assert edited.plan() == {"feature": "run", "count": "maybe", "tidy": "maybe", "read": "maybe"}
    green(edited.build())
    assert edited.read("build/count.txt") == "feature two  \nb\nc  \nnew  \n"
    assert edited.read("build/all.txt") == "feature two\nb\nc\nnew\n"
    assert set(edited.plan().values()) == {"fresh"}
    edited.edit("FEATURE.md", "one")
    # The disk has the files of `tidy`, of each of which `feature` made an earlier version.
    assert edited.plan() == {"feature": "fresh", "count": "restore", "tidy": "restore", "read": "restore"}
    green(edited.build())
    assert calls(edited) == ["feature", "feature"], "both results are known"
    assert edited.read("build/count.txt") == "feature one  \nb\nc  \nnew  \n"
    assert edited.read("build/all.txt") == "feature one\nb\nc\nnew\n"


def test_a_reader_before_both_sees_the_originals_and_no_created_file(project: Project) -> None:
    stages = """\
  survey: {inputs: ["src/**", {list: "src/**"}], outputs: [plan.txt], shell: "cat src/* .orch23/listings/1 > plan.txt"}
  add: {inputs: [plan.txt], edits: ["src/**"], shell: "echo more >> src/a; echo new > src/new; rm src/b"}
  tidy: {needs: [add], edits: ["src/**"], shell: "for f in src/*; do tr a-z A-Z < $f > t; cat t > $f; done; rm t"}
  read: {inputs: ["src/**", {list: "src/**"}], outputs: [all.txt], shell: "cat src/* .orch23/listings/1 > all.txt"}
"""
    project.write(shell(stages, {"src/a": "a\n", "src/b": "b\n"}))
    green(project.build())
    assert project.read("plan.txt") == "a\nb\nsrc/a\nsrc/b\n"
    assert project.read("all.txt") == "A\nMORE\nNEW\nsrc/a\nsrc/b\n", "a listing has what no stage made"
    assert sorted(project.files("src")) == ["src/a", "src/new"]
    assert set(project.plan().values()) == {"fresh"}
    green(project.build("-f", "survey", "-f", "add"))
    assert project.read("plan.txt") == "a\nb\nsrc/a\nsrc/b\n"
    assert project.read("all.txt") == "A\nMORE\nNEW\nsrc/a\nsrc/b\n"


def test_a_later_editor_that_changes_less_leaves_the_version_before_it(project: Project) -> None:
    stages = """\
  up: {inputs: [up.txt], edits: ["src/**"], shell: "cat up.txt >> src/a"}
  tidy: {inputs: [tidy.txt], needs: [up], edits: ["src/**"], shell: "for f in $(cat tidy.txt); do echo tidy >> $f; done"}
"""
    project.write(shell(stages, {"src/a": "a\n", "src/b": "b\n", "up.txt": "up\n", "tidy.txt": "src/a src/b"}))
    green(project.build())
    assert project.read("src/a") == "a\nup\ntidy\n"
    project.edit("tidy.txt", "src/b")
    green(project.build())
    assert (project.read("src/a"), project.read("src/b")) == ("a\nup\n", "b\ntidy\n")
    project.edit("up.txt", "UP\n")
    green(project.build())
    assert (project.read("src/a"), project.read("src/b")) == ("a\nUP\n", "b\ntidy\n")
    assert set(project.plan().values()) == {"fresh"}


def test_the_output_of_a_stage_is_formatted_by_a_later_one(project: Project) -> None:
    stages = """\
  tidy: {needs: [gen], edits: ["src/**"], shell: "for f in src/*; do tr a-z A-Z < $f > t; cat t > $f; done; rm t"}
  gen: {inputs: [spec], outputs: [src/gen], shell: "cat spec > src/gen"}
  read: {inputs: [src/gen], outputs: [out], shell: "cat src/gen > out"}
"""
    project.write(shell(stages, {"src/a": "a\n", "spec": "one\n"}))
    green(project.build())
    assert (project.read("src/gen"), project.read("src/a"), project.read("out")) == ("ONE\n", "A\n", "ONE\n")
    assert set(project.plan().values()) == {"fresh"}
    project.edit("spec", "two\n")
    green(project.build())
    assert (project.read("src/gen"), project.read("out")) == ("TWO\n", "TWO\n")
    assert set(project.plan().values()) == {"fresh"}


def test_items_that_edit_files_of_their_own_run_side_by_side_before_the_stage_that_edits_all(project: Project) -> None:
    stages = """\
  mod: {foreach: {in: [a, b, c], as: f}, edits: ["src/${{ f }}"], shell: "echo ${{ f }} >> src/${{ f }}"}
  tidy: {needs: [mod], edits: ["src/**"], shell: "for f in src/*; do tr a-z A-Z < $f > t; cat t > $f; done; rm t"}
"""
    project.write(shell(stages, {f"src/{name}": f"{name}\n" for name in "abc"}))
    green(project.build("-j3"))
    assert [project.read(f"src/{name}") for name in "abc"] == ["A\nA\n", "B\nB\n", "C\nC\n"]
    assert set(project.plan().values()) == {"fresh"}
    project.replace("pipeline.yaml", "in: [a, b, c]", "in: [a, c]")
    green(project.build())
    assert [project.read(f"src/{name}") for name in "abc"] == ["A\nA\n", "B\n", "C\nC\n"]


@pytest.mark.parametrize("added", ["", ", needs: [one]"])
def test_two_editors_without_an_order_are_an_error_with_the_line_that_corrects_it(project: Project, added: str) -> None:
    text = '  one: {edits: ["src/**"], shell: "true"}\n  two: {edits: ["src/a"]%s, shell: "true"}\n'
    project.write(shell(text % added, {"src/a": "a"}))
    outcome = project.run("plan")
    assert outcome.code == (0 if added else 65)
    assert ("write `needs: [one]` in `two`" in outcome.err) == (not added)
