"""Describe an llm step in one line."""

from orch23.steps.llm.spec import LLMStep


def show_llm(step: LLMStep) -> str:
    """Return who is asked."""
    return f"{step.provider} {step.model}"
