"""Declare the command `shell`."""

import click

from orch23.cli.declaration import (
    declare_command,
    model_options,
    option,
    stage_argument,
    unsandboxed_option,
    variable_options,
)


@declare_command("shell", "shell.session:open_shell")
@stage_argument
@variable_options
@model_options
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Use this attempt instead of the last.")
@option("-c", "--command", metavar="TEXT", help="Run this text in the shell, and exit as it does.")
@unsandboxed_option
def shell_command() -> None:
    """Open a shell where a step ran.

    It has the files, tools, environment and sandbox of the step: for a stage that failed, those of its last attempt,
    else those of its last result. Its files are copies: no change reaches the project.

    With `-- COMMAND...`, runs that command there instead, and exits as it does:

        orch23 shell tests -- python -m pytest -x
    """
