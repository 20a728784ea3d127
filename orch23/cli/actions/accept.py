"""Run `accept`: verify outputs that the user edited, and record them as results."""

from orch23.cli.actions.build import build_view
from orch23.cli.build_run import BuildRequest, prepared_build
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_one_stage
from orch23.engine.accept import accept
from orch23.model.errors import ExitCode
from orch23.model.event import Event, RunFinished, RunStatus
from orch23.report.registry import FORMATS


def run(
    console: Console,
    *,
    args: PipelineArguments,
    allow_unsandboxed: bool,
) -> int:
    """Accept outputs that the user edited."""
    project, stage = open_one_stage(console, args)
    # Verification runs steps, but accepting an edit calls no model: `replay` refuses each call.
    request = BuildRequest(replay=True, allow_unsandboxed=allow_unsandboxed)
    with prepared_build(project, request, FORMATS["plain"].make(build_view(console, project))) as build:
        code = accept(build, stage)
        status: RunStatus = "ok" if code == ExitCode.OK else "failed"
        build.observer.notice(Event(RunFinished(status=status, exit_code=int(code)), status))
    return code
