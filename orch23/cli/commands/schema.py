"""Declare `schema`."""

from orch23.cli.declaration import declare_command, option, pipeline_argument


@declare_command("schema")
@pipeline_argument
@option("--out", metavar="FILE", help="Write to this file instead of stdout.")
def command() -> None:
    """Write the JSON schema of pipelines.

    Editors use it to complete and check pipelines. Includes the keys of the plugins that PIPELINE names (default:
    pipeline.yaml, if there is one).
    """
