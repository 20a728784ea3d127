"""The action of `reset`."""

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import check_number, found_project, open_wanted, project_root
from orch23.cli.outputs import take_unmodified
from orch23.cli.project import required_pipeline
from orch23.cli.resetting import forget, locks_of, retain, set_journals_aside
from orch23.model.errors import ExitCode
from orch23.store.build_lock import BuildLock
from orch23.store.opening import FOLDER


def run(console: Console, *, wanted: Wanted, outputs: bool) -> int:
    """Forget all results; recorded answers are kept."""
    root = project_root(console, wanted.arguments)
    told = []
    project = None
    if outputs:
        project, _ = open_wanted(console, wanted, most_stages=0)
    found = found_project(console, wanted.arguments)
    check_number(found.stages, 0)
    locks = locks_of(root, required_pipeline(found) if wanted.arguments else None)
    with BuildLock(root / FOLDER / "lock"):
        if project is not None:
            project.store.promoter.recover(project.refusal)
            taken = take_unmodified(project)
            told += [f"removed {path}" for path in taken.promoted.removed]
            told += [f"brought back {path}" for path in taken.promoted.written]
            told += [f"left {path}, since it was edited" for path in (*taken.modified, *taken.promoted.foreign)]
            told += [f"left {path}, since the edit was accepted" for path in taken.accepted]
            told += [f"left {path}, since it is protected and no stage names it" for path in taken.refused]
        with retain(root, locks, told):
            told += forget(root)
        told += set_journals_aside(root)
    console.answer("".join(f"{line}\n" for line in told) or "there was nothing to forget\n")
    return ExitCode.OK
