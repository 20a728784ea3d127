"""Declare `build`."""

import click

from orch23.cli.declaration import (
    PluginChoice,
    budget_option,
    complete_stage,
    declare_command,
    model_options,
    option,
    read_names,
    selection_options,
    stages_argument,
    unsandboxed_option,
    variable_options,
)
from orch23.report.registry import FORMATS


@declare_command("build")
@stages_argument
@option("-n", "--dry-run", is_flag=True, help="Say what would be done, like `plan`, and do nothing.")
@option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="So many stages at once.")
@option("-k", "--keep-going", is_flag=True, help="Go on with other stages when one has failed.")
@option("-q", "--quiet", is_flag=True, help="Only warnings and failures; as --output quiet.")
@option("-v", "--verbose", is_flag=True, help="Every stage, why it runs, and each attempt.")
@option("--live", is_flag=True, help="What steps print and models write, as it comes; in the journal too.")
@option("--replay", is_flag=True, help="Recorded answers only: a request without one is an error, not a call.")
@option("--offline", is_flag=True, help="Ask nobody beyond this machine; recorded answers are used.")
@option(
    "--resample",
    metavar="STAGE",
    multiple=True,
    callback=read_names,
    shell_complete=complete_stage,
    help="Ask this stage's model anew, although its answers are recorded. Repeatable.",
)
@selection_options
@variable_options
@model_options
@budget_option
@unsandboxed_option
@option(
    "--output",
    type=PluginChoice([*FORMATS]),
    default="auto",
    help="How the build is shown: jsonl is the journal, junit an XML report.",
)
@option("--json", "as_json", is_flag=True, help="As --output jsonl; with -n the plan as one JSON document.")
def command() -> None:
    """Build what is not up to date.

    The whole pipeline, or the named stages with all they need. Without PIPELINE it is pipeline.yaml in this folder, or
    in the nearest above that has one.
    """
