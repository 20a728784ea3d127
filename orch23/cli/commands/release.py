"""Declare `release`."""

from orch23.cli.declaration import declare_command, stages_argument, variable_options


@declare_command("release")
@stages_argument
@variable_options
def command() -> None:
    """Turn outputs of stages into source files.

    The files stay as they are: no build removes or reverts them, and the next stage that declares one of them starts
    from it. STAGE is a stage, an item, or a stage that the pipeline no longer declares.
    """
