"""The llm steps that the attempts of a stage, or of the items of a foreach, can have."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orch23.language.expressions import uses_name
from orch23.model.fields import Problems
from orch23.model.language import ModelDocument, read_choice
from orch23.model.parsing import json_at
from orch23.model.pipeline import MAX_RETRIES, ForeachStage, ModelChoice, Retry, Stage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def llm_steps_of(node: Stage | ForeachStage) -> "Sequence[LLMStep]":
    """Return the llm steps of attempts, without fallbacks; none if a stage calls no model, or if its items differ."""
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
    body = node.body.get("llm")
    if not isinstance(body, Mapping) or uses_name(body, node.foreach.name):
        return None
    from orch23.language.reading import read_document  # noqa: PLC0415 - it loads the language of pipelines
    from orch23.steps.llm.language import LLMDocument, read_llm  # noqa: PLC0415 - likewise

    document, _ = read_document(body, LLMDocument, "llm")
    if document is None:
        return None
    step = read_llm(document, Problems("")).of_plugins(node.plugins)
    return step.with_edits(body) if node.body.get("edits") else step


def declared_escalation(node: ForeachStage) -> tuple[str | ModelChoice, ...]:
    """Return the models by attempt that a foreach names for all of its items."""
    listed = json_at(node.body, "retry", "escalate")
    found: list[str | ModelChoice] = []
    for one in listed if isinstance(listed, list | tuple) else ():
        if isinstance(one, str):
            found.append(one)
        elif not uses_name(one, node.foreach.name):
            from orch23.language.reading import read_document  # noqa: PLC0415 - as above

            document, _ = read_document(one, ModelDocument, "")
            found += () if document is None else [read_choice(document, Problems(""))]
    return tuple(found)
