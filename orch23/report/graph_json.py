"""Write a graph for programs: one JSON document of a versioned shape."""

from orch23.model.digest import Json
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.report.document import document
from orch23.report.plan_json import place_document

GRAPH_VERSION = 1


def graph_json(plan: Plan) -> str:
    """Return nodes in their order and edges with what makes them."""
    nodes: list[Json] = [
        {
            "stage": name,
            "kind": plan.nodes[name].kind,
            "expanded": not isinstance(plan.nodes[name], ForeachStage),
            "promote": plan.group_of(name),
            "needs": list(plan.upstream.get(name, ())),
            "location": place_document(plan.pipeline.locate("stages", name)),
        }
        for name in plan.order
    ]
    edges: list[Json] = [{"from": edge.producer, "to": edge.reader, "why": edge.why} for edge in plan.edges]
    return document(
        {
            "orch23_graph": GRAPH_VERSION,
            "name": plan.pipeline.name,
            "pipeline": plan.pipeline.file,
            "nodes": nodes,
            "edges": edges,
        }
    )
