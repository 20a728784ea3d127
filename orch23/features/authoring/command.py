"""Declare the commands that show a pipeline and the language, and explain codes and pages."""

import click

from orch23.cli.declaration import declare_command, json_option, option, pipeline_argument, variable_options


@declare_command("graph", "authoring.pipelines:show_graph")
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


@declare_command("vars", "authoring.pipelines:show_vars")
@pipeline_argument
@variable_options
@option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option
def vars_command() -> None:
    """Show the variables of a pipeline."""


@declare_command("schema", "authoring.pipelines:write_schema")
@pipeline_argument
@option("-o", "--out", metavar="FILE", help="Write to this file instead of stdout.")
def schema_command() -> None:
    """Write the JSON schema of pipelines.

    Editors use it to complete and check pipelines. Includes the keys of the plugins that PIPELINE names (default:
    pipeline.yaml, if there is one).
    """


@declare_command("help", "authoring.pipelines:show_help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND|PAGE]")
def help_command() -> None:
    """Explain a code or a command, or show a page.

    PAGE is a page of the documentation: tutorial, pipeline-reference, budgets. `orch23 help pages` lists them.
    """
