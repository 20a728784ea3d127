"""Declare `clean`."""

from orch23.cli.declaration import declare_command, option, stages_argument, variable_options


@declare_command("clean")
@stages_argument
@variable_options
@option("--force", is_flag=True, help="Also remove edited and accepted outputs.")
def command() -> None:
    """Remove outputs of stages.

    Removes outputs of all stages or of the named ones, also those of a failed attempt that were kept. A file that
    existed before gets its original bytes back. Edited and accepted files stay. A build restores the outputs without
    running anything.
    """
