"""Declare the commands `affected` and `diff`."""

import click

from orch23.cli.declaration import (
    declare_command,
    json_option,
    option,
    override_options,
    pipeline_argument,
    variable_options,
)


@declare_command("affected", "metrics.affected:list_affected")
@pipeline_argument
@option("--since", "revision", metavar="REV", required=True, help="Compare with this commit, branch or tag.")
@override_options
@json_option
@option("--exit-code", is_flag=True, help="Exit with 1 if a stage is affected.")
def affected_command() -> None:
    """List stages that changed since a git revision.

    Compares the pipeline, its prompts, schemas and sources at REV with the working tree, and artifacts by the lock
    file at REV. A stage with another key is `changed`. A stage that reads the result of a stage that is not built yet
    may be affected: it is `downstream`. Does not check out REV, and writes nothing.
    """


@declare_command("diff", "metrics.diff:compare_states")
@click.argument("arguments", nargs=-1, metavar="[PIPELINE] [RUN|REV] [RUN|REV]")
@variable_options
@option("--all", "show_all", is_flag=True, help="Show values that do not differ, too.")
@option("--md", "as_markdown", is_flag=True, help="Write a Markdown table.")
@json_option
def diff_command() -> None:
    """Compare the values of metrics files.

    Without a name, compares the workspace with HEAD; with one, with this run or git revision; with two, the first with
    the second. The beginning of a run id is enough. Writes nothing, and exits with 0 also if values differ.
    """
