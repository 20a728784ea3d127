"""Declare `clean`."""

from orch23.cli.declaration import declare_command, option, stages_argument, variable_options


@declare_command("clean")
@stages_argument
@variable_options
@option("--force", is_flag=True, help="Take edited and accepted outputs too; the store keeps their bytes.")
def command() -> None:
    """Remove what stages made, and no other file.

    Outputs of all stages, or of the named ones, also those of a failed attempt that was kept. A file that existed
    before gets its original bytes back. Edited and accepted files stay. A build restores the outputs without running
    anything.
    """
