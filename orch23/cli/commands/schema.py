"""Declare `schema`."""

from orch23.cli.declaration import declare_command, option, pipeline_argument


@declare_command("schema")
@pipeline_argument
@option("--out", metavar="FILE", help="Write to this file instead of stdout.")
def command() -> None:
    """Write the JSON schema of pipelines.

    For editors. Includes what the plugins of PIPELINE add (default: pipeline.yaml, if there is one).
    """
