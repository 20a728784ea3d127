"""The declaration of the command `clean`."""

from orch23.cli.command import declared
from orch23.cli.flags import option
from orch23.cli.options import stages_argument, variable_options


@declared("clean")
@stages_argument
@variable_options
@option("--force", is_flag=True, help="Take edited and accepted outputs too; the store keeps their bytes.")
def command() -> None:
    """Remove what stages made, and no other file.

    Outputs of all stages, or of the named ones, also those of a failed attempt that was kept. A file that existed
    before gets its original bytes back. Edited and accepted files stay. A build restores the outputs without running
    anything.
    """
