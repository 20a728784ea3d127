"""Run `validate`: report all errors of a pipeline without running it."""

from collections.abc import Mapping, Sequence

from orch23.cli.author_data import check_input_schemas
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import check_stage_count, found_project, open_with_exit_codes, settings_of
from orch23.engine.session import check_plan
from orch23.load.loaded import InvalidPipelineError
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, InvalidInputError
from orch23.report.diagnostics import DiagnosticStyle, render_diagnostics
from orch23.report.values import pluralize

_MACHINE_READABLE = frozenset({"json", "github", "sarif"})


def run(
    console: Console,
    *,
    args: PipelineArguments,
    style: DiagnosticStyle,
) -> int:
    """Report all errors of a pipeline."""
    try:
        stages, warnings, sources = _validated(console, args)
    except InvalidInputError as invalid:
        sources = getattr(invalid, "sources", {})
        _write(console, invalid.diagnostics, sources, style)
        return console.exit_number_of(invalid)
    _write(console, warnings, sources, style)
    if style not in _MACHINE_READABLE:
        console.write_out(f"ok: {pluralize(stages, 'stage')}\n")
    return ExitCode.OK


def _validated(console: Console, args: PipelineArguments) -> tuple[int, Sequence[Diagnostic], Mapping[str, str]]:
    """Return the number of stages of a pipeline, its warnings and its texts.

    Raises:
        InvalidPipelineError: with all errors.

    """
    settings = settings_of(console, args)
    stages = found_project(console, args.arguments).stages
    check_stage_count(stages, 0)
    project = open_with_exit_codes(console, settings)
    # Errors of the plan and of inputs are independent: one run reports both.
    problems: list[Diagnostic] = []
    try:
        check_plan(project.pipeline, project.store, project.tools)
    except InvalidInputError as invalid:
        problems += invalid.diagnostics
    try:
        check_input_schemas(project.pipeline, project.store.workspace, project.tools.sources)
    except InvalidInputError as invalid:
        problems += invalid.diagnostics
    if problems:
        raise InvalidPipelineError(*problems, *project.loaded.warnings, sources=project.loaded.sources)
    return len(project.pipeline.stages), project.loaded.warnings, project.loaded.sources


def _write(
    console: Console, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], style: DiagnosticStyle
) -> None:
    # For a program, the diagnostics are the result of the command: they go to stdout.
    if style in _MACHINE_READABLE:
        console.write_out(render_diagnostics(diagnostics, sources, style=style))
    else:
        console.write_err(render_diagnostics(diagnostics, sources, style=style, color=console.err_style.color))
