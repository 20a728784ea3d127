"""Ten mistakes in one pipeline: one run names them all, each with its line, its column and a way out."""

import json
import re

import pytest

from tests.e2e.pipelines import noted
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

TEN = """\
version: 1
name: mistakes
vars: {package: todo}
stages:
  typo:
    need: [good]
    shell: 'true'
  two:
    shell: 'true'
    pytest: {args: [-q]}
  undefined:
    outputs: [a.txt]
    shell: echo ${{ vars.pakage }} > a.txt
  outside:
    outputs: [b.txt]
    allowed_paths: {write: [src/]}
    shell: echo b > b.txt
  climbing:
    inputs: [../up.txt]
    shell: 'true'
  lasting:
    timeout: soon
    shell: 'true'
  listless:
    inputs: in.txt
    shell: 'true'
  oneself:
    inputs: [c.txt]
    outputs: [c.txt]
    shell: touch c.txt
  often:
    retry: {max: many}
    shell: 'true'
  good:
    shell: 'NOTE'
  good:
    shell: 'true'
"""

# where each is, and a word of its way out
PLACES = {
    "6:5": "needs",
    "8:3": "exactly one",
    "13:26": "package",
    "15:15": "allowed_paths.write",
    "19:14": "",
    "22:14": "300s",
    "25:13": "[",
    "28:14": "",
    "32:18": "",
    "36:3": "twice",
}

GRAPH = """\
version: 1
name: graph
stages:
  a: {needs: [b], shell: NOTE}
  b: {needs: [a], shell: NOTE}
  c: {inputs: [nobody.txt], shell: NOTE}
  d: {outputs: [x.txt], shell: echo d > x.txt}
  e: {outputs: [x.txt], shell: echo e > x.txt}
  f: {needs: [goo], shell: NOTE}
  g:
    outputs: [g.txt]
    llm: {provider: command, command: [no-such-program-here], model: m, prompt: gone.md.j2, returns: text}
  h: {outputs: [h.txt], shell: echo h > h.txt, verify: [{check: json_shema}]}
"""


@pytest.mark.parametrize("command", ["validate", "build", "plan"])
def test_ten_mistakes_are_all_named_in_one_run_and_nothing_happens(project: Project, command: str) -> None:
    project.write({"pipeline.yaml": TEN.replace("NOTE", f"echo x >> {project.root}-notes.log")})
    before = project.files()
    refused = project.run(command)
    assert refused.code == 65
    reported = refused.err + refused.out
    missing = [place for place in PLACES if f"pipeline.yaml:{place}\n" not in reported]
    assert missing == [], reported
    blocks = re.split(r"\n(?=(?:error|warning)\[)", reported)
    by_place = {place: next(block for block in blocks if f"pipeline.yaml:{place}\n" in block) for place in PLACES}
    for place, word in PLACES.items():
        assert word in by_place[place], by_place[place]
        assert re.match(r"error\[E\d{3}\]: ", by_place[place]), by_place[place]
        assert "= help: " in by_place[place], by_place[place]
    assert project.files() == before
    assert not project.exists(".orch23")
    assert not project.exists("logs")
    assert noted(project) == []


def test_mistakes_of_the_graph_are_all_named_in_one_run(project: Project) -> None:
    project.write({"pipeline.yaml": GRAPH.replace("NOTE", f"echo x >> {project.root}-notes.log")})
    refused = project.build()
    assert refused.code == 65
    for words in (
        ("a", "b"),
        ("nobody.txt",),
        ("x.txt", "`d`", "`e`"),
        ("`goo`",),
        ("no-such-program-here",),
        ("gone.md.j2",),
        ("json_shema", "json_schema"),
    ):
        blocks = re.split(r"\n(?=(?:error|warning)\[)", refused.err)
        found = [block for block in blocks if all(word in block for word in words)]
        assert found, f"{words} in\n{refused.err}"
        assert "pipeline.yaml:" in found[0], found[0]
        assert "= help: " in found[0], found[0]
    assert not project.exists("logs")
    assert noted(project) == []


def test_the_same_mistakes_as_json_hold_the_same_places(project: Project) -> None:
    project.write({"pipeline.yaml": TEN.replace("NOTE", "true")})
    refused = project.run("validate", "--output-format", "json")
    assert refused.code == 65
    places = {
        f"{d['location']['line']}:{d['location']['column']}" for d in json.loads(refused.out) if d.get("location")
    }
    assert set(PLACES) <= places


@pytest.mark.parametrize(
    ("stage", "reported", "way"),
    [
        ("inputs: [src]", "input `src` of stage `s` is a folder", "write `src/` for all files below it"),
        ("inputs: ['{path: src, optional: true}']", "input `src` of stage `s` is a folder", "write `src/`"),
        ("verify: {inputs: [src], steps: [{shell: 'true'}]}", "input `src` of stage `s` is a folder", "write `src/`"),
        ("foreach: {from: src}", "`src` is a folder", "name a file below it"),
        ("requires: [{kind: file_exists, path: src}]", "file_exists src: it is a folder", "write `src/`"),
        ("ensures: [{kind: file_exists, path: out}]", "file_exists out: it is a folder", "write `out/`"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_reported_as_such(
    project: Project, stage: str, reported: str, way: str
) -> None:
    stage = stage.replace("'{", "{").replace("}'", "}")
    command = "outputs: [out/]\n    shell: mkdir -p out; touch out/a"
    project.write({"p.yaml": f"version: 1\nstages:\n  s:\n    {stage}\n    {command}\n", "src/a.txt": "a"})
    outcome = project.run("build", "p.yaml")
    assert outcome.code != 0
    assert reported in outcome.err
    assert way in outcome.err


ITEMS = """\
version: 1
stages:
  made: {outputs: [made.txt], shell: echo made > made.txt}
  listed:
    foreach: {in: [a, b], as: item}
    inputs: ["in/${{ item }}.txt", made.txt]
    outputs: ["out/${{ item }}.txt"]
    shell: [cp, made.txt, "out/${{ item }}.txt"]
  read:
    foreach: {from: list.json, as: item}
    inputs: ["in/${{ item }}.txt"]
    outputs: ["read/${{ item }}.txt"]
    shell: [cp, "in/${{ item }}.txt", "read/${{ item }}.txt"]
"""


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_missing_inputs_of_items_are_named_with_their_place(project: Project, command: str) -> None:
    """Case: `validate` accepted a pipeline whose items read missing files, and `plan` refused it."""
    project.write({"pipeline.yaml": ITEMS, "list.json": '["c", "d"]', "in/a.txt": "", "in/c.txt": ""})
    refused = project.run(command)
    assert refused.code == 65
    for name, place in (("in/b.txt", "6:14"), ("in/d.txt", "11:14")):
        [block] = [one for one in re.split(r"\n(?=error\[)", refused.err) if f"`{name}`" in one.splitlines()[0]]
        assert f"pipeline.yaml:{place}\n" in block
    assert refused.err.count("error[") == 2
    project.write({"in/b.txt": "", "in/d.txt": ""})
    assert project.run(command).code == 0


def test_items_of_a_list_that_a_stage_makes_are_not_validated(project: Project) -> None:
    make = "  make: {outputs: [list.json], shell: 'echo [] > list.json'}\n"
    project.write({"pipeline.yaml": ITEMS + make, "list.json": '["c"]', "in/a.txt": "", "in/b.txt": ""})
    assert project.run("validate").code == 0


DRAFT_AND_CHECK = """\
version: 1
stages:
  draft:
    inputs: [spec.md]
    outputs: [out/draft.md]
    llm: {provider: scripted, model: m, answers: answers.yaml, prompt: draft.md.j2, returns: text}
  check:
    inputs: [out/draft.md]
    shell: test -f out/draft.md
"""
NOTES = """\
  notes:
    inputs: [out/draft.md]
    outputs: [out/notes.md]
    shell: cp out/draft.md out/notes.md
  summary:
    inputs: [out/notes.md]
    outputs: [out/summary.md]
    shell: cp out/notes.md out/summary.md
"""


def drafted(project: Project) -> Project:
    """Write a project with a draft and its check."""
    files = {"spec.md": "a list\n", "draft.md.j2": "{{ inputs | blocks }}\n", "answers.yaml": 'draft: ["# A\\n"]\n'}
    return project.write({"pipeline.yaml": DRAFT_AND_CHECK, **files})


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    ("new", "added", "cycle"),
    [
        ("inputs: [spec.md]\n    needs: [check]", "", "check -> draft -> check"),
        ("inputs: [spec.md, out/notes.md]", NOTES, "draft -> notes -> draft"),
        ("inputs: [spec.md, out/summary.md]", NOTES, "draft -> notes -> summary -> draft"),
    ],
)
def test_a_cycle_with_a_stage_of_a_model_is_one_also_after_a_build(
    project: Project, new: str, added: str, cycle: str, is_built: bool
) -> None:
    """Case: with the file on disk, `validate` accepted it, and the build asked to create the file that was there."""
    drafted(project)
    if is_built:
        assert project.build().code == 0
    project.replace("pipeline.yaml", "inputs: [spec.md]", new)
    project.write({"pipeline.yaml": project.read("pipeline.yaml") + added})
    edges = cycle.count("->")
    for command in ("validate", "plan", "build"):
        refused = project.run(command)
        assert refused.code == 65
        assert refused.err.startswith(f"error[E820]: cycle: {cycle}\n"), refused.err
        assert refused.err.count("error[") == 1
        assert refused.err.count("::: pipeline.yaml:") == edges
        assert refused.err.count("(line ") >= edges


def test_a_stage_may_read_a_file_of_the_user_before_a_model_changes_it(project: Project) -> None:
    drafted(project)
    project.replace("pipeline.yaml", "inputs: [spec.md]", "inputs: [spec.md]\n    needs: [check]")
    project.write({"out/draft.md": "mine\n"})
    for spec in ("a list\n", "another list\n"):
        project.write({"spec.md": spec, "answers.yaml": f"draft: ['{spec.strip()}']\n"})
        assert project.run("validate").code == 0
        assert project.build().code == 0
        assert project.read("out/draft.md").strip() == spec.strip()
