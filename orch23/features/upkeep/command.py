"""Declare the commands that keep or remove outputs and stored results."""

import click

from orch23.cli.declaration import (
    declare_command,
    declare_group,
    json_option,
    option,
    pipeline_argument,
    stages_argument,
    variable_options,
    wait_lock_option,
)
from orch23.model.features import SHARED_CACHE, is_installed


@declare_command("release", "upkeep.outputs:release_outputs")
@stages_argument
@variable_options
@wait_lock_option
def release_command() -> None:
    """Turn outputs of stages into source files.

    The files stay as they are: no build removes or reverts them, and the next stage that declares one of them starts
    from it. STAGE is a stage, an item, or a stage that the pipeline no longer declares.
    """


@declare_command("clean", "upkeep.outputs:clean_outputs")
@stages_argument
@variable_options
@option("--force", is_flag=True, help="Also remove edited and accepted outputs.")
@wait_lock_option
def clean_command() -> None:
    """Remove outputs of stages.

    Removes outputs of all stages or of the named ones, also those of a failed attempt that were kept. A file that
    existed before gets back the bytes that the last run started from. Edited and accepted files stay. A build restores
    the outputs without running anything.
    """


@declare_command("reset", "upkeep.outputs:reset_results")
@pipeline_argument
@variable_options
@option("--outputs", is_flag=True, help="Also remove outputs that are not edited.")
@wait_lock_option
def reset_command() -> None:
    """Delete all results; keep recorded responses.

    Deletes records, stored bytes and caches, and the results in the lock file of the named pipeline, or of all
    pipelines. Keeps what protects your work from being overwritten: which files belong to which stage, their original
    bytes, accepted edits. Also keeps exchanges, transcripts, logs and specs. Finishes an interrupted promotion first.
    Renames journals that cannot be read. The next build does not pay for recorded responses again.
    """


@declare_command("gc", "upkeep.store:remove_unneeded")
@option("-n", "--dry-run", is_flag=True, help="Show what would be removed.")
@option(
    "--keep",
    metavar="SIZE|AGE|RUNS",
    multiple=True,
    help="Limit by size (5GB), age (30d), runs (20runs). Default: 10GB, 50runs.",
)
@option("--forget-paid-answers", is_flag=True, help="Also remove recorded responses that no result needs.")
@option("--transcripts", is_flag=True, help="Also remove transcripts that nothing needs.")
@json_option
@wait_lock_option
def gc_command() -> None:
    """Remove unneeded data from the store, and old runs.

    Removes the least recently used results first, until .orch23 is within the limits of --keep. Never removes data
    that a lock file or the current plan of a pipeline needs, recorded responses, or edits that were overwritten. A
    build makes removed results again if it needs them.

    Also removes the journals of runs older than the newest 50 of their pipeline, or than an age, with the files of
    their attempts. The run that a build continues stays, and the last run of each pipeline and of each stage. Lists
    these runs before it removes them.

    With --transcripts, also lists and removes files of transcripts that no record of a lock file and no replay of the
    pipelines needs, at HEAD or now. The store keeps their responses. Build first: all responses of a stage that is not
    fresh, or that needed several attempts, are kept.
    """


@declare_group("cache")
def cache_command() -> None:
    """Show and verify the store; show the use of a shared cache."""


@declare_command("stats", "upkeep.store:show_stats", cache_command)
@click.argument("run", required=False)
@option("--all", "every", is_flag=True, help="Show the shared cache of all runs, newest first, and the total.")
@json_option
def cache_stats() -> None:
    """Show what the store holds, or what runs did with a shared cache.

    Without RUN and --all, shows the content of the store by kind, and what the newest run did with a shared cache. With
    them, shows the shared cache alone: results that were restored, not found and stored, bytes, how long the run waited
    for it, and the time and money that restored results had taken. The beginning of a run id is enough. Reads the
    journals, and calls no cache.
    """


@declare_command("verify", "upkeep.store:verify_contents", cache_command)
@option("--exit-code", is_flag=True, help="Exit with 1 if something was damaged.")
@json_option
@wait_lock_option
def cache_verify() -> None:
    """Verify the store and remove damaged data.

    A build makes removed results again, or takes them from the workspace. A damaged response was paid for, and bytes
    of user edits cannot be made again: both are renamed to NAME.damaged.
    """


@declare_group("key", cache_command)
def cache_key() -> None:
    """Create keys for the signatures of results."""


cache_key.hidden = not is_installed(SHARED_CACHE["build"])


@declare_command("new", "cache.opening:create_signing_key", cache_key)
@click.argument("name")
def cache_key_new() -> None:
    """Create a key to sign results with.

    Writes the private key to your configuration folder, where only you can read it, and prints the public key. A
    pipeline lists the public keys whose results it accepts: `cache: {signed_by: [...]}`.
    """
