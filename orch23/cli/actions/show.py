"""The action of `show`."""

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import open_one_stage
from orch23.cli.showing import Asked, shown
from orch23.model.errors import ExitCode
from orch23.report.document import document


def run(
    console: Console,
    *,
    wanted: Wanted,
    view: str | None,
    attempt: int | None,
    run: str | None,
    as_json: bool,
) -> int:
    """Show what an attempt was asked, answered or printed."""
    project, stage = open_one_stage(console, wanted)
    told = shown(project, Asked(stage=stage, view=view or "all", attempt=attempt, run=run))
    console.answer(document({"orch23_show": 1, **told.facts, "text": told.text}) if as_json else told.text)
    return ExitCode.OK
