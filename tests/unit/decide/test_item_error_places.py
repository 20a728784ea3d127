"""Errors of the items of a foreach over a file are placed at the key of the pipeline that they break."""

import json
from pathlib import Path
from typing import Any

import pytest

from orch23.decide.list_expansion import items_of
from orch23.load.pipeline import load_pipeline
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import ForeachStage, definition_paths
from orch23.plan.planner import build_plan

TEXT = """version: 1
vars: {l: [x1, y1], n: "9"}
defaults:
  verify: [{check: max_lines, with: {max: 2}}, {check: "${{ vars.l[0] }}"}]
  env: {A: "${{ item.gone }}", B: b}
  cwd: "${{ item.c }}"
stages:
  s:
    foreach: {from: l.json, key: id}
    shell: [a]
    timeout: "${{ item.t }}"
    env: {B: "${{ item.gone2 }}"}
    limits: {processes: "${{ item.n }}"}
    retry: {max: "${{ item.n }}"}
    outputs: ["${{ vars.l }}", "${{ item.up }}", "${{ item.o }}"]
"""


def problems(tmp_path: Path, text: str, items: list[Any]) -> list[tuple[str, int, int]]:
    (tmp_path / "p.yaml").write_text(text)
    pipeline = load_pipeline(tmp_path / "p.yaml", tmp_path).pipeline
    plan, _ = build_plan(pipeline)
    assert plan is not None
    node = plan.nodes["s"]
    assert isinstance(node, ForeachStage)
    found = items_of(plan, node, json.dumps(items).encode(), json.loads, {}).problems
    return [(one.code, one.location.line, one.location.column) for one in found if one.location is not None]


@pytest.mark.slow
def test_each_error_of_an_item_has_the_place_of_its_key(tmp_path: Path) -> None:
    item = {"id": "a", "t": "soon", "n": 0, "o": "p.lock", "c": "/a", "up": "../a"}
    assert problems(tmp_path, TEXT, [item]) == [
        ("E840", 5, 12),
        ("E840", 12, 14),
        ("E857", 6, 8),
        ("E857", 11, 14),
        ("E857", 13, 25),
        ("E857", 14, 18),
        ("E857", 15, 32),
        ("E858", 15, 50),
    ]


def test_a_directory_in_which_no_item_could_name_a_path_is_an_error_of_the_pipeline(tmp_path: Path) -> None:
    text = """version: 1
vars: {here: ".", up: ".."}
stages:
  s:
    foreach: {from: l.json, key: id}
    shell: [a]
    cwd: "/${{ item.id }}"
    inputs: ["src/*/${{ item.id }}.c", "!.git/${{ item.id }}", "${{ vars.here }}//${{ item.id }}"]
    outputs: ["${{ vars.up }}/${{ item.id }}", ".github/${{ item.id }}", "a b/${{ item.id }}/x"]
"""
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_pipeline(tmp_path / "p.yaml", tmp_path)
    found = [
        (one.location.line, one.message) for one in caught.value.diagnostics if one.location and one.code == "E857"
    ]
    assert found == [
        (7, "an item cannot name a path in `/`: is absolute"),
        (8, 'an item cannot name a path in `src/*/`: holds one of \\ : * ? " < > |'),
        (8, "an item cannot name a path in `.git/`: `.git` is a protected name"),
        (9, "an item cannot name a path in `../`: climbs out with `..`"),
        (9, "an item cannot name a path in `.github/`: `.github` is a protected name"),
    ]


def test_errors_of_sound_items_have_the_place_of_their_key_too(tmp_path: Path) -> None:
    text = """version: 1
vars: {c: nope}
stages:
  s:
    foreach: {from: l.json, key: id}
    shell: [a]
    verify:
      steps:
        - {ensures: {file_exists: x}}
        - {check: "${{ vars.c }}"}
    outputs: [one, "${{ item.o }}"]
"""
    items = [{"id": "a", "o": "p.yaml"}, {"id": "b", "o": "c"}]
    assert problems(tmp_path, text, items) == [("E858", 11, 20), ("E828", 10, 19)]
    fence = '    outputs: ["${{ vars.o }}"]\n    allowed_paths: {write: ["${{ item.o }}", "${{ vars.o }}"]}\n'
    text = text.replace("vars: {", "vars: {o: o, ").replace('    outputs: [one, "${{ item.o }}"]\n', fence)
    assert problems(tmp_path, text, items) == [("E858", 12, 28), ("E828", 10, 19)]


@pytest.mark.parametrize(
    ("path", "written", "place"),
    [
        ("stages/s/env/A", {"stages/s/env/A", "defaults/env/A"}, "stages/s/env/A"),
        ("stages/s/env/A", {"stages/s/env", "defaults/env/A"}, "defaults/env/A"),
        ("stages/s/env/A", {"stages/s/env", "defaults/env"}, "stages/s/env"),
        ("stages/s/env/A", {"stages/s", "defaults/env"}, "defaults/env"),
        ("stages/s/verify/1/check", {"stages/s/verify", "defaults/verify/1/check"}, "stages/s/verify"),
        ("stages/s/verify/1/check", {"stages/s", "defaults/verify/1"}, "defaults/verify/1"),
        ("stages/s/shell", {"stages/s", "defaults"}, "stages/s"),
        ("pools/1", {"pools", "defaults/1"}, "pools"),
        ("jobs", set(), None),
    ],
)
def test_a_node_is_written_in_its_stage_or_among_the_defaults(path: str, written: set[str], place: str | None) -> None:
    assert next((one for one, _ in definition_paths(path.split("/"), written) if one in written), None) == place
