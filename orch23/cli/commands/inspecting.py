"""Declare the commands that show pipelines, stages and runs. They change nothing."""

import click

from orch23.cli.declaration import (
    declare_command,
    json_option,
    model_options,
    option,
    pipeline_argument,
    stage_argument,
    variable_options,
)


@declare_command("explain", "explain.show_explanation")
@stage_argument
@variable_options
@model_options
@json_option
def explain_command() -> None:
    """Show why a stage's key changed.

    Compares the key with that of the last result. If STAGE is a foreach, shows all of its items; --json needs one
    item, such as code@T1.
    """


@declare_command("validate", "pipeline.validate")
@pipeline_argument
@variable_options
@model_options
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
@option("--out", metavar="FILE", help="Write to this file instead of stdout.")
def schema_command() -> None:
    """Write the JSON schema of pipelines.

    Editors use it to complete and check pipelines. Includes the keys of the plugins that PIPELINE names (default:
    pipeline.yaml, if there is one).
    """


@declare_command("runs", "store.list_project_runs")
@json_option
def runs_command() -> None:
    """List runs, newest first."""


@declare_command("log", "store.show_log")
@click.argument("run", required=False)
@option("--json", "as_json", is_flag=True, help="Write the journal, one JSON event a line.")
@option("--commands", is_flag=True, help="List the commands that ran; with --json, as one JSON document.")
@option("--state", "as_state", is_flag=True, help="Write the run's state, as in state.json.")
@option("--otel", is_flag=True, help="Send the run as OpenTelemetry spans.")
def log_command() -> None:
    """Show the events of a run.

    The default is the newest run. The beginning of a run id is enough.
    """


@declare_command("show", "show.show_stage")
@stage_argument
@variable_options
@option("--prompt", "view", flag_value="prompt", help="Show the prompt.")
@option("--response", "view", flag_value="response", help="Show the response of the model.")
@option("--diff", "view", flag_value="diff", help="Show the changes to each output.")
@option("--cost", "view", flag_value="cost", help="Show calls, tokens and money, by run.")
@option("--key", "view", flag_value="key", help="Show the last result's key and its parts.")
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show this attempt instead of the last.")
@option("--run", metavar="RUN", help="Show this run instead of the newest.")
@model_options
@json_option
def show_command() -> None:
    """Show prompts, responses and outputs of a stage.

    Without an option, shows everything that is kept of the last attempt, the commands that it ran, and its result.
    """
