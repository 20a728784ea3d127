"""The command `graph`."""

from collections.abc import Callable, Mapping

import click

from orch23.cli.console import Console
from orch23.cli.options import Wanted, hands_wanted, pipeline_argument, variable_options
from orch23.model.errors import ExitCode
from orch23.model.plan import Plan
from orch23.report.graph_dot import graph_dot
from orch23.report.graph_json import graph_json
from orch23.report.graph_mermaid import graph_mermaid
from orch23.report.graph_text import graph_text

_FORMATS: Mapping[str, Callable[[Plan], str]] = {
    "text": graph_text,
    "mermaid": graph_mermaid,
    "dot": graph_dot,
    "json": graph_json,
}


@click.command()
@pipeline_argument
@variable_options
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), default="text", help="How it is written.")
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.pass_obj
@hands_wanted
def graph(
    console: Console,
    *,
    wanted: Wanted,
    form: str,
    as_json: bool,
) -> int:
    """Show the stages in order, and what each needs.

    Items of a foreach are shown as far as they are known.
    """
    from orch23.cli.opening import open_wanted  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import open_reading  # noqa: PLC0415 - heavy
    from orch23.engine.preview import preview  # noqa: PLC0415 - heavy

    project, _ = open_wanted(console, wanted, most_stages=0)
    plan = preview(open_reading(project)).plan
    console.answer(_FORMATS["json" if as_json else form](plan))
    return ExitCode.OK
