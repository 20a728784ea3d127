"""An item of a chain reads what any earlier item of the chain made, not only what the one directly before it made."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

PLAN = "  plan: {outputs: [plan.json], llm: {prompt: plan.md.j2, returns: json}, retry: 2}\n"
CODE = """\
  code:
    foreach: {from: 'plan.json#/tasks', key: id, as: task, order: sequential}
    inputs: ["${{ task.reads | under('out') }}"]
    outputs: ["${{ task.writes | under('out') }}"]
    llm: {prompt: code.md.j2, returns: files}
"""
CODED = proposing("code {{ item.id }}", {"X": ""}).partition("\n")[0] + (
    '\n{"summary": "s", "writes": [{% for path in item.writes %}{"path": "out/{{ path }}", "content": '
    "\"{{ item.id }} read {{ inputs | map(attribute='text') | join | replace('\\n', '') }}\\n\"}"
    '{{ "," if not loop.last }}{% endfor %}], "deletes": [], "error": null}\n'
)


def task(key: str, reads: list[str], writes: list[str]) -> dict[str, object]:
    return {"id": key, "reads": reads, "writes": writes}


def planned(project: Project, *tasks: dict[str, object]) -> Project:
    """Write a pipeline in which a model makes the list of the tasks, and another works on them one after the other."""
    project.write(
        pipeline(PLAN + CODE, {"plan.md.j2": prompt("plan", json.dumps({"tasks": tasks})), "code.md.j2": CODED})
    )
    return project


THREE = (task("one", [], ["a"]), task("two", [], ["b"]), task("three", ["a"], ["c"]))


def test_a_file_of_an_item_two_steps_back_is_an_input(project: Project) -> None:
    green(planned(project, *THREE).build())
    assert calls(project) == ["plan", "code one", "code two", "code three"], "the list was right at the first attempt"
    assert project.read("out/c") == "three read one read \n"
    assert set(project.plan().values()) == {"fresh"}


def test_it_sees_the_newest_version_made_before_it(project: Project) -> None:
    tasks = [task("one", [], ["a"]), task("two", [], ["a", "b"]), task("three", [], ["b"]), task("four", ["a"], ["c"])]
    green(planned(project, *tasks, task("five", [], ["a"])).build())
    assert project.read("out/c") == "four read two read one read \n"
    assert project.read("out/a") == "five read two read one read \n"


def test_plan_and_explain_know_that_a_change_far_back_reaches_the_item(project: Project) -> None:
    stages = """\
  code:
    foreach: {in: [one, two, three], order: sequential}
    inputs: ["src/${{ item }}", "${{ ['out/one'] if item == 'three' else [] }}"]
    outputs: ["out/${{ item }}"]
    shell: "cat src/${{ item }} $(ls out/* 2>/dev/null) > new; mv new out/${{ item }}"
"""
    project.write(shell(stages, {f"src/{name}": f"{name}\n" for name in ("one", "two", "three")}))
    green(project.build())
    assert project.read("out/three") == "three\none\n"
    project.edit("src/one", "ONE\n")
    assert project.plan() == {"code@one": "run", "code@two": "fresh", "code@three": "maybe"}
    assert "code@one" in project.run("explain", "code@three").out
    green(project.build())
    assert ends(project) == {"code@one": "built", "code@two": "fresh", "code@three": "built"}
    assert project.read("out/three") == "three\nONE\n"


def test_verification_may_read_it_too(project: Project) -> None:
    planned(project, *THREE)
    project.replace(
        "pipeline.yaml",
        """    inputs: ["${{ task.reads | under('out') }}"]\n""",
        """    verify: {inputs: ["${{ task.reads | under('out') }}"], steps: [{shell: 'cat out/*'}]}\n""",
    )
    green(project.build())


def test_a_list_that_is_written_in_the_pipeline_may_do_so(project: Project) -> None:
    stages = """\
  code:
    foreach: {in: [one, two, three, four], order: sequential}
    inputs: ["${{ ['out/one'] if item in ('three', 'four') else [] }}"]
    outputs: ["out/${{ item }}"]
    shell: [touch, "out/${{ item }}"]
"""
    green(project.write(shell(stages)).run("validate"))
    green(project.build())


def test_a_later_item_makes_nothing_for_an_earlier_one(project: Project) -> None:
    tasks = (task("one", ["c"], ["a"]), task("two", [], ["b"]), task("three", [], ["c"]))
    outcome = planned(project, *tasks).build()
    assert outcome.code == 1
    assert "input `out/c` of stage `code@one` does not exist" in outcome.err
    assert "`code@three`, which makes it, comes later" in outcome.err


def test_what_no_one_makes_is_refused_as_before(project: Project) -> None:
    outcome = planned(project, *THREE[:2], task("three", ["z"], ["c"])).build()
    assert outcome.code == 1
    assert "input `out/z` of stage `code@three` does not exist, and no stage makes it" in outcome.err
