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
    )
    + "{% set shown = inputs | map(attribute='text') | list %}",  # it may only change what its prompt has read
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


def test_an_edit_that_a_program_leaves_as_it_is_reaches_the_readers_after_it(edited: Project) -> None:
    green(edited.build())
    edited.edit("src/a.txt", "mine\n")
    green(edited.build())
    assert edited.read("src/a.txt") == "mine\n"
    assert edited.read("build/all.txt") == "mine\nb\nc\nnew\n"
    assert edited.read("build/count.txt") == "feature one  \nb\nc  \nnew  \n"
    assert set(edited.plan().values()) == {"fresh"}


def test_edits_are_shown_as_such_and_not_as_outputs(edited: Project) -> None:
    shown = edited.run("plan")
    assert " would write build/count.txt build/all.txt\n would edit src/**\n" in shown.out
    assert "may remove" not in shown.out
    stages = {one["stage"]: one for one in edited.run("plan", "--json").json()["stages"]}
    assert [stages["tidy"][key] for key in ("edits", "would_edit", "outputs", "would_write")] == [
        ["src/**"],
        ["src/**"],
        [],
        [],
    ]
    nodes = {one["stage"]: one for one in edited.run("graph", "--json").json()["nodes"]}
    assert (nodes["feature"]["edits"], nodes["feature"]["outputs"]) == (["src/**"], [])


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
  tidy:
    inputs: [tidy.txt]
    needs: [up]
    edits: ["src/**"]
    shell: "for f in $(cat tidy.txt); do echo tidy >> $f; done"
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


LISTED = """\
  list: {inputs: [{list: "src/**"}, want.json], outputs: [list.json], shell: "cp want.json list.json"}
  mod:
    foreach: {from: "list.json#/files", as: f}
    inputs: [word]
    edits: ["${{ f | under('src') }}"]
    shell: [cp, word, "${{ f | under('src') }}"]
  tidy: {needs: [mod], edits: ["src/**"], shell: "for f in src/*; do tr a-z A-Z < $f > t; cat t > $f; done; rm t"}
  read: {inputs: ["src/**"], outputs: [all.txt], shell: "cat src/* > all.txt"}
"""


def test_items_of_a_list_that_a_stage_makes_edit_files_before_the_stage_that_edits_all(project: Project) -> None:
    project.write(shell(LISTED, {"src/a": "a\n", "src/b": "b\n", "word": "w\n", "want.json": '{"files": ["a"]}'}))
    assert project.plan() == {"list": "run", "mod": "expand", "tidy": "run", "read": "run"}
    green(project.build())
    assert project.read("all.txt") == "W\nB\n"
    assert set(project.plan().values()) == {"fresh"}
    project.edit("want.json", '{"files": ["a", "b"]}')
    green(project.build())
    assert project.read("all.txt") == "W\nW\n"
    project.edit("want.json", '{"files": ["b"]}')
    green(project.build())
    assert project.read("all.txt") == "A\nW\n"
    assert set(project.plan().values()) == {"fresh"}


def test_items_that_edit_one_file_need_an_order(project: Project) -> None:
    text = '  mod: {foreach: {in: [a, b]%s}, edits: [src/a], shell: "echo ${{ item }} >> src/a"}\n'
    project.write(shell(text % "", {"src/a": "-\n"}))
    outcome = project.run("plan")
    assert (outcome.code, outcome.err.count("E821")) == (65, 1)
    assert "write `order: sequential` in `foreach` of `mod`" in outcome.err
    project.write(shell(text % ", order: sequential"))
    green(project.build())
    assert project.read("src/a") == "-\na\nb\n"


def test_a_deletion_is_seen_by_readers_after_it_and_clean_gives_all_files_back(project: Project) -> None:
    stages = """\
  old: {edits: ["src/**"], shell: "rm src/a; echo new > src/b"}
  read: {inputs: ["src/**"], outputs: [between.txt], shell: "cat src/* > between.txt"}
  new: {needs: [read], edits: ["src/**"], shell: "cp src/b src/a; rm src/c"}
  last: {inputs: ["src/**"], outputs: [after.txt], shell: "cat src/* > after.txt"}
"""
    files = {"src/a": "a\n", "src/b": "b\n", "src/c": "c\n"}
    project.write(shell(stages, files))
    green(project.build())
    assert project.read("between.txt") == "new\nc\n"
    assert project.read("after.txt") == "new\nnew\n"
    assert set(project.plan().values()) == {"fresh"}
    green(project.run("clean"))
    assert project.files("src") == {path: text.encode() for path, text in files.items()}
    assert project.build().code == 0
    assert project.read("after.txt") == "new\nnew\n"


@pytest.mark.parametrize(
    "stages",
    [
        '  a: {inputs: [old.txt], edits: ["*.txt"], shell: mv old.txt new.txt}\n',
        (
            "  a: {inputs: [old.txt], edits: [new.txt], shell: cp old.txt new.txt}\n"
            '  b: {needs: [a], edits: ["*.txt"], shell: rm old.txt}\n'
        ),
        (
            "  a: {inputs: [old.txt], outputs: [new.txt], shell: cp old.txt new.txt}\n"
            '  b: {needs: [a], edits: ["old*"], shell: rm old.txt}\n'
        ),
    ],
    ids=["itself", "the next one", "one after a reader"],
)
def test_an_input_that_the_stage_or_a_later_one_deletes_is_there_for_the_next_run(
    project: Project, stages: str
) -> None:
    project.write(shell(stages, {"old.txt": "one\n"}))
    green(project.build())
    assert not project.exists("old.txt")
    # Not a plan from a snapshot.
    project.edit("pipeline.yaml", project.read("pipeline.yaml") + "# a comment\n")
    assert set(project.plan().values()) == {"fresh"}
    green(project.run("validate"))
    (project.root / "new.txt").unlink()
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("a: {", "a: {salt: 2, "))
    green(project.build())
    assert (project.read("new.txt"), project.exists("old.txt")) == ("one\n", False)
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("old.txt]", "other.txt]"))
    assert "`other.txt` of stage `a` does not exist" in project.build().err
