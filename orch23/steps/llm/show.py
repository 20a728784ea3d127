"""How an llm step is named."""

from orch23.steps.llm.spec import LLMStep


def show(step: LLMStep) -> str:
    """Return who is asked."""
    return f"{step.provider} {step.model}"
