"""Write a graph as Mermaid, for Markdown pages that draw it."""

from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.report.diagnostics import visible


def graph_mermaid(plan: Plan) -> str:
    """Return a Mermaid flowchart. A foreach that is not expanded yet has doubled sides."""
    ids = {name: f"s{number}" for number, name in enumerate(plan.order)}
    lines = ["flowchart TD"]
    for name in plan.order:
        label = f'"{_quoted(name)}<br/>{plan.nodes[name].kind}"'
        box = f"[[{label}]]" if isinstance(plan.nodes[name], ForeachStage) else f"[{label}]"
        lines.append(f"    {ids[name]}{box}")
    lines += [f"    {ids[up]} --> {ids[name]}" for name in plan.order for up in plan.upstream.get(name, ())]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return visible(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
