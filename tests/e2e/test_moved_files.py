"""A file that one stage made and another one makes now is no edit of a user, also if it is committed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.e2e.pipelines import pipeline
from tests.repository import Repository, ends, green, up_to_date

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

LAYERS = """\
  layers:
    foreach: {from: 'plan.json#/layers', key: name, as: layer}
    inputs: ['plan.json#/layers/[name=${{ layer.name }}]']
    outputs: ["${{ layer.files | under('src') }}"]
    llm: {prompt: layer.md.j2, returns: files}
"""
GROUP = LAYERS.replace("  layers:\n", "  layers:\n    promote: app\n")
FROM_A_STAGE = "  plan: {promote: app, inputs: [in.json], outputs: [plan.json], shell: 'cp in.json plan.json'}\n"
LAYER = """\
{{ item.name }} {{ attempt }}
{"summary": "s", "writes": [
{%- for file in item.files %}{"path": "src/{{ file }}", "content": "# {{ item.name }} {{ file }}\\n"}
{{- "" if loop.last else ", " }}{% endfor %}], "deletes": [], "error": null}"""

Files = Mapping[str, Sequence[str]]
X, Y = ["x.py"], ["y.py"]
# what moves -> the files of each layer before and after
MOVES: dict[str, tuple[Files, Files]] = {
    "from a layer that stays": ({"a": X + Y, "b": ["z.py"]}, {"a": X, "b": ["z.py", *Y]}),
    "to a new layer": ({"a": X + Y}, {"a": X, "b": Y}),
    "from a layer that ends to a new one": ({"a": X}, {"b": X}),
    "from a layer that ends to one that stays": ({"a": X, "b": Y}, {"b": X + Y}),
    "between two layers": ({"a": X, "b": Y}, {"a": Y, "b": X}),
}


def layers(files: Files) -> str:
    return json.dumps({"layers": [{"name": name, "files": each} for name, each in files.items()]})


@pytest.mark.stride(7)
@pytest.mark.parametrize("how", ["alone", "in a group", "in a clone"])
@pytest.mark.parametrize("what", MOVES)
def test_a_committed_file_moves_between_items(tmp_path: Path, what: str, how: str) -> None:
    before, after = MOVES[what]
    project = Repository(tmp_path / "project")
    project.init()
    stages, source = (LAYERS, "plan.json") if how == "alone" else (FROM_A_STAGE + GROUP, "in.json")
    project.write(pipeline(stages, {source: layers(before), "layer.md.j2": LAYER}, head="jobs: 1\n"))
    green(project.build())
    project.commit()
    project = project.clone(tmp_path / "clone") if how == "in a clone" else project
    project.write({source: layers(after)})
    green(project.build())
    assert "edited" not in ends(project).values()
    made = {f"src/{file}": f"# {name} {file}\n".encode() for name, each in after.items() for file in each}
    assert project.files("src") == made
    project.commit()
    up_to_date(project.build())


def test_an_earlier_result_is_restored_over_a_committed_file_of_a_layer_that_ends(tmp_path: Path) -> None:
    before, after = MOVES["from a layer that ends to one that stays"]
    project = Repository(tmp_path / "project")
    project.init()
    files = {"plan.json": layers(before), "layer.md.j2": LAYER}
    project.write(pipeline(LAYERS, files, head="jobs: 1\n"))
    for listed in (before, after, before):
        project.write({"plan.json": layers(listed)})
        green(project.build())
    project.commit()
    project.write({"plan.json": layers(after)})
    green(project.build())
    assert ends(project)["layers@b"] == "restored"
    assert project.read("src/x.py") == "# b x.py\n"


STAGES = """\
  a: {if: "${{ vars.both }}", outputs: [src/x.py], llm: {prompt: a.md.j2, returns: text}}
  b: {inputs: [in.txt], outputs: OUTPUTS, llm: {prompt: b.md.j2, returns: files}}
"""


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("ends_by", ["removal", "if"])
def test_a_committed_file_of_a_stage_that_ended_moves_to_a_declared_one(
    tmp_path: Path, ends_by: str, *, edited: bool
) -> None:
    project = Repository(tmp_path / "project")
    project.init()
    b = "b\n" + LAYER.partition("\n")[2].replace("item.files", "files").replace("item.name", "'b'")
    prompts = {"a.md.j2": "a\n# a\n", "b.md.j2": "{% set files = ['y.py'] %}" + b, "in.txt": ""}
    head = "jobs: 1\nvars: {both: true}\n"
    project.write(pipeline(STAGES.replace("OUTPUTS", "[src/y.py]"), prompts, head=head))
    green(project.build())
    project.commit()
    if edited:
        project.edit("src/x.py", "# mine\n")
    now = STAGES.replace("OUTPUTS", "[src/x.py, src/y.py]")
    now = now.partition("\n")[2] if ends_by == "removal" else now
    head = head.replace("true", "false")
    project.write(pipeline(now, prompts | {"b.md.j2": "{% set files = ['x.py', 'y.py'] %}" + b}, head=head))
    done = project.build()
    assert (done.code, ends(project)["b"]) == ((6, "edited") if edited else (0, "built"))
    assert ("src/x.py" in done.err, project.read("src/x.py")) == (True, "# mine\n" if edited else "# b x.py\n")
