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
@option("--since", "revision", metavar="REV", required=True, help="Compare with this commit, branch or tag.")
@variable_options
@model_options
@json_option
@option("--exit-code", is_flag=True, help="Exit with 1 if a stage is affected.")
def command() -> None:
    """List stages that changed since a git revision.

    Compares the pipeline, its prompts, schemas and sources at REV with the working tree, and artifacts by the lock
    file at REV. A stage with another key is `changed`. A stage that reads the result of a stage that is not built yet
    may be affected: it is `downstream`. Does not check out REV, and writes nothing.
    """
