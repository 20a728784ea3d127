"""The command `accept`."""

import click

from orch23.cli.build import view_of
from orch23.cli.console import Console
from orch23.cli.options import Wanted, hands_wanted, model_options, stage_argument, unsandboxed_option, variable_options
from orch23.model.errors import ExitCode
from orch23.report.registry import FORMATS


@click.command()
@stage_argument
@variable_options
@model_options
@unsandboxed_option
@click.pass_obj
@hands_wanted
def accept(
    console: Console,
    *,
    wanted: Wanted,
    allow_unsandboxed: bool,
) -> int:
    """Keep outputs that were edited by hand.

    They are verified, and then taken as a result of the stage.
    """
    from orch23.cli.opening import open_one_stage  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import BuildRequest, building  # noqa: PLC0415 - heavy
    from orch23.engine.accept import accept as accept_edit  # noqa: PLC0415 - heavy
    from orch23.model.event import Event, RunFinished, RunStatus  # noqa: PLC0415 - beside it

    project, stage = open_one_stage(console, wanted)
    request = BuildRequest(replay=True, allow_unsandboxed=allow_unsandboxed)
    with building(project, request, FORMATS["plain"].make(view_of(console, project))) as build:
        code = accept_edit(build, stage)
        status: RunStatus = "ok" if code == ExitCode.OK else "failed"
        build.observer.notice(Event(RunFinished(status=status, exit_code=int(code)), status))
    return code
