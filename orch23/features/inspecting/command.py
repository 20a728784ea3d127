"""Declare the commands that show what stages and runs did. They change nothing."""

import click

from orch23.cli.declaration import declare_command, json_option, model_options, option, stage_argument, variable_options


@declare_command("explain", "inspecting.explain:show_explanation")
@stage_argument
@variable_options
@model_options
@json_option
def explain_command() -> None:
    """Show why a stage's key changed.

    Compares the key with that of the last result. If STAGE is a foreach, shows all of its items; --json needs one
    item, such as code@T1.
    """


@declare_command("runs", "inspecting.runs:list_project_runs")
@json_option
def runs_command() -> None:
    """List runs, newest first."""


@declare_command("log", "inspecting.runs:show_log")
@click.argument("run", required=False)
@option("--json", "as_json", is_flag=True, help="Write the journal, one JSON event a line.")
@option("--commands", is_flag=True, help="List the commands that ran; with --json, as one JSON document.")
@option("--state", "as_state", is_flag=True, help="Write the run's state, as in state.json.")
@option("--otel", is_flag=True, help="Send the run as OpenTelemetry spans.")
def log_command() -> None:
    """Show the events of a run.

    The default is the newest run. The beginning of a run id is enough.
    """


@declare_command("show", "inspecting.show:show_stage")
@stage_argument
@variable_options
@option("--prompt", "view", flag_value="prompt", help="Show the prompt.")
@option("--response", "view", flag_value="response", help="Show the response of the model.")
@option("--diff", "view", flag_value="diff", help="Show the changes to each output.")
@option("--changes", is_flag=True, help="Show changes that wait for approval.")
@option("--files", "lists_files", is_flag=True, help="With --changes, list files only.")
@option("--cost", "view", flag_value="cost", help="Show calls, tokens and money, by run.")
@option("--key", "view", flag_value="key", help="Show the last result's key and its parts.")
@option("--withheld", "view", flag_value="withheld", help="List the files that a failure kept back.")
@option("-o", "--out", metavar="DIR", help="Copy the withheld files to this new or empty folder.")
@option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show this attempt instead of the last.")
@option("--run", metavar="RUN", help="Show this run instead of the newest.")
@model_options
@json_option
def show_command() -> None:
    """Show prompts, responses and outputs of a stage.

    Without an option, shows everything that is kept of the last attempt, the commands that it ran, and its result.
    """
