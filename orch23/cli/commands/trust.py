"""Declare `trust`."""

from orch23.cli.declaration import declare_command, model_options, option, pipeline_argument, variable_options


@declare_command("trust")
@pipeline_argument
@variable_options
@model_options
@option("--revoke", is_flag=True, help="Take back all that this project was allowed.")
def command() -> None:
    """Allow what a pipeline runs and sends.

    Lists the programs that PIPELINE would ask and the servers, other than the vendors' own, that would get prompts
    and a key, and allows them for this project, as they are now. Read the pipeline first. Runs and sends nothing.

    Also takes the store of the project for yours: one that came with a clone or an archive, or that an earlier version
    of orch23 made, could hold forged results, so nothing of it is used before. Look where it comes from first.
    """
