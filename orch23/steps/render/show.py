"""Describe a render step in one line."""

from orch23.steps.render.spec import RenderStep


def show_render(step: RenderStep) -> str:
    """Return the template."""
    return step.template
