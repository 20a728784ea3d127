"""How a render step is named."""

from orch23.steps.render.spec import RenderStep


def show(step: RenderStep) -> str:
    """Return the template."""
    return step.template
