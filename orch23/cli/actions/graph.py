"""The action of `graph`."""

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import open_wanted
from orch23.cli.wiring import open_reading
from orch23.engine.preview import preview
from orch23.model.errors import ExitCode
from orch23.report.graph_dot import graph_dot
from orch23.report.graph_json import graph_json
from orch23.report.graph_mermaid import graph_mermaid
from orch23.report.graph_text import graph_text


def run(
    console: Console,
    *,
    wanted: Wanted,
    form: str,
    as_json: bool,
) -> int:
    """Show the stages in order, and what each needs."""
    project, _ = open_wanted(console, wanted, most_stages=0)
    plan = preview(open_reading(project)).plan
    written = {"text": graph_text, "mermaid": graph_mermaid, "dot": graph_dot, "json": graph_json}
    console.answer(written["json" if as_json else form](plan))
    return ExitCode.OK
