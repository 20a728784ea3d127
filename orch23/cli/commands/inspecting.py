"""Declare the commands that show pipelines, explain codes and pages, or allow what a pipeline does."""

import click

from orch23.cli.declaration import (
    declare_command,
    json_option,
    option,
    override_options,
    pipeline_argument,
    variable_options,
)


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


@declare_command("graph", "pipeline.show_graph")
@pipeline_argument
@variable_options
@option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "dot", "json"]),
    default="text",
    help="Choose the output format.",
)
@option("--json", "as_json", is_flag=True, help="Same as --format json.")
def graph_command() -> None:
    """Show stages and their dependencies.

    Items of a foreach are shown as far as they are known.
    """


@declare_command("vars", "pipeline.show_vars")
@pipeline_argument
@variable_options
@option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option
def vars_command() -> None:
    """Show the variables of a pipeline."""


@declare_command("schema", "pipeline.write_schema")
@pipeline_argument
@option("-o", "--out", metavar="FILE", help="Write to this file instead of stdout.")
def schema_command() -> None:
    """Write the JSON schema of pipelines.

    Editors use it to complete and check pipelines. Includes the keys of the plugins that PIPELINE names (default:
    pipeline.yaml, if there is one).
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


@declare_command("help", "help.show_help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND|PAGE]")
def help_command() -> None:
    """Explain a code or a command, or show a page.

    PAGE is a page of the documentation: tutorial, pipeline-reference, budgets. `orch23 help pages` lists them.
    """
