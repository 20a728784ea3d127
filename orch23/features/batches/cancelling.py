"""Run `cancel`: cancel the batches that a build waits for."""

from decimal import Decimal

from orch23.cli.actions.build import build_view
from orch23.cli.build_parts import BuildRequest
from orch23.cli.build_run import prepared_build
from orch23.cli.console import Console
from orch23.cli.opening import open_for_command
from orch23.cli.parameters import PipelineArguments
from orch23.features.batches.pending import PendingBatches
from orch23.model.errors import ExitCode
from orch23.model.event import Event, RunFinished
from orch23.model.pipeline import NO_CACHE
from orch23.report.text import QUIET_TEXT
from orch23.report.values import money_text, pluralize

# How long to wait until the vendor has stopped the batches.
_DELAYS_S = (0.5, 2.0, 5.0, 10.0)


def cancel_batches(console: Console, *, args: PipelineArguments) -> int:
    """Cancel the batches that a build waits for, and record the responses that are complete."""
    project, _ = open_for_command(console, args)
    pending = PendingBatches(project.store.batches, project.store.key).of_pipeline(project.pipeline.file)
    if not pending:
        console.write_out("there is no batch to cancel\n")
        return ExitCode.OK
    request = BuildRequest(args=PipelineArguments(cache=NO_CACHE), replay=True, cancels=True)
    with prepared_build(project, request, QUIET_TEXT.observer(build_view(console, project))) as build:
        left = build.later is not None and build.later.cancel(_DELAYS_S)
        if build.later is not None:
            build.later.report()
        code = ExitCode.WAITING if left else ExitCode.OK
        ended = build.ledger.with_totals(RunFinished(status="waiting" if left else "ok", exit_code=int(code)))
        build.observer.notice(Event(ended, ended.status))
    kept = f"{pluralize(ended.calls, 'response')} recorded, {money_text(Decimal(ended.cost or 0), Decimal(0))}"
    what = "asked to cancel" if left else "cancelled"
    count = "1 batch" if len(pending) == 1 else f"{len(pending)} batches"
    console.write_out(f"{what} {count}: {kept}\n")
    if left:
        console.write_out("the vendor has not stopped all requests yet: run `orch23 cancel` again to record the rest\n")
    return code
