"""Describe a pytest step in one line."""

from orch23.steps.pytest.spec import PytestStep


def show_pytest(step: PytestStep) -> str:
    """Return pytest with its arguments and paths."""
    return " ".join(("pytest", *step.args, *step.paths))
