"""Workflow commands of GitHub Actions: lines of output that annotate files, and group other lines.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Mapping


def workflow_command(name: str, text: str = "", properties: Mapping[str, str] | None = None) -> str:
    """Return a command as a line. No line break in the text or a property ends it."""
    listed = ",".join(
        f"{key}={_escape(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in (properties or {}).items()
    )
    return f"::{name}{f' {listed}' if listed else ''}::{_escape(text)}\n"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
