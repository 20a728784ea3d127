"""The action of `status`."""

from orch23.cli.actions.plan import code_of, whole_view
from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import status_text


def run(
    console: Console,
    *,
    wanted: Wanted,
    as_json: bool,
    exit_code: bool,
) -> int:
    """Name the stages that are not up to date."""
    view = whole_view(console, wanted, estimated=as_json)
    console.answer(plan_json(view) if as_json else status_text(view, console.out_style))
    return code_of(view, exit_code=exit_code)
