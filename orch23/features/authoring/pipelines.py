"""Run `graph`, `vars`, `schema` and `help`: show a pipeline, write the schema of all, explain a code or a command."""

import difflib
import json
import textwrap
from collections.abc import Collection, Mapping
from contextlib import suppress

import click
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.group import COMMAND_NAMES
from orch23.cli.named_files import write_named_file
from orch23.cli.opening import check_stage_count, found_project, open_for_command, project_root
from orch23.cli.pages import diagnostic_codes, find_page, page_names, page_titles
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import open_for_reading
from orch23.decide.dry_run import check_ownership, preview
from orch23.language.schema import published_schema
from orch23.load.pipeline import plugins_of
from orch23.model.diagnostic import Diagnostic, nearest_names, question
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError, NotFoundError
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Edge, Plan
from orch23.model.plugins import plugin_codes
from orch23.model.text import visible
from orch23.report.plan_json import place_document
from orch23.report.plan_view import declared_files
from orch23.report.values import json_document

_MAX_REASONS = 3


def graph_text(plan: Plan) -> str:
    """Return a line for each stage, and below it one for each upstream stage."""
    lines = []
    width = max((len(visible(name)) for name in plan.order), default=0)
    reasons_of: dict[tuple[str, str], dict[str, None]] = {}
    for edge in plan.edges:
        reasons_of.setdefault((edge.producer, edge.reader), {})[edge.why] = None
    for name in plan.order:
        group = plan.group_of(name)
        grouped = f"  promote: {visible(group)}" if group is not None else ""
        lines.append(f"{visible(name):<{width}}  {plan.nodes[name].kind}{grouped}".rstrip())
        for up in plan.upstream.get(name, ()):
            why = [*reasons_of.get((up, name), ())]
            more = f" +{len(why) - _MAX_REASONS}" if len(why) > _MAX_REASONS else ""
            reasons = f"  ({visible(', '.join(why[:_MAX_REASONS]))}{more})" if why else ""
            lines.append(f"  after {visible(up)}{reasons}")
    return "".join(f"{line}\n" for line in lines)


def graph_mermaid(plan: Plan) -> str:
    """Return a Mermaid flowchart. A foreach without items yet has double sides."""
    ids = {name: f"s{number}" for number, name in enumerate(plan.order)}
    lines = ["flowchart TD"]
    for name in plan.order:
        shown = visible(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
        label = f'"{shown}<br/>{plan.nodes[name].kind}"'
        box = f"[[{label}]]" if isinstance(plan.nodes[name], ForeachStage) else f"[{label}]"
        lines.append(f"    {ids[name]}{box}")
    lines += [f"    {ids[up]} --> {ids[name]}" for name in plan.order for up in plan.upstream.get(name, ())]
    return "\n".join(lines) + "\n"


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


def graph_json(plan: Plan) -> str:
    """Return one JSON document: stages in order, and edges with their reasons."""
    nodes: list[Json] = [
        {
            "stage": name,
            "kind": plan.nodes[name].kind,
            "expanded": not isinstance(plan.nodes[name], ForeachStage),
            "promote": plan.group_of(name),
            "needs": list(plan.upstream.get(name, ())),
            **declared_files(plan.nodes[name]),
            "location": place_document(plan.pipeline.locate("stages", name)),
        }
        for name in plan.order
    ]
    edges: list[Json] = [{"from": edge.producer, "to": edge.reader, "why": edge.why} for edge in plan.edges]
    return json_document(
        {"orch23_graph": 1, "name": plan.pipeline.name, "pipeline": plan.pipeline.file, "nodes": nodes, "edges": edges}
    )


def _with_empty_lists(plan: Plan) -> Plan:
    """Return a plan in which a foreach without items is a node, the last one in the order."""
    found = [one for one in plan.pipeline.stages if plan.expansions.get(one.name) == ()]
    ups = {one.name: tuple(up for up in plan.lists.get(one.name, ()) if up in plan.nodes) for one in found}
    edges = tuple(Edge(up, name, "its list") for name in ups for up in ups[name])
    more = {"edges": (*plan.edges, *edges), "upstream": {**plan.upstream, **ups}}
    return replace(plan, nodes={**plan.nodes, **{one.name: one for one in found}}, order=(*plan.order, *ups), **more)


def show_graph(console: Console, *, args: PipelineArguments, form: str, as_json: bool) -> None:
    """Show stages and their dependencies."""
    project, _ = open_for_command(console, args, most_stages=0)
    opened = open_for_reading(project)
    check_ownership(opened)
    plan = opened.state.plan
    # Only the items of lists that stages make depend on decisions.
    plan = _with_empty_lists(preview(opened).plan if plan.unexpanded else plan)
    formats = {"text": graph_text, "mermaid": graph_mermaid, "dot": graph_dot, "json": graph_json}
    console.write_out(formats["json" if as_json else form](plan))


def show_vars(console: Console, *, args: PipelineArguments, origin: bool, as_json: bool) -> None:
    """Show the variables of a pipeline."""
    project, _ = open_for_command(console, args, most_stages=0)
    values, origins = project.pipeline.vars, project.loaded.origins
    if as_json:
        rows: dict[str, Json] = {
            name: {"value": value, "origin": origins.get(name, "")} for name, value in values.items()
        }
        console.write_out(json_document({"orch23_vars": 1, "vars": rows}))
        return
    for name, value in values.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        where = f"   ({visible(origins[name])})" if origin and name in origins else ""
        console.write_out(f"{visible(name)}={visible(shown)}{where}\n")


def write_schema(console: Console, *, args: PipelineArguments, out: str | None) -> None:
    """Write the JSON schema of pipelines."""
    text = json.dumps(published_schema(named_plugins(console, args.arguments)), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        console.write_out(text)
        return
    write_named_file(console, out, text)
    console.write_err(f"wrote {out}; make this the first line of a pipeline, for editors:\n")
    console.write_err(f"# yaml-language-server: $schema={out}\n")


def named_plugins(console: Console, arguments: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the plugins of the named or default pipeline; none if no pipeline is named and there is no default one.

    Raises:
        InvalidInputError: a plugin is not installed.
    """
    found = found_project(console, arguments)
    if found.pipeline is None:
        return ()
    check_stage_count(found.stages, 0)
    return plugins_of(found.pipeline, project_root(console, arguments))


_WIDTH = 88
_NEAREST = 3
_NAME_WIDTH = 32


def show_help(console: Console, *, topic: str | None) -> None:
    """Explain a diagnostic code or a command, or show a page."""
    root = click.get_current_context().find_root()
    # Commands first: no command looks like a code. A page with the name of a command is shown as `docs/NAME`.
    command = root.command.get_command(root, topic) if topic and isinstance(root.command, click.Group) else None
    if topic is None:
        console.write_out(f"{root.get_help()}\n")
    elif command is not None:
        with click.Context(command, info_name=topic, parent=root) as below:
            console.write_out(f"{below.get_help()}\n")
    elif topic == "pages":
        console.write_out("".join(f"{name:<{_NAME_WIDTH}}  {title}\n" for name, title in page_titles()))
    else:
        console.write_out(find_page(topic) or _explanation(console, topic))


def _explanation(console: Console, topic: str) -> str:
    known, code, plugin = diagnostic_codes(), topic.upper(), ""
    renamed = (one for one, (_, text) in known.items() if text.endswith(f" Its code was {code}."))
    code = code if code in known else next(renamed, code)
    if code in known:
        title, text = known[code]
    else:
        of_plugins: Mapping[str, tuple[str, str, str]] = {}
        with suppress(InvalidInputError):  # a plugin is not installed
            of_plugins = plugin_codes(named_plugins(console))
        if code not in of_plugins:
            hint = _hint(topic, [*known, *of_plugins])
            raise NotFoundError(Diagnostic("E663", f"no code, command or page is named {topic}", hint=hint))
        title, text, plugin = of_plugins[code]
    origin = f"\n\nIt is a code of the plugin {plugin}." if plugin else ""
    return f"{code}: {title}\n\n{textwrap.fill(text, _WIDTH)}{origin}\n"


def _hint(topic: str, codes: Collection[str]) -> str:
    if not page_names():
        return "the pages of orch23 are missing: install orch23 again"
    near = nearest_names(topic, COMMAND_NAMES) or nearest_names(topic, page_names())
    if near and not any(map(str.isdigit, topic)):
        return question([f"orch23 help {one}" for one in near])
    code = topic.upper()
    close = [one for one in codes if one.startswith(code)][:_NEAREST]
    close = close or difflib.get_close_matches(code, codes, n=_NEAREST)
    hint = f"near codes: {', '.join(close)}" if close else "`orch23 help diagnostics` lists the codes of orch23"
    return f"{hint}; codes of a plugin need the plugin in `plugins` of pipeline.yaml"
