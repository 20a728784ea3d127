"""How a fetch step is named."""

from orch23.steps.fetch.spec import FetchStep


def show(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
