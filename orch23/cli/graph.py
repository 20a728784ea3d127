"""The command `graph`."""

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import Wanted, hands_wanted, pipeline_argument, variable_options
from orch23.model.errors import ExitCode

_FORMATS = ("text", "mermaid", "dot", "json")


@click.command()
@pipeline_argument
@variable_options
@option("--format", "form", type=click.Choice(_FORMATS), default="text", help="How it is written.")
@option("--json", "as_json", is_flag=True, help="As --format json.")
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
    from orch23.report.graph_dot import graph_dot  # noqa: PLC0415 - heavy
    from orch23.report.graph_json import graph_json  # noqa: PLC0415 - heavy
    from orch23.report.graph_mermaid import graph_mermaid  # noqa: PLC0415 - heavy
    from orch23.report.graph_text import graph_text  # noqa: PLC0415 - heavy

    project, _ = open_wanted(console, wanted, most_stages=0)
    plan = preview(open_reading(project)).plan
    written = {"text": graph_text, "mermaid": graph_mermaid, "dot": graph_dot, "json": graph_json}
    console.answer(written["json" if as_json else form](plan))
    return ExitCode.OK
