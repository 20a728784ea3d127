"""Write a graph for people: the stages in their order, each with what it needs and why."""

from orch23.model.plan import Plan
from orch23.report.diagnostics import visible

_MOST_REASONS = 3


def graph_text(plan: Plan) -> str:
    """Return the stages one below the other; under each, the stages that come before it."""
    lines = []
    width = max((len(visible(name)) for name in plan.order), default=0)
    for name in plan.order:
        group = plan.group_of(name)
        grouped = f"  promote: {visible(group)}" if group is not None else ""
        lines.append(f"{visible(name):<{width}}  {plan.nodes[name].kind}{grouped}".rstrip())
        for up in plan.upstream.get(name, ()):
            why = list(dict.fromkeys(edge.why for edge in plan.edges if (edge.producer, edge.reader) == (up, name)))
            more = f" +{len(why) - _MOST_REASONS}" if len(why) > _MOST_REASONS else ""
            told = f"  ({visible(', '.join(why[:_MOST_REASONS]))}{more})" if why else ""
            lines.append(f"  after {visible(up)}{told}")
    return "".join(f"{line}\n" for line in lines)
