"""Declare the command `watch`."""

import click

from orch23.cli.declaration import (
    budget_option,
    cache_options,
    declare_command,
    executor_options,
    option,
    override_options,
    pipeline_argument,
    unsandboxed_option,
)


@declare_command("watch", "watch.watching:watch_project")
@pipeline_argument
@option("--llm", is_flag=True, help="Call models; without it, stages that would call one wait.")
@option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run at most N stages in parallel.")
@option("-k", "--keep-going", is_flag=True, help="Continue with other stages after a failure.")
@override_options
@cache_options
@budget_option
@unsandboxed_option
@executor_options
def watch_command() -> None:
    """Build what an edit reaches when it is saved, until Ctrl-C.

    Recorded responses are used. Models are called only with --llm; all builds together spend at most --budget.
    """
