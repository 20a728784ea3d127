"""Describe a fetch step in one line."""

from orch23.features.fetch.step.spec import FetchStep


def show_fetch(step: FetchStep) -> str:
    """Return where the file comes from."""
    return step.url or step.file
