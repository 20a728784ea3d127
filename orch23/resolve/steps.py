"""Turn the document of what a stage does, and of what verifies it, into values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from orch23.model.digest import Json
from orch23.model.fields import Problems, given
from orch23.model.language import ConditionKind, Paths, language_of
from orch23.model.pipeline import (
    CheckStep,
    CommandsStep,
    Condition,
    EnsuresStep,
    ForeachStage,
    Input,
    Verify,
)
from orch23.model.step import Step, VerifyStep
from orch23.resolve.acceptance import read_commands
from orch23.resolve.document import (
    Conditions,
    ConditionsDocument,
    StageDocument,
    VerifyDocument,
    VerifyStepDocument,
    VerifySteps,
)
from orch23.resolve.expressions import mentions
from orch23.resolve.input_paths import read_inputs
from orch23.resolve.reading import read_document
from orch23.steps.pytest.language import read_pytest
from orch23.steps.registry import kinds_of
from orch23.steps.shell.language import read_shell

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def read_step(stage: StageDocument, plugins: tuple[str, ...], at: Problems) -> Step | None:
    """Return what a stage does, or None with a problem."""
    for name in stage.exactly_one:
        value = getattr(stage, name)
        if value is not UNSET:
            step = language_of(kinds_of(plugins)[name]).read(value, at)
            return None if step is None else step.of_plugins(plugins)
    return None


def declared_llm(node: ForeachStage) -> "LLMStep | None":
    """Return the llm step of a foreach if all of its items have the same; None where it depends on the item."""
    body = node.body.get("llm")
    if not isinstance(body, Mapping) or mentions(body, node.foreach.name):
        return None
    from orch23.steps.llm.language import LLMDocument, read_llm  # noqa: PLC0415 - where a model is asked

    document, _ = read_document(body, LLMDocument, "llm")
    return None if document is None else read_llm(document, Problems("")).of_plugins(node.plugins)


def declared_escalation(node: ForeachStage) -> tuple[str, ...]:
    """Return the models by attempt that a foreach names for all of its items."""
    retry = node.body.get("retry")
    return _texts(retry.get("escalate")) if isinstance(retry, Mapping) else ()


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


# ---- conditions and verification --------------------------------------------------------------


def read_conditions(value: Conditions, at: Problems) -> tuple[Condition, ...]:
    """Return `requires` or `ensures`: a mapping of kinds to paths, or a list of `{kind, path}`."""
    found: list[tuple[ConditionKind, str | None]] = []
    if isinstance(value, ConditionsDocument):
        kinds: dict[ConditionKind, Paths | UnsetType] = {
            "file_exists": value.file_exists,
            "file_absent": value.file_absent,
        }
        for kind, paths in kinds.items():
            if isinstance(paths, str):
                found.append((kind, at.path_at(kind, paths, "place")))
            else:
                found += [(kind, at.path_at(f"{kind}/{n}", path, "place")) for n, path in enumerate(given(paths, ()))]
    else:
        found += [(one.kind, at.path_at(f"{number}/path", one.path)) for number, one in enumerate(value)]
    return tuple(Condition(kind, path) for kind, path in found if path is not None)


def read_verify(value: VerifySteps | VerifyDocument, at: Problems) -> Verify:
    """Return what a result must pass: of a list of steps, or of `{inputs, steps, all}`.

    A list of commands that is in a file is one of its inputs.
    """
    if not isinstance(value, VerifyDocument):
        steps, places = _verify_steps(value, at)
        return Verify(steps, _sources(steps), places=places)
    steps, places = _verify_steps(value.steps, at.below("steps"))
    inputs = tuple(dict.fromkeys((*read_inputs(value.inputs, at.below("inputs")), *_sources(steps))))
    return Verify(steps, inputs, value.all, places)


def _sources(steps: Sequence[VerifyStep]) -> tuple[Input, ...]:
    return tuple(step.source for step in steps if isinstance(step, CommandsStep) and step.source is not None)


def _verify_steps(
    documents: Sequence[VerifyStepDocument], at: Problems
) -> tuple[tuple[VerifyStep, ...], tuple[int, ...]]:
    """Return the steps that are not switched off, and at which positions they are written."""
    found: dict[int, VerifyStep] = {}
    for number, document in enumerate(documents):
        below = at.below(number)
        step, holds = _verify_step(document, below), below.condition("if", document.if_)
        if step is not None and holds:
            found[number] = step
    return tuple(found.values()), tuple(found)


def _verify_step(document: VerifyStepDocument, at: Problems) -> VerifyStep | None:
    if document.check is not UNSET:
        return CheckStep(document.check, given(document.options, {}))
    if document.options is not UNSET:
        at.add("with", "E856", "`with` belongs to `check`", "remove it")
    if document.shell is not UNSET:
        return read_shell(document.shell, at)
    if document.pytest is not UNSET:
        step = read_pytest(document.pytest, at)
        if step.report is not None:
            hint = "a report is an output: make it a stage of its own"
            message = "`report` has no place in verify, whose files are thrown away"
            at.add("pytest/report", "E856", message, hint)
        return step
    if document.ensures is not UNSET:
        return EnsuresStep(read_conditions(document.ensures, at.below("ensures")))
    return None if document.commands is UNSET else read_commands(document.commands, at.below("commands"))
