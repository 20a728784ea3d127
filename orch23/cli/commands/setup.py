"""Declare the commands that set up a project and a machine."""

import click

from orch23.cli.declaration import (
    declare_command,
    model_options,
    option,
    pipeline_argument,
    variable_options,
)


@declare_command("trust", "pipeline.trust_pipeline")
@pipeline_argument
@variable_options
@model_options
@option("--revoke", is_flag=True, help="Revoke all grants of this project.")
def trust_command() -> None:
    """Allow what a pipeline runs and sends.

    Lists the programs that PIPELINE would run in place of a model, and the servers, other than the vendors' own, that
    would get prompts and a key, and the shared cache whose results it would use. Allows them for this project, as they
    are now. Read the pipeline first. Runs and sends nothing.

    Also marks the store of the project as yours. orch23 does not use a store that came with a clone or an archive, or
    from an earlier version, until you trust it: its results could be forged. Check where it comes from first.
    """


@declare_command("help", "help.show_help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND|PAGE]")
def help_command() -> None:
    """Explain a code or a command, or show a page.

    PAGE is a page of the documentation: tutorial, pipeline-reference, budgets. `orch23 help pages` lists them.
    """
