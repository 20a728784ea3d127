"""The action of `clean`."""

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import open_wanted
from orch23.cli.outputs import take_back
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import render, visible
from orch23.report.figures import count


def run(console: Console, *, wanted: Wanted, force: bool) -> int:
    """Remove what stages made, and no other file."""
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
