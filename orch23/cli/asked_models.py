"""Say for `doctor` which models a pipeline may ask, what each lacks here and, online, whether its provider has it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.cli.consent import Consent
from orch23.cli.examination import Finding
from orch23.decide.secrets import secrets_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.providers.consent import not_granted
from orch23.providers.faults import redacting
from orch23.providers.model_lookup import can_look_up, look_up
from orch23.providers.registry import adapter_of, check, ready
from orch23.resolve.stages import render_foreach
from orch23.resolve.steps import declared_escalation, declared_llm
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def model_findings(
    pipeline: Pipeline, environ: Mapping[str, str], root: Path, trust_command: str, *, online: bool
) -> Iterator[Finding]:
    """Give a finding for each model that a pipeline may ask.

    Online, vendors are asked whether they have it, and other servers if the user has consented to that.
    """
    consent = Consent.of(root, environ)
    secrets = secrets_of(environ)
    for step in models_of(pipeline):
        with redacting(secrets.redact):
            found = _finding(step, environ, root)
            grant = consent.lacking(step, environ) if found.ok else None
            if grant is not None:
                found = _amiss(found.name, not_granted(grant, trust_command))
            elif found.ok and online and can_look_up(step):
                found = _looked_up(found.name, step, environ)
        yield replace(found, value=secrets.redact(found.value), hint=secrets.redact(found.hint))


def models_of(pipeline: Pipeline) -> "tuple[LLMStep, ...]":
    """Return the llm steps of a pipeline, one for each provider, address and model that may be asked."""
    found: dict[tuple[str, str, str], LLMStep] = {}
    for step, escalate in _steps(pipeline):
        for model in escalate or (step.model,):
            one = replace(step, model=model)
            found.setdefault((one.provider, _address(one), model), one)
    return tuple(found.values())


def _finding(step: "LLMStep", environ: Mapping[str, str], root: Path) -> Finding:
    name = f"model {step.provider} {step.model}"
    missing = check(step, environ, root) or ready(step, environ, root)
    if missing:
        return _amiss(name, missing[0])
    if not can_look_up(step):
        return Finding(name, "usable")
    return Finding(name, f"may be asked at {_address(step)}")


def _looked_up(name: str, step: "LLMStep", environ: Mapping[str, str]) -> Finding:
    wrong = look_up(step, environ)
    return Finding(name, f"{_address(step)} has it") if wrong is None else _amiss(name, wrong)


def _amiss(name: str, what: Diagnostic) -> Finding:
    return Finding(name, what.message, ok=False, hint=what.hint or "")


def _address(step: "LLMStep") -> str:
    """Return whom a step asks, nothing where its address cannot be read: then `check` says what is wrong."""
    adapter = adapter_of(step)
    try:
        return adapter.endpoint(step) if adapter is not None else ""
    except ValueError:  # its text repeats a part of the address, which may be a password
        return ""


def _steps(pipeline: Pipeline) -> "Iterator[tuple[LLMStep, tuple[str, ...]]]":
    """Give each llm step with its `retry.escalate`: of the stages, and of items that are known or all alike."""
    for node in pipeline.stages:
        for stage in (node,) if isinstance(node, Stage) else _items(node, pipeline):
            if is_llm(stage.step):
                yield stage.step, stage.retry.escalate
        alike = declared_llm(node) if isinstance(node, ForeachStage) and not node.foreach.values else None
        if alike is not None and isinstance(node, ForeachStage):
            yield alike, declared_escalation(node)


def _items(node: ForeachStage, pipeline: Pipeline) -> Iterator[Stage]:
    items = [(str(number), value) for number, value in enumerate(node.foreach.values)]
    for built in render_foreach(node, items, pipeline.vars):
        if built.stage is not None:
            yield built.stage
