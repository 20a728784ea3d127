"""Declare `reset`."""

from orch23.cli.declaration import declare_command, option, pipeline_argument, variable_options


@declare_command("reset")
@pipeline_argument
@variable_options
@option("--outputs", is_flag=True, help="Also take back the outputs of the pipeline that are as runs left them.")
def command() -> None:
    """Forget all results; recorded answers are kept.

    Removes records, stored bytes and caches, and the results in the lock file of the named pipeline, or of all
    pipelines. Keeps what a build needs in order not to overwrite a user's work: which files are whose, their originals,
    accepted edits. Keeps exchanges, transcripts, logs and specs too. Finishes an interrupted promotion first. Journals
    that cannot be read are set aside. A further build pays for no answer again.
    """
