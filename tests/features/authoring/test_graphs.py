"""Graphs in four formats."""

import json

from orch23.features.authoring.pipelines import graph_dot, graph_json, graph_mermaid, graph_text
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
from orch23.model.plan import Edge, Plan
from orch23.steps.shell.spec import ShellStep

NODES: dict[str, Stage | ForeachStage] = {
    "a": Stage(name="a", step=ShellStep("x")),
    "each": ForeachStage(name="each", foreach=Foreach(), body={}, kind="llm"),
}
PLAN = Plan(
    pipeline=Pipeline(name='de"mo', file="p.yaml", stages=tuple(NODES.values())),
    nodes=NODES,
    order=("a", "each"),
    upstream={"a": (), "each": ("a",)},
    downstream={"a": ("each",), "each": ()},
    edges=(Edge("a", "each", "l.json"), Edge("a", "each", "needs")),
)


def test_text_names_what_comes_before_and_why() -> None:
    assert graph_text(PLAN) == "a     shell\neach  llm\n  after a  (l.json, needs)\n"


def test_mermaid_and_dot_mark_what_is_not_expanded() -> None:
    assert graph_mermaid(PLAN) == ('flowchart TD\n    s0["a<br/>shell"]\n    s1[["each<br/>llm"]]\n    s0 --> s1\n')
    dot = graph_dot(PLAN)
    assert dot.startswith('digraph "de\\"mo" {\n')
    assert '"each" [label="each\\nllm", style=dashed];' in dot
    assert '"a" -> "each";' in dot


def test_json_has_nodes_in_order_and_edges_with_reasons() -> None:
    found = json.loads(graph_json(PLAN))
    assert [(node["stage"], node["expanded"], node["needs"]) for node in found["nodes"]] == [
        ("a", True, []),
        ("each", False, ["a"]),
    ]
    assert found["edges"][0] == {"from": "a", "to": "each", "why": "l.json"}
