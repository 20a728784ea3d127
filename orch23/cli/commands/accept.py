"""The declaration of the command `accept`."""

from orch23.cli.command import declared
from orch23.cli.options import model_options, stage_argument, unsandboxed_option, variable_options


@declared("accept")
@stage_argument
@variable_options
@model_options
@unsandboxed_option
def command() -> None:
    """Keep outputs that were edited by hand.

    They are verified, and then taken as a result of the stage.
    """
