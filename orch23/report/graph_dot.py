"""Write a graph in the language of Graphviz."""

from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.report.diagnostics import visible


def graph_dot(plan: Plan) -> str:
    """Return a directed graph for `dot`. A foreach that is not expanded yet is dashed."""
    lines = [f"digraph {_quoted(plan.pipeline.name)} {{", "  node [shape=box];"]
    for name in plan.order:
        dashed = ", style=dashed" if isinstance(plan.nodes[name], ForeachStage) else ""
        lines.append(f'  {_quoted(name)} [label={_quoted(name)[:-1]}\\n{plan.nodes[name].kind}"{dashed}];')
    lines += [f"  {_quoted(up)} -> {_quoted(name)};" for name in plan.order for up in plan.upstream.get(name, ())]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(name: str) -> str:
    text = visible(name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
