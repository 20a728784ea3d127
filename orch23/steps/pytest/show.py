"""How a pytest step is named."""

from orch23.steps.pytest.spec import PytestStep


def show(step: PytestStep) -> str:
    """Return pytest with its arguments and paths."""
    return " ".join(("pytest", *step.args, *step.paths))
