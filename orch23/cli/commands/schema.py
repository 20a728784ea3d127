"""The declaration of the command `schema`."""

from orch23.cli.command import declared
from orch23.cli.flags import option


@declared("schema")
@option("--out", metavar="FILE", help="Write it there, such as .orch23/pipeline.schema.json; not to stdout.")
def command() -> None:
    """Write the JSON schema of pipelines, for editors."""
