"""The command `trust`."""

import click

from orch23.cli.console import Console
from orch23.model.errors import ExitCode


@click.command()
@click.pass_obj
def trust(console: Console) -> int:
    """Take the store of this project for yours.

    A store that came with a clone or an archive, or that an earlier version of orch23 made, could hold forged results:
    nothing of it is used before this command was run. Look where it comes from first.
    """
    from orch23.cli.opening import project_root  # noqa: PLC0415 - heavy
    from orch23.store.opening import FOLDER  # noqa: PLC0415 - heavy
    from orch23.store.standing import Standing, adopt, standing  # noqa: PLC0415 - heavy

    folder = project_root(console.here) / FOLDER
    match standing(folder):
        case Standing.OWN:
            console.answer(f"{folder} is yours already\n")
        case Standing.NEW:
            console.answer(f"there is nothing in {folder} to trust\n")
        case Standing.STRANGE:
            adopt(folder)
            console.answer(f"{folder} is taken for yours from now on\n")
    return ExitCode.OK
