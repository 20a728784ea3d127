"""The command `clean`."""

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import Wanted, hands_wanted, stages_argument, variable_options
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import render, visible
from orch23.report.figures import count


@click.command()
@stages_argument
@variable_options
@option("--force", is_flag=True, help="Take edited and accepted outputs too; the store keeps their bytes.")
@click.pass_obj
@hands_wanted
def clean(console: Console, *, wanted: Wanted, force: bool) -> int:
    """Remove what stages made, and no other file.

    Outputs of all stages, or of the named ones, also those of a failed attempt that was kept. A file that existed
    before gets its original bytes back. Edited and accepted files stay. A build restores the outputs without running
    anything.
    """
    from orch23.cli.opening import open_wanted  # noqa: PLC0415 - heavy
    from orch23.cli.outputs import take_back  # noqa: PLC0415 - heavy

    project, stages = open_wanted(console, wanted)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        taken = take_back(project, stages, force=force)
    promoted = taken.promoted
    if taken.modified:
        hint = "`orch23 accept STAGE` keeps an edit; `orch23 clean --force` gives it up"
        message = f"edited since they were made: {' '.join(taken.modified)}; nothing was removed"
        console.tell(render((Diagnostic("E643", message, hint=hint),), {}, color=console.err_style.color))
        return ExitCode.DECISION
    told = [f"removed {count(len(promoted.removed), 'file')}"]
    told += [f"brought back {count(len(promoted.written), 'file')}"] if promoted.written else []
    told += [f"left {visible(' '.join(promoted.foreign))}, which changed meanwhile"] if promoted.foreign else []
    told += [f"kept {visible(' '.join(taken.accepted))}, which a user had accepted"] if taken.accepted else []
    told += [f"left {visible(' '.join(taken.refused))}: protected, and no stage names it"] if taken.refused else []
    console.answer("; ".join(told) + "\n")
    return ExitCode.OK
