"""Declare `reset`."""

from orch23.cli.declaration import declare_command, option, pipeline_argument, variable_options


@declare_command("reset")
@pipeline_argument
@variable_options
@option("--outputs", is_flag=True, help="Also remove outputs that are not edited.")
def command() -> None:
    """Delete all results; keep recorded responses.

    Deletes records, stored bytes and caches, and the results in the lock file of the named pipeline, or of all
    pipelines. Keeps what protects your work from being overwritten: which files belong to which stage, their original
    bytes, accepted edits. Also keeps exchanges, transcripts, logs and specs. Finishes an interrupted promotion first.
    Renames journals that cannot be read. The next build does not pay for recorded responses again.
    """
