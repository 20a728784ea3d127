"""The command `release`."""

import click

from orch23.cli.console import Console
from orch23.cli.options import Wanted, hands_wanted, stages_argument, variable_options
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, NotFoundError, UsageError
from orch23.report.diagnostics import visible


@click.command()
@stages_argument
@variable_options
@click.pass_obj
@hands_wanted
def release(console: Console, *, wanted: Wanted) -> int:
    """Give the files of stages to the user.

    The files stay as they are and become sources: no build removes or reverts them, and the next stage that declares
    one of them starts from it. Names stages, items, or stages that the pipeline no longer declares.
    """
    from orch23.cli.opening import open_wanted  # noqa: PLC0415 - heavy
    from orch23.engine.releasing import release_files  # noqa: PLC0415 - heavy
    from orch23.snapshot.reply import drop  # noqa: PLC0415 - beside it

    project, stages = open_wanted(console, wanted)
    if not stages:
        raise UsageError(Diagnostic("E641", "name a stage", hint="`orch23 status` lists the stages"))
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        lock, _ = project.memory.read()
        found = {stage: release_files(project.store, lock, stage) for stage in stages}
        unknown = [stage for stage, files in found.items() if not files]
        if unknown:
            raise NotFoundError(*(_nothing(stage) for stage in unknown))
        drop(str(project.settings.root), project.pipeline.file)
        lock = lock.without(stages)
        project.memory.write(lock, project.pipeline.name)
        project.store.save_index()
    for stage, files in found.items():
        console.answer("".join(f"released {visible(path)}\n" for path in files))
        if any(node.name == stage.partition("@")[0] for node in project.pipeline.stages):
            note = f"`{visible(stage)}` is still declared: remove it, or the next build takes these files over again"
            console.tell(f"note: {note}\n")
    return ExitCode.OK


def _nothing(stage: str) -> Diagnostic:
    hint = "`orch23 status` lists the stages; a stage has files once it was built"
    return Diagnostic("E823", f"`{stage}` has no files to release", hint=hint)
