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
from orch23.steps.registry import kinds_of

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def read_step(stage: StageDocument, plugins: tuple[str, ...], at: Problems) -> Step | None:
    """Return what a stage does, or None with a problem."""
    for name in stage.exactly_one:
        if getattr(stage, name) is not UNSET:
            return _read_kind(name, stage, plugins, at)
    return None


def _read_kind(
    name: str, document: StageDocument | VerifyStepDocument, plugins: tuple[str, ...], at: Problems
) -> Step | None:
    """Return the step that a document has under the name of its kind."""
    step = language_of(kinds_of(plugins)[name]).read(getattr(document, name), at)
    return None if step is None else step.of_plugins(plugins)


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


def read_verify(value: VerifySteps | VerifyDocument, plugins: tuple[str, ...], at: Problems) -> Verify:
    """Return what a result must pass: of a list of steps, or of `{inputs, steps, all}`.

    A list of commands that is in a file is one of its inputs.
    """
    if not isinstance(value, VerifyDocument):
        steps, places = _verify_steps(value, plugins, at)
        return Verify(steps, _sources(steps), places=places)
    steps, places = _verify_steps(value.steps, plugins, at.below("steps"))
    inputs = tuple(dict.fromkeys((*read_inputs(value.inputs, at.below("inputs")), *_sources(steps))))
    return Verify(steps, inputs, value.all, places)


def _sources(steps: Sequence[VerifyStep]) -> tuple[Input, ...]:
    return tuple(step.source for step in steps if isinstance(step, CommandsStep) and step.source is not None)


def _verify_steps(
    documents: Sequence[VerifyStepDocument], plugins: tuple[str, ...], at: Problems
) -> tuple[tuple[VerifyStep, ...], tuple[int, ...]]:
    """Return the steps that are not switched off, and at which positions they are written."""
    found: dict[int, VerifyStep] = {}
    for number, document in enumerate(documents):
        below = at.below(number)
        step, holds = _verify_step(document, plugins, below), below.condition("if", document.if_)
        if step is not None and holds:
            found[number] = step
    return tuple(found.values()), tuple(found)


def _verify_step(document: VerifyStepDocument, plugins: tuple[str, ...], at: Problems) -> VerifyStep | None:
    if document.check is not UNSET:
        return CheckStep(document.check, given(document.options, {}))
    if document.options is not UNSET:
        at.add("with", "E856", "`with` belongs to `check`", "remove it")
    if document.ensures is not UNSET:
        return EnsuresStep(read_conditions(document.ensures, at.below("ensures")))
    if document.commands is not UNSET:
        return read_commands(document.commands, at.below("commands"))
    for name in document.exactly_one:
        if getattr(document, name) is not UNSET:
            step = _read_kind(name, document, plugins, at)
            if step is None or not isinstance(step, VerifyStep):
                return None
            _refuse_outputs(name, step, at)
            return step
    return None


def _refuse_outputs(name: str, step: Step, at: Problems) -> None:
    for key in step.output_keys:
        if getattr(step, key) is not None:
            hint = f"a {key} is an output: make it a stage of its own"
            at.add(f"{name}/{key}", "E856", f"`{key}` has no place in verify, whose files are thrown away", hint)
