"""Run `graph`: write the stages and their dependencies as text, Mermaid, DOT or JSON."""

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_for_command
from orch23.cli.project_loading import open_read_session
from orch23.engine.dry_run import preview
from orch23.model.digest import Json
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.report.diagnostics import visible
from orch23.report.plan_json import place_document
from orch23.report.values import json_document

_MAX_REASONS = 3


def graph_text(plan: Plan) -> str:
    """Return a line for each stage, and below it one for each upstream stage."""
    lines = []
    width = max((len(visible(name)) for name in plan.order), default=0)
    for name in plan.order:
        group = plan.group_of(name)
        grouped = f"  promote: {visible(group)}" if group is not None else ""
        lines.append(f"{visible(name):<{width}}  {plan.nodes[name].kind}{grouped}".rstrip())
        for up in plan.upstream.get(name, ()):
            why = list(dict.fromkeys(edge.why for edge in plan.edges if (edge.producer, edge.reader) == (up, name)))
            more = f" +{len(why) - _MAX_REASONS}" if len(why) > _MAX_REASONS else ""
            reasons = f"  ({visible(', '.join(why[:_MAX_REASONS]))}{more})" if why else ""
            lines.append(f"  after {visible(up)}{reasons}")
    return "".join(f"{line}\n" for line in lines)


def graph_mermaid(plan: Plan) -> str:
    """Return a Mermaid flowchart. A foreach without items yet has double sides."""
    ids = {name: f"s{number}" for number, name in enumerate(plan.order)}
    lines = ["flowchart TD"]
    for name in plan.order:
        label = f'"{_mermaid_quoted(name)}<br/>{plan.nodes[name].kind}"'
        box = f"[[{label}]]" if isinstance(plan.nodes[name], ForeachStage) else f"[{label}]"
        lines.append(f"    {ids[name]}{box}")
    lines += [f"    {ids[up]} --> {ids[name]}" for name in plan.order for up in plan.upstream.get(name, ())]
    return "\n".join(lines) + "\n"


def _mermaid_quoted(name: str) -> str:
    return visible(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def graph_dot(plan: Plan) -> str:
    """Return a directed graph for `dot`. A foreach without items yet is dashed."""
    lines = [f"digraph {_dot_quoted(plan.pipeline.name)} {{", "  node [shape=box];"]
    for name in plan.order:
        dashed = ", style=dashed" if isinstance(plan.nodes[name], ForeachStage) else ""
        lines.append(f'  {_dot_quoted(name)} [label={_dot_quoted(name)[:-1]}\\n{plan.nodes[name].kind}"{dashed}];')
    lines += [
        f"  {_dot_quoted(up)} -> {_dot_quoted(name)};" for name in plan.order for up in plan.upstream.get(name, ())
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_quoted(name: str) -> str:
    text = visible(name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


GRAPH_VERSION = 1


def graph_json(plan: Plan) -> str:
    """Return one JSON document: stages in order, and edges with their reasons."""
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
    return json_document(
        {
            "orch23_graph": GRAPH_VERSION,
            "name": plan.pipeline.name,
            "pipeline": plan.pipeline.file,
            "nodes": nodes,
            "edges": edges,
        }
    )


def run(
    console: Console,
    *,
    args: PipelineArguments,
    form: str,
    as_json: bool,
) -> None:
    """Show stages and their dependencies."""
    project, _ = open_for_command(console, args, most_stages=0)
    plan = preview(open_read_session(project)).plan
    formats = {"text": graph_text, "mermaid": graph_mermaid, "dot": graph_dot, "json": graph_json}
    console.write_out(formats["json" if as_json else form](plan))
