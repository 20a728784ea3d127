"""Declare the commands that check a pipeline, or allow what it does: `validate`, `trust`."""

import click

from orch23.cli.declaration import declare_command, option, override_options, pipeline_argument


@declare_command("validate", "pipeline.validate")
@pipeline_argument
@override_options
@option(
    "--output-format",
    "style",
    type=click.Choice(["full", "concise", "json", "github", "sarif"]),
    default="full",
    help="Choose how errors are written.",
)
def validate_command() -> None:
    """Report all errors of a pipeline.

    The formats full and concise go to stderr; json, github and sarif go to stdout.
    """


@declare_command("trust", "pipeline.trust_pipeline")
@pipeline_argument
@override_options
@option("--revoke", is_flag=True, help="Revoke all grants of this project.")
def trust_command() -> None:
    """Allow what a pipeline runs and sends.

    Lists the programs that PIPELINE would run in place of a model, and the servers, other than the vendors' own, that
    would get prompts and a key, and the shared cache whose results it would use. Allows them for this project, as they
    are now. Read the pipeline first. Runs and sends nothing.

    Also marks the store of the project as yours. orch23 does not use a store that came with a clone or an archive, or
    from an earlier version, until you trust it: its results could be forged. Check where it comes from first.
    """
