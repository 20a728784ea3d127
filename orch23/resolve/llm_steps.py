"""The llm steps that the attempts of a stage, or of the items of a foreach, can have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orch23.model.pipeline import MAX_RETRIES, ForeachStage, ModelChoice, Retry, Stage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def llm_steps_of(node: Stage | ForeachStage) -> "Sequence[LLMStep]":
    """Return the llm steps that attempts of a stage can have; none if it calls no model, or if its items differ.

    Those of `llm.fallback` are not among them.
    """
    step, retry = _declared(node)
    return () if step is None else step.of_attempts(retry)


def fallbacks_of(node: Stage | ForeachStage) -> "Sequence[LLMStep]":
    """Return the llm steps of the fallbacks of a stage."""
    step, _ = _declared(node)
    return () if step is None else step.fallbacks()


def _declared(node: Stage | ForeachStage) -> "tuple[LLMStep | None, Retry]":
    if isinstance(node, Stage):
        return (node.step if is_llm(node.step) else None), node.retry
    step = declared_llm_step(node)
    # Loads the language: not for a foreach without a model.
    return step, Retry() if step is None else Retry(max=MAX_RETRIES, escalate=declared_escalation(node))


def declared_llm_step(node: ForeachStage) -> "LLMStep | None":
    """Return the llm step of a foreach if all of its items have the same one, else None."""
    from orch23.resolve.stage_fields import declared_llm  # noqa: PLC0415 - it loads the language of pipelines

    return declared_llm(node)


def declared_escalation(node: ForeachStage) -> tuple[str | ModelChoice, ...]:
    """Return the models by attempt that a foreach names for all of its items."""
    from orch23.resolve import stage_fields  # noqa: PLC0415 - as above

    return stage_fields.declared_escalation(node)
