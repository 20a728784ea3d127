"""The declaration of the command `release`."""

from orch23.cli.command import declared
from orch23.cli.options import stages_argument, variable_options


@declared("release")
@stages_argument
@variable_options
def command() -> None:
    """Give the files of stages to the user.

    The files stay as they are and become sources: no build removes or reverts them, and the next stage that declares
    one of them starts from it. Names stages, items, or stages that the pipeline no longer declares.
    """
