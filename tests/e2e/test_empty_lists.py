"""A foreach over an empty list has no items, wherever the list is from; what reads it runs without them."""

import json

import pytest

from tests.e2e.pipelines import ends, green
from tests.project import Project

PIPELINE = """\
version: 1
vars: {names: [a, b]}
stages:
  make:
    foreach: LIST
    outputs: ["txt/${{ item }}.txt"]
    shell: [touch, "txt/${{ item }}.txt"]
  twin:
    foreach: LIST
    needs: [make]
    outputs: ["out/${{ item }}.log"]
    shell: [touch, "out/${{ item }}.log"]
  all:
    needs: [twin]
    inputs: ["txt/"]
    outputs: [all.lst]
    shell: find . -name "*.txt" | wc -l > all.lst
"""
LISTS = {
    "{in: '${{ vars.names }}'}": ("v.yaml", "names: []\n", "names: [a, b]\n"),
    "{from: l.json}": ("l.json", "[]", '["a", "b"]'),
    "{in: [a, b]}": ("pipeline.yaml", PIPELINE.replace("LIST", "{in: []}"), PIPELINE.replace("LIST", "{in: [a, b]}")),
}


@pytest.mark.slow
def test_each_build_with_nothing_to_do_names_an_empty_list(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE.replace("LIST", "{from: l.json}"), "l.json": "[]"})
    green(project.build())
    for _ in range(3):
        outcome = project.build()
        green(outcome)
        lines = outcome.err.splitlines()
        assert lines[0] == "pipeline: up to date (1 stage, 2 skipped)"
        assert [line.split()[:5] for line in lines[1:]] == [
            ["-", one, "skipped", "0", "items:"] for one in ("make", "twin")
        ]


MADE = """version: 1
stages:
  l: {inputs: [names.txt], outputs: [l.json], shell: cp names.txt l.json}
  a: {foreach: {from: l.json}, outputs: ["o/${{ item }}.a"], shell: [touch, "o/${{ item }}.a"]}
  c: {inputs: [{list: "o/*"}], needs: [a], outputs: [c.txt], shell: wc -l .orch23/listings/1 > c.txt}
"""


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize("target", [["a"], ["c"], ["--downstream", "l"], ["--downstream", "a"]])
def test_a_selected_empty_list_is_selected_with_the_stage_that_makes_it(project: Project, target: list[str]) -> None:
    project.write({"pipeline.yaml": MADE, "names.txt": "[]"})
    green(project.build(*target))
    selected = {"l", "a"} if target == ["a"] else {"l", "a", "c"}
    assert project.plan(*target) == {name: "skipped" if name == "a" else "fresh" for name in selected}
    (project.root / "l.json").unlink()
    assert project.plan(*target)["l"] == "restore"
    assert project.run("plan", "--out", "P", *target).code == 0
    green(project.build("--plan", "P"))
    assert project.read("l.json") == "[]"
    for _ in range(2):  # the second one is answered by the snapshot
        outcome = project.build(*target)
        green(outcome)
        assert f"up to date ({len(selected) - 1} stage" in outcome.err
        assert "0 items: its list is empty" in outcome.err
    project.write({"l.json": '["q"]'})
    for _ in range(2):
        assert project.plan(*target)["l"] == "edited"
        if target[:-1] == []:
            assert "edited by hand: l.json" in project.run("status", *target).out
        assert project.build(*target).code == 6
    project.write({"l.json": "[]", "names.txt": '["q"]'})
    green(project.build(*target))
    assert ends(project)["a@q"] == "built"


@pytest.mark.slow
def test_an_empty_list_is_in_the_graph(project: Project) -> None:
    project.write({"pipeline.yaml": MADE, "names.txt": "[]"})
    assert project.run("graph").out.splitlines() == [
        "l  shell",
        "a  shell",
        "  after l  (l.json)",
        "c  shell",
        "  after a  (needs a)",
    ]
    green(project.build())
    lines = ["l  shell", "c  shell", "a  shell", "  after l  (its list)"]
    assert project.run("graph").out.splitlines() == lines
    nodes = json.loads(project.run("graph", "--json").out)["nodes"]
    assert [(one["stage"], one["expanded"], one["needs"]) for one in nodes][-1] == ("a", False, ["l"])
    assert '[["a<br/>shell"]]' in project.run("graph", "--format", "mermaid").out
    assert '"l" -> "a"' in project.run("graph", "--format", "dot").out
    project.write({"pipeline.yaml": MADE.replace("{from: l.json}", "{in: []}")})
    assert project.run("graph").out.splitlines()[-1] == "a  shell"


@pytest.mark.slow
@pytest.mark.parametrize("written", LISTS)
def test_an_empty_list_is_a_list(project: Project, written: str) -> None:
    file, empty, full = LISTS[written]
    project.write({"pipeline.yaml": PIPELINE.replace("LIST", written), file: empty})
    arguments = ["--vars", "v.yaml"] if file == "v.yaml" else []
    assert project.run("validate", *arguments).code == 0
    green(project.build(*arguments))
    skipped = dict.fromkeys(("make", "twin"), "skipped")
    assert ends(project) == {"all": "built", **skipped}
    assert project.read("all.lst") == "0\n"
    assert project.plan(*arguments) == {"all": "fresh", **skipped}
    project.write({file: full})
    green(project.build(*arguments))
    assert ends(project) == dict.fromkeys(("make@a", "make@b", "twin@a", "twin@b", "all"), "built")
    assert project.read("all.lst") == "2\n"
    project.write({file: empty})
    green(project.build(*arguments))
    assert ends(project) == {"all": "restored", **skipped}
    assert sorted(project.files()) == sorted({"pipeline.yaml", "pipeline.lock", "all.lst", file})
