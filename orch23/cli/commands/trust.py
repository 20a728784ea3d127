"""Declare `trust`."""

from orch23.cli.declaration import declare_command, model_options, option, pipeline_argument, variable_options


@declare_command("trust")
@pipeline_argument
@variable_options
@model_options
@option("--revoke", is_flag=True, help="Revoke all grants of this project.")
def command() -> None:
    """Allow what a pipeline runs and sends.

    Lists the programs that PIPELINE would run in place of a model, and the servers, other than the vendors' own, that
    would get prompts and a key. Allows them for this project, as they are now. Read the pipeline first. Runs and sends
    nothing.

    Also marks the store of the project as yours. orch23 does not use a store that came with a clone or an archive, or
    from an earlier version, until you trust it: its results could be forged. Check where it comes from first.
    """
