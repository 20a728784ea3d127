"""Declare `affected`."""

from orch23.cli.declaration import (
    declare_command,
    json_option,
    model_options,
    option,
    pipeline_argument,
    variable_options,
)


@declare_command("affected")
@pipeline_argument
@option("--since", "revision", metavar="REV", required=True, help="A commit, branch or tag of git.")
@variable_options
@model_options
@json_option
@option("--exit-code", is_flag=True, help="End with 1 if a stage is affected.")
def command() -> None:
    """Name the stages whose keys differ since a git revision, and those after them.

    The pipeline, its prompts, schemas and sources as they were then are compared with the working tree, and what
    was made with the lock file of then. `changed` is a stage of another key; what reads the result of one that is
    not built yet may be affected, and is `downstream`. Checks nothing out, writes nothing.
    """
