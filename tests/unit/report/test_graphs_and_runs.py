"""Graphs in four formats, runs and journals as lines."""

import json
from datetime import timedelta, timezone

from orch23.cli.actions.pipeline import graph_dot, graph_json, graph_mermaid, graph_text
from orch23.model.event import parse_event
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
from orch23.model.plan import Edge, Plan
from orch23.report.runs import log_line, runs_text
from orch23.steps.shell.spec import ShellStep
from orch23.store.run_list import RunSummary

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


def test_runs_are_one_line_each() -> None:
    assert runs_text([]) == "there are no runs\n"
    reported = runs_text(
        [
            RunSummary(
                run_id="r4",
                status="ok",
                pipeline="p.yaml",
                started="2026-11-21T23:48:16.048Z",
                counts={"fresh": 2},
                duration_s=0.25,
            ),
            RunSummary(run_id="r3", status="failed", duration_s=65, calls=3, cost="0.005", possible_cost="0.16"),
            RunSummary(run_id="r2", status="ok", counts={"built": 1}, duration_s=2, calls=1, unpriced=1),
            RunSummary(run_id="r1", status="damaged", started="not a time"),
        ],
        timezone(timedelta(hours=2)),
    )
    assert reported == (
        "r4  2026-11-22 01:48  ok       p.yaml  0.2s    2 fresh\n"
        "r3                    failed           1m 05s  3 calls, $0.005, at most $0.16 more\n"
        "r2                    ok               2.0s    1 built, 1 call, price of 1 call unknown\n"
        "r1                    damaged\n"
    )


def test_a_line_of_the_log_has_time_stage_and_message() -> None:
    moment = "2026-11-21T23:48:16.048Z"
    decided = parse_event(
        "stage_decided", "run", role="a", data={"decision": "run", "reasons": [{"code": "first_run"}]}
    )
    assert log_line(moment, decided) == "23:48:16.048  stage_decided     a: run: first_run\n"
    hostile = parse_event("warning", "x\x1b[2J\ny", level="warning")
    assert log_line(moment, hostile) == "23:48:16.048  warning           warning: x\\x1b[2J y\n"
