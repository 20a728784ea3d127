"""Declare the commands that build, plan or verify: `build`, `plan`, `status`, `accept`."""

import click

from orch23.cli.declaration import (
    PluginChoice,
    budget_option,
    cache_options,
    declare_command,
    executor_options,
    exit_code_option,
    json_option,
    option,
    override_options,
    repeatable_stage_option,
    selection_options,
    stages_argument,
    unsandboxed_option,
    wait_lock_option,
)
from orch23.report.registry import installed_formats


@declare_command("build", "build.build_stages")
@stages_argument
@option("-n", "--dry-run", is_flag=True, help="Show what would be done, like `plan`.")
@option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run at most N stages in parallel.")
@option("-k", "--keep-going", is_flag=True, help="Continue with other stages after a failure.")
@option("-q", "--quiet", is_flag=True, help="Show only warnings and failures.")
@option("-v", "--verbose", is_flag=True, help="Show every stage, its reasons and its attempts.")
@option("--wait", is_flag=True, help="Wait for batches until all stages are done.")
@option("--ask", "asks", is_flag=True, help="Ask about changes that wait for approval.")
@option("--live", is_flag=True, help="Show output of steps and models while it arrives.")
@option("--replay", is_flag=True, help="Use recorded responses only; never call a model.")
@option("--offline", is_flag=True, help="Call only models on this machine; download nothing.")
@repeatable_stage_option("--resample", help="Call models again despite recorded responses. Repeatable.")
@selection_options
@override_options
@cache_options
@budget_option
@unsandboxed_option
@executor_options
@option("--output", type=PluginChoice(installed_formats()), default="auto", help="Choose how the build is shown.")
@option("--json", "as_json", is_flag=True, help="Same as --output jsonl; with -n, one JSON document.")
@option("--junit", metavar="FILE", type=click.Path(), help="Write a JUnit report to FILE.")
@option("--trace", metavar="FILE", type=click.Path(), help="Write a Chrome trace to FILE.")
@option("--otel", is_flag=True, help="Send OpenTelemetry spans.")
@option("--plan", "plan_path", metavar="FILE", type=click.Path(), help="Build what `plan --out FILE` planned.")
@wait_lock_option
def build_command() -> None:
    """Build stages that are not up to date.

    Builds the whole pipeline, or the named stages and their upstream stages. The default PIPELINE is pipeline.yaml in
    this folder or in the nearest parent folder that has one, else the only pipeline in `pipelines`.
    """


@declare_command("plan", "plan.show_plan")
@stages_argument
@selection_options
@override_options
@cache_options
@budget_option
@executor_options
@option("-v", "--verbose", is_flag=True, help="Show every reason, not only the first.")
@json_option
@exit_code_option
@option("-o", "--out", metavar="FILE", type=click.Path(), help="Write the plan to FILE for `build --plan`.")
def plan_command() -> None:
    """Show what a build would do, and why.

    Runs no step, calls no model, writes nothing but the FILE of --out.
    """


@declare_command("status", "plan.show_status")
@stages_argument
@option("--all", "list_all", is_flag=True, help="List all stages, with their descriptions.")
@override_options
@json_option
@exit_code_option
def status_command() -> None:
    """List stale stages."""


@declare_command("accept", "build.accept_edits")
@stages_argument
@override_options
@unsandboxed_option
@wait_lock_option
def accept_command() -> None:
    """Accept outputs that you edited.

    Verifies the outputs, then records them as results of the stages.
    """
