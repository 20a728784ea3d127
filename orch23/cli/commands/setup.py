"""Declare the commands that set up a project and a machine."""

import click

from orch23.cli.declaration import (
    declare_command,
    json_option,
    model_options,
    option,
    pipeline_argument,
    unsandboxed_option,
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


@declare_command("worker", "worker.serve_worker")
@option("--scheduler", "address", metavar="ADDRESS", help="Connect to this dask scheduler.")
@option("--once", metavar="DIGEST", help="Run one action in this folder, as a server's command.")
@option("--cache", "cache_url", metavar="URL", default="", help="Use this shared cache (default: that of each build).")
@option("--slots", type=click.IntRange(min=1), metavar="N", help="Run at most N actions at once (default: cores).")
@option(
    "--resource",
    "resources",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="Offer this to steps of pools: gpu=1, memory=16GiB. Repeatable.",
)
@option("--folder", metavar="DIR", type=click.Path(), help="Keep temporary files below DIR (default: TMPDIR).")
@unsandboxed_option
def worker_command() -> None:
    """Run steps of builds on other machines.

    Serves `orch23 build --executor dask` until Ctrl-C, SIGTERM, or the end of the scheduler. Everyone who can connect
    to the scheduler can run programs as this user: a scheduler that is not on this machine needs TLS.

    With --once it is the command that servers of `orch23 build --executor reapi` run.
    """


@declare_command("doctor", "doctor.check_setup")
@pipeline_argument
@variable_options
@model_options
@option("--online", is_flag=True, help="Look up each model, and ask the shared cache and the scheduler, at no cost.")
@json_option
def doctor_command() -> None:
    """Check the machine, the project and its models.

    Checks the interpreter, pytest, the providers, the store, and the models, the shared cache and the executor of
    PIPELINE (default: pipeline.yaml, if there is one) or of the environment. Tests the sandbox in a temporary
    directory. Starts nothing else but, with --online, the credential helper of the shared cache, and writes nothing to
    the project.
    """


@declare_command("help", "help.show_help")
@click.argument("topic", required=False, metavar="[CODE|COMMAND|PAGE]")
def help_command() -> None:
    """Explain a code or a command, or show a page.

    PAGE is a page of the documentation: tutorial, pipeline-reference, budgets. `orch23 help pages` lists them.
    """
