"""Declare `schema`."""

from orch23.cli.declaration import declare_command, option, pipeline_argument


@declare_command("schema")
@pipeline_argument
@option("--out", metavar="FILE", help="Write it there, such as .orch23/pipeline.schema.json; not to stdout.")
def command() -> None:
    """Write the JSON schema of pipelines, for editors.

    With what the plugins that PIPELINE names add. Without PIPELINE that is pipeline.yaml, if there is one.
    """
