"""The action of `accept`."""

from orch23.cli.actions.build import view_of
from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import open_one_stage
from orch23.cli.wiring import BuildRequest, building
from orch23.engine.accept import accept
from orch23.model.errors import ExitCode
from orch23.model.event import Event, RunFinished, RunStatus
from orch23.report.registry import FORMATS


def run(
    console: Console,
    *,
    wanted: Wanted,
    allow_unsandboxed: bool,
) -> int:
    """Keep outputs that were edited by hand."""
    project, stage = open_one_stage(console, wanted)
    request = BuildRequest(replay=True, allow_unsandboxed=allow_unsandboxed)
    with building(project, request, FORMATS["plain"].make(view_of(console, project))) as build:
        code = accept(build, stage)
        status: RunStatus = "ok" if code == ExitCode.OK else "failed"
        build.observer.notice(Event(RunFinished(status=status, exit_code=int(code)), status))
    return code
