"""Run `status`: list stale stages."""

from orch23.cli.actions.plan import plan_exit_code, whole_view
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import status_text


def run(
    console: Console,
    *,
    args: PipelineArguments,
    as_json: bool,
    exit_code: bool,
) -> int:
    """List stale stages."""
    view = whole_view(console, args, estimated=as_json)
    console.write_out(plan_json(view) if as_json else status_text(view, console.out_style))
    return plan_exit_code(view, exit_code=exit_code)
