"""Run `doctor`: check the machine, the project and the models that its pipeline may call."""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import assert_never

from msgspec.structs import replace

from orch23 import __version__
from orch23.cli.consent import Consent, trust_command_line
from orch23.cli.console import Console
from orch23.cli.discovery import required_pipeline
from orch23.cli.doctor_finding import VENDOR_KEYS, DoctorFinding, SharedSetup, vendor_finding
from orch23.cli.opening import found_project, open_for_command, project_root
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project
from orch23.engine.preflight import tool_errors
from orch23.execute.interpreters import find_interpreter, interpreter_facts
from orch23.execute.launch import NAMESPACES_HINT, TierChoice
from orch23.execute.sandbox.bubblewrap import BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.language.llm_steps import fallbacks_of, llm_steps_of
from orch23.language.stages import render_foreach
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError, NotFoundError, Orch23Error, ProviderError
from orch23.model.features import CHECKS, SHARING, is_installed, load_feature
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.text import visible
from orch23.providers.faults import TransportError, invalid_reply_diagnostic, redacted_messages
from orch23.providers.registry import (
    adapter_for,
    adapter_named,
    adapter_of,
    not_granted_error,
    readiness_errors,
    step_errors,
)
from orch23.report.values import format_size, json_document, pluralize
from orch23.steps.llm.spec import LLMStep
from orch23.store.project_store import STORE_NAME
from orch23.store.run_logs import journal_paths
from orch23.text.secrets import secrets_from

_ISOLATED = "own namespaces, no network, only its sandbox directory"
_LOOKUP_TIMEOUT_S = 20.0


def _machine_findings(root: Path, environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return the checks of machine and project. Imports no client library, and calls no provider."""
    files = (path for path in (root / STORE_NAME).rglob("*") if path.is_file() and not path.is_symlink())
    sizes = [path.stat().st_size for path in files]
    return [
        DoctorFinding("orch23", __version__),
        DoctorFinding("python", f"{platform.python_version()} ({sys.executable})"),
        DoctorFinding("project", str(root)),
        _writable(root),
        *_interpreter(root, environ),
        *(vendor_finding(name, variable, environ) for name, variable in VENDOR_KEYS.items() if adapter_named(name, ())),
        DoctorFinding("provider scripted", "usable"),
        DoctorFinding("provider command", "usable, with a program that the pipeline names"),
        *(one for place in CHECKS.values() if is_installed(place) for one in load_feature(place)(environ)),
        DoctorFinding("cache", f"{pluralize(len(sizes), 'file')}, {format_size(sum(sizes))}"),
        DoctorFinding("runs", pluralize(len(journal_paths(root / LOGS_FOLDER)), "run")),
        _sandbox(best_tier_once()),
    ]


def _writable(root: Path) -> DoctorFinding:
    place = next((folder for folder in (root / STORE_NAME, root) if folder.is_dir()), root)
    if os.access(place, os.W_OK | os.X_OK):
        return DoctorFinding("store", f"{root / STORE_NAME} can be written")
    return _failed("store", f"{place} cannot be written", "change its owner, or build elsewhere with -C")


def _interpreter(root: Path, environ: Mapping[str, str]) -> list[DoctorFinding]:
    try:
        path = find_interpreter(None, root, environ)
        facts = interpreter_facts(path)
    except Orch23Error as error:
        return [_failed_by("interpreter of stages", error.diagnostics[0])]
    found = [DoctorFinding("interpreter of stages", f"{path} (Python {facts.version})")]
    if not facts.pytest_major:
        hint = f"{path} -m pip install pytest"
        return [*found, _failed("pytest", "not installed for this interpreter", hint)]
    return [*found, DoctorFinding("pytest", f"version {facts.pytest_major}")]


def _failed(name: str, value: str, hint: str | None) -> DoctorFinding:
    return DoctorFinding(name, value, ok=False, hint=hint or "")


def _failed_by(name: str, error: Diagnostic) -> DoctorFinding:
    return _failed(name, error.message, error.hint)


def _sandbox(choice: TierChoice) -> DoctorFinding:
    hint = f"{choice.why}; {NAMESPACES_HINT}"
    match choice.launcher:
        case NamespacesLauncher():
            return DoctorFinding("sandbox", f"namespaces: {_ISOLATED}")
        case BubblewrapLauncher(program=program):
            return DoctorFinding("sandbox", f"bubblewrap ({program}): {_ISOLATED}")
        case LandlockLauncher():
            value = (
                "Landlock and seccomp: a step writes only in its own directory; it can read /proc and change modes and "
                "times of this user's files; /dev/shm is closed to it"
            )
            return _failed("sandbox", value, hint)
        case None:
            return _failed("sandbox", "none: steps do not run", f"{hint}; `--allow-unsandboxed` builds without one")
        case _ as never:
            assert_never(never)


def _model_findings(project: Project, trust_command: str, *, online: bool) -> Iterator[DoctorFinding]:
    """Give a finding for each model that a pipeline may call.

    `online` looks the model up: at vendors always, at other servers only with the user's consent.
    """
    environ, root = project.settings.environ, project.settings.root
    consent = Consent.of(root, environ)
    secrets = secrets_from(environ)
    models: dict[tuple[str, str, str], LLMStep] = {}
    for step in _steps(project.pipeline):
        models.setdefault((step.provider, _address(step, environ), step.model), step)
    for step in models.values():
        # Messages of vendors' libraries may repeat the key or a password in the address.
        with redacted_messages(secrets.redact):
            found = _finding(step, environ, root)
            grant = consent.missing_grant(step, environ) if found.ok else None
            if grant is not None:
                found = _failed_by(found.name, not_granted_error(grant, trust_command))
            elif found.ok and online and adapter_for(step).look_up:
                error = _find_model(step, environ)
                value = f"{_address(step, environ)} has it"
                found = _failed_by(found.name, error) if error else replace(found, value=value)
        yield replace(found, value=secrets.redact(found.value), hint=secrets.redact(found.hint))


def _finding(step: LLMStep, environ: Mapping[str, str], root: Path) -> DoctorFinding:
    name = f"model {step.provider} {step.model}"
    missing = step_errors(step, root) or readiness_errors(step, environ, root)
    if missing:
        return _failed_by(name, missing[0])
    if adapter_for(step).look_up is None:
        return DoctorFinding(name, "usable")
    return DoctorFinding(name, f"called at {_address(step, environ)}")


def _tool_findings(project: Project, trust_command: str) -> Iterator[DoctorFinding]:
    """Give a finding for each tool that is missing, is outside of the system directories, or needs consent."""
    environ, root = project.settings.environ, project.settings.root
    stages = [node for node in project.pipeline.stages if isinstance(node, Stage) and node.tools]
    for name, error in tool_errors(stages, project.facts.facts_of):
        yield _failed_by(f"tools of {name}", error)
    for name, origin in project.facts.tool_origins().items():
        yield DoctorFinding(f"tool {name}", origin)
    for grant in dict.fromkeys(grant for node in project.pipeline.stages for grant in node.grants):
        if grant.kind == "tool" and not Consent.of(root, environ).is_granted(grant):
            yield _failed_by(f"tool {grant.name}", not_granted_error(grant, trust_command))


def _address(step: LLMStep, environ: Mapping[str, str]) -> str:
    """Return the address that a step calls, and its variable; empty if it is invalid, which other checks report."""
    adapter = adapter_of(step)
    try:
        address, variable = adapter.server(environ) if adapter is not None else ("", "")
    except ValueError:  # its text repeats a part of the address, which may be a password
        return ""
    return f"{address} ({variable})" if variable else address


def _steps(pipeline: Pipeline) -> "Iterator[LLMStep]":
    """Give each llm step that an attempt can have: of stages, of known items, and of templates of unknown items."""
    for node in pipeline.stages:
        known: list[Stage | ForeachStage] = [node]
        # A foreach with a literal list has known items; their models may differ by expression.
        if isinstance(node, ForeachStage) and node.foreach.values:
            items = [(str(number), value) for number, value in enumerate(node.foreach.values)]
            known = [one.stage for one in render_foreach(node, items, pipeline.vars) if one.stage is not None]
        yield from (step for one in known for step in (*llm_steps_of(one), *fallbacks_of(one)))


def check_setup(console: Console, *, args: PipelineArguments, online: bool, as_json: bool) -> None:
    """Check the machine, the project and its models."""
    root = project_root(console, args.arguments)
    of_pipeline, project = _of_pipeline(console, args, online=online)
    found = [*_machine_findings(root, console.environ), *of_pipeline]
    pipeline, command = (None, "") if project is None else (project.pipeline, trust_command_line(project.settings))
    setup = SharedSetup(
        here=console.here, root=root, pipeline=pipeline, environ=console.environ, trust_command=command, online=online
    )
    found += _sharing_findings(setup)
    if as_json:
        rows: list[Json] = [{"name": one.name, "ok": one.ok, "value": one.value, "hint": one.hint} for one in found]
        console.write_out(json_document({"orch23_doctor": 1, "facts": rows}))
        return
    style = console.out_style
    width = max(len(one.name) for one in found)
    for one in found:
        mark = style.paint(style.marks.done, "good") if one.ok else style.paint(style.marks.edited, "notice")
        hint = f"  ({visible(one.hint)})" if one.hint else ""
        console.write_out(f"{mark} {visible(one.name):<{width}}  {visible(one.value)}{hint}\n")


def _of_pipeline(
    console: Console, args: PipelineArguments, *, online: bool
) -> tuple[list[DoctorFinding], Project | None]:
    try:
        name = required_pipeline(found_project(console, args.arguments)).name
    except NotFoundError as missing:
        return [_failed_by("pipeline", missing.diagnostics[0])], None
    try:
        project, _ = open_for_command(console, args, most_stages=0)
    except InvalidInputError as invalid:
        hint = "`orch23 validate` reports all errors"
        return [_failed("pipeline", f"{name} is not valid: {invalid.diagnostics[0].message}", hint)], None
    command = trust_command_line(project.settings)
    findings = (*_model_findings(project, command, online=online), *_tool_findings(project, command))
    return [DoctorFinding("pipeline", name), *findings], project


def _sharing_findings(setup: SharedSetup) -> Iterator[DoctorFinding]:
    """Give what a build would use of a shared cache and of an executor elsewhere, without secrets."""
    redact = secrets_from(setup.environ).redact
    for place in filter(is_installed, SHARING.values()):
        for found in load_feature(place)(setup):
            yield replace(found, value=redact(found.value), hint=redact(found.hint))


def _find_model(step: LLMStep, environ: Mapping[str, str]) -> Diagnostic | None:
    """Look up the step's model, once, if its provider can. Return the error; None if the provider has the model."""
    # Not part of a build: a network failure would stop builds that need no call (ADR 11).
    adapter = adapter_for(step)
    try:
        name = adapter.look_up(environ, _LOOKUP_TIMEOUT_S) if adapter.look_up else step.model
    except TransportError as fault:
        return fault.diagnostic
    except ProviderError as ended:
        return ended.diagnostics[0]
    # A gateway's page is a text with status 200.
    is_found = isinstance(name, str) and name
    return None if is_found else invalid_reply_diagnostic(f"{adapter.server(environ)[0]} replied without a model")
