"""The declaration of the command `schema`."""

from orch23.cli.command import declared
from orch23.cli.flags import option
from orch23.cli.options import pipeline_argument


@declared("schema")
@pipeline_argument
@option("--out", metavar="FILE", help="Write it there, such as .orch23/pipeline.schema.json; not to stdout.")
def command() -> None:
    """Write the JSON schema of pipelines, for editors.

    With what the plugins that PIPELINE names add. Without PIPELINE that is pipeline.yaml, if there is one.
    """
