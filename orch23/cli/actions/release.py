"""Run `release`: turn outputs of stages into source files."""

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_for_command
from orch23.engine.ownership import release_files
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError, UsageError
from orch23.report.diagnostics import visible
from orch23.snapshot.fast_path import remove_snapshots


def run(console: Console, *, args: PipelineArguments) -> None:
    """Turn outputs of stages into source files."""
    project, stages = open_for_command(console, args)
    if not stages:
        raise UsageError(Diagnostic("E641", "name a stage", hint="`orch23 status` lists the stages"))
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        lock, _ = project.memory.read()
        found = {stage: release_files(project.store, lock, stage) for stage in stages}
        unknown = [stage for stage, files in found.items() if not files]
        if unknown:
            hint = "`orch23 status` lists the stages; a stage has files after it was built"
            errors = (Diagnostic("E823", f"`{stage}` has no files to release", hint=hint) for stage in unknown)
            raise NotFoundError(*errors)
        # A snapshot does not record owners: with it, the next build would repeat its old output.
        remove_snapshots(str(project.settings.root), project.pipeline.file)
        lock = lock.without(stages)
        project.memory.write(lock, project.pipeline.name)
        project.store.save_index()
    for stage, files in found.items():
        console.write_out("".join(f"released {visible(path)}\n" for path in files))
        if any(node.name == stage.partition("@")[0] for node in project.pipeline.stages):
            note = f"`{visible(stage)}` is still declared: remove it, or the next build owns these files again"
            console.write_err(f"note: {note}\n")
