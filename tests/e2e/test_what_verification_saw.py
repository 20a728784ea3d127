"""What a green build has verified is what stands in the project afterwards: the next build has nothing to do."""

import json
from pathlib import Path

import pytest

from tests.e2e.pipelines import green, pipeline, shell
from tests.project import Project
from tests.repository import Repository

SEES = "steps: [{shell: 'find out -type f | sort'}]"
STEPS = {
    "shell": """shell: [sh, -c, 'echo $0 > out/$1', "${{ task.id }}", "${{ task.to }}"]""",
    "render": "render: {template: file.j2}",
    "llm": "llm: {prompt: ask.j2, returns: files}",
}
FILES = {
    "file.j2": "{{ item.id }}\n",
    "ask.j2": '{{ item.id }}\n{"summary": "s", "writes": [{"path": "out/{{ item.to }}", "content": "{{ item.id }}"}],'
    ' "deletes": [], "error": null}',
}
READER = f"  reader: {{inputs: [out/**], outputs: [all], shell: ls out > all, verify: {{inputs: [out/**], {SEES}}}}}\n"
# the key and the file of each item, before and after
MOVES = [
    ("1a", "1b"),
    ("1a 2b", "1a"),
    ("1a 2b", "1b"),
    ("1a 2b", "1b 2a"),
    ("1a 2b", "2b 1a"),
    ("1a 2b", "1c 2b"),
    ("1a 2b", "1a 2c"),
    ("1a 2b", "1c 2a"),
    ("1a 2b", "1b 2c"),
    ("1a 2b 3c", "1a 2c"),
    ("1a 2b 3c", "1a 2d 3c"),
    ("1a 2a", "1b 2c"),
]


def items(text: str) -> str:
    return json.dumps([{"id": f"T{one[0]}", "to": one[1]} for one in text.split()])


def stage(order: str, step: str) -> str:
    # Items that may run side by side read no files of each other.
    inputs = "out/**" if "sequential" in order else "list.json"
    sees = SEES if "sequential" in order else "steps: [{shell: test -d out}]"
    return f"""\
  one:
    foreach: {{from: list.json, key: id, as: task{order}}}
    outputs: ["out/${{{{ task.to }}}}"]
    {STEPS[step]}
    verify: {{inputs: [{inputs}], {sees}}}
"""


def seen(project: Project, name: str) -> list[str] | None:
    """Return the files that the last verification of a stage in the newest run saw, or None if there was none."""
    found = sorted((project.root / "logs" / project.journals()[-1].stem / name).glob("attempt-*/verify-1.txt"))
    return found[-1].read_text().split() if found else None


def built(project: Project, last: str) -> None:
    """Build twice, and hold the first build to its plan, and to what the stage saw that it verified last."""
    planned = project.run("plan", "--json").json()
    before = set(project.files("out"))
    outcome = project.build()
    green(outcome)
    assert "stale again" not in outcome.err
    surely, there = set(planned["dead_files"]), set(project.files("out"))
    assert surely <= before - there <= surely | set(planned["may_remove"])
    assert seen(project, last) in (None, sorted(there))
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())
    assert project.ran() == []


KINDS = [
    ("shell", "", "git"),
    ("shell", ", promote: together", ""),
    ("shell", ", order: sequential", ""),
    ("shell", ", order: sequential, promote: together", "git"),
    ("render", ", order: sequential", "the user"),
    ("llm", ", order: sequential", ""),
]
# Items of which two make one file are sequential.
CASES = [(number, *kind) for number in range(len(MOVES)) for kind in KINDS if kind[1].startswith(", o") or number < 11]


@pytest.mark.slow
@pytest.mark.stride(17)
@pytest.mark.parametrize(("number", "step", "order", "owner"), CASES)
def test_the_files_of_items_move(tmp_path: Path, number: int, step: str, order: str, owner: str) -> None:
    before, after = MOVES[number]
    is_sequential = "sequential" in order
    reader = "" if is_sequential and number % 3 else READER
    project = Repository(tmp_path / "project")
    project.init()
    project.write(pipeline(stage(order, step) + reader, {**FILES, "list.json": items(before)}))
    project.write({"out/a": "mine\n"} if owner == "the user" else {})
    project.commit()
    green(project.build())
    if owner == "git":
        project.commit()
    project.write({"list.json": items(after)})
    built(project, "reader" if reader else f"one@T{after.split()[-1][0]}")


@pytest.mark.parametrize("order", ["", ", order: sequential"])
def test_an_item_is_verified_without_its_former_file(project: Project, order: str) -> None:
    one = stage(order, "shell").replace("find out -type f | sort", "test -e out/a").replace("-d out", "-e out/a")
    project.write(shell(one, {"list.json": items("1a")}))
    green(project.build())
    project.write({"list.json": items("1b")})
    assert project.build().code == 1
    assert [*project.files("out")] == ["out/a"]


@pytest.mark.slow
def test_a_stage_does_not_see_what_one_that_may_run_later_leaves_out(project: Project) -> None:
    late = "  late: {NEEDS outputs: [PLACE/late], shell: touch PLACE/late}\n"
    early = "  early: {outputs: [out/early], shell: touch out/early}\n" + READER
    project.write(shell(early + late.replace("PLACE", "out").replace("NEEDS", "")))
    green(project.build())
    project.write(shell(early + late.replace("PLACE", "z").replace("NEEDS", "needs: [reader],")))
    built(project, "reader")
