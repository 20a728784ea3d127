"""Describe an llm step in one line."""

from orch23.steps.llm.spec import LLMStep


def show_llm(step: LLMStep) -> str:
    """Return the provider and the model."""
    return f"{step.provider} {step.model}"
