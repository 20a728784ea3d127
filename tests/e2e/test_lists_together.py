"""Lists that nobody makes are expanded together: what one expansion costs is paid once."""

from unittest.mock import patch

import pytest

from orch23.language.stages import _render_item
from orch23.plan.planner import extend_plan
from tests.e2e.pipelines import ends, green
from tests.project import Project

PIPELINE = """\
version: 1
stages:
  above:
    foreach: {from: gen/list.yaml}
    outputs: ["above/${{ item }}.txt"]
    shell: [touch, "above/${{ item }}.txt"]
  below:
    foreach: {in: [x, y]}
    outputs: ["gen/${{ item }}.yaml"]
    shell: [touch, "gen/${{ item }}.yaml"]
  plain:
    foreach: {in: [z]}
    outputs: ["plain/${{ item }}.txt"]
    shell: [touch, "plain/${{ item }}.txt"]
"""


@pytest.fixture
def listed(project: Project) -> Project:
    """Give a project in which the list of `above` may be an item's output until `below` is expanded."""
    return project.write({"pipeline.yaml": PIPELINE, "gen/list.yaml": "[a, b]\n"})


@pytest.mark.slow
def test_lists_are_expanded_together_with_those_that_turn_out_to_be_no_ones(listed: Project) -> None:
    with patch("orch23.decide.list_expansion.extend_plan", side_effect=extend_plan) as extended:
        assert listed.plan() == {
            "above@a": "run",
            "above@b": "run",
            "below@x": "run",
            "below@y": "run",
            "plain@z": "run",
        }
    assert [sorted(call.args[1]) for call in extended.call_args_list] == [["above", "below", "plain"]]
    green(listed.build())
    assert set(ends(listed)) == {"above@a", "above@b", "below@x", "below@y", "plain@z"}
    assert set(listed.plan().values()) == {"fresh"}


def test_the_mistakes_of_all_lists_are_reported_at_once(listed: Project) -> None:
    text = PIPELINE.replace("[z]", "[z, z]").replace("[x, y]", "[x, '..']")
    listed.write({"pipeline.yaml": text.replace("gen/list.yaml", "gone.yaml")})
    outcome = listed.build()
    assert outcome.code == 65
    for name in ("gone.yaml", "below: item 1", "plain: items 0 and 1"):
        assert name in outcome.err, outcome.err


@pytest.mark.slow
def test_the_items_of_a_list_that_a_stage_makes_are_rendered_once(project: Project) -> None:
    text = """\
version: 1
stages:
  list: {shell: [cp, items.json, list.json], inputs: [items.json], outputs: [list.json]}
  each:
    foreach: {from: "list.json#", key: id}
    outputs: ["out/${{ item.id }}.txt"]
    shell: [sh, -c, 'echo $0 > $1', "n${{ item.v }}", "out/${{ item.id }}.txt"]
"""
    project.write({"pipeline.yaml": text, "items.json": '[{"id": "a", "v": 1}, {"id": "b", "v": 2}]'})
    with patch("orch23.language.stages._render_item", side_effect=_render_item) as rendered:
        green(project.build())
    # They are rendered to check the list before it is promoted, and taken over once it is.
    assert [call.args[1].key for call in rendered.call_args_list] == ["a", "b"]
    assert (project.root / "out" / "b.txt").read_text() == "n2\n"
