"""Run `validate` and `trust`: report on one pipeline without running it."""

from collections.abc import Collection, Mapping, Sequence

from orch23.cli.author_data import check_input_schemas
from orch23.cli.consent import Consent, grants_text, needed_grants
from orch23.cli.console import Console
from orch23.cli.opening import open_for_command, open_quietly, project_root, texts_of
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, check_stages, noted_errors, open_for_reading
from orch23.decide.dry_run import preview
from orch23.decide.ownership import check_left_out
from orch23.engine.preflight import foreseen_failures
from orch23.model.diagnostic import Diagnostic, quoted_names
from orch23.model.errors import ExitCode, InvalidInputError, Orch23Error
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import InvalidPipelineError, Plan
from orch23.model.text import visible
from orch23.plan.planner import list_producers
from orch23.report.diagnostics import DiagnosticStyle, render_diagnostics
from orch23.report.values import pluralize
from orch23.snapshot.store_registry import is_unproven
from orch23.store.access import store_origin, trust_store
from orch23.store.project_store import STORE_NAME

_MACHINE_READABLE = frozenset({"json", "github", "sarif"})


def validate(console: Console, *, args: PipelineArguments, style: DiagnosticStyle) -> int:
    """Report all errors of a pipeline."""
    try:
        count, warnings, sources = _validated(console, args)
    except InvalidInputError as invalid:
        from orch23.cli.error_report import with_root_note  # noqa: PLC0415 - only for errors

        sources = getattr(invalid, "sources", {})
        _write_errors(console, with_root_note(invalid.diagnostics, console), sources, style)
        return console.exit_number_of(invalid)
    _write_errors(console, warnings, sources, style)
    if style not in _MACHINE_READABLE:
        console.write_out(f"ok: {count}\n")
    return ExitCode.OK


def _validated(console: Console, args: PipelineArguments) -> tuple[str, Sequence[Diagnostic], Mapping[str, str]]:
    """Return the number of stages of a pipeline as a text, its warnings and its texts; raise all of its errors."""
    project, _ = open_quietly(console, args, 0)
    # Errors of the plan and of inputs are independent: one run reports both.
    problems: list[Diagnostic] = []
    notes: list[Diagnostic] = []
    plan: Plan | None = None
    try:
        check_left_out(project.git, project.pipeline, project.pipeline.stages)
        plan = check_stages(project, notes)
    except InvalidInputError as invalid:
        problems += invalid.diagnostics
    try:
        check_input_schemas(project.pipeline, project.store.workspace, project.tools.sources)
    except InvalidInputError as invalid:
        problems += invalid.diagnostics
    if plan is None or problems:
        noted = noted_errors(project, problems)
        raise InvalidPipelineError(*noted, *project.loaded.warnings, sources=texts_of(project, problems))
    notes += _foreseen_warnings(project, plan.nodes.values())
    return _count(project, plan), (*project.loaded.warnings, *notes), texts_of(project, notes)


def _count(project: Project, plan: Plan) -> str:
    """Return the number of stages as a build counts them, and which lists of items are known only during the build."""
    nodes = plan.nodes.values()
    expanded = {node.family for node in nodes if isinstance(node, Stage) and node.family != node.name}
    known = [node for node in nodes if isinstance(node, Stage) or node.name not in expanded]
    skipped = f", {len(project.pipeline.skipped)} skipped" if project.pipeline.skipped else ""
    later = [node for node in known if isinstance(node, ForeachStage)]
    makers = dict.fromkeys(maker for node in later for maker in list_producers(plan, node))
    listed = quoted_names(sorted(expanded)) if later else "each `foreach`"
    items = f", with the items of {listed}" if expanded else ""
    if later:
        have = "has" if len(makers) == 1 else "have"
        skipped += f"; the items of {quoted_names(node.name for node in later)} are added"
        skipped += f" when {quoted_names(makers)} {have} run" if makers else " by the build"
    return f"{pluralize(len(known), 'stage')}{items}{skipped}"


def _foreseen_warnings(project: Project, nodes: Collection[Stage | ForeachStage]) -> tuple[Diagnostic, ...]:
    """Return the warnings of `plan` about conditions and scripted responses with which a build will fail."""
    from orch23.cli.actions.plan import foreseen_warnings, is_scripted  # noqa: PLC0415 - few pipelines have such stages

    if not any(isinstance(node, Stage) and (node.requires or is_scripted(node)) for node in nodes):
        return ()
    try:
        seen = preview(open_for_reading(project))
        return foreseen_warnings(project, seen, foreseen_failures(seen))
    except Orch23Error:
        # It is about files of earlier builds, which `plan` and `build` report.
        return ()


def _write_errors(
    console: Console, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], style: DiagnosticStyle
) -> None:
    # For a program, the diagnostics are the result of the command: they go to stdout.
    if style in _MACHINE_READABLE:
        console.write_out(render_diagnostics(diagnostics, sources, style=style))
    else:
        console.write_err(render_diagnostics(diagnostics, sources, style=style, color=console.err_style.color))


def trust_pipeline(console: Console, *, args: PipelineArguments, revoke: bool) -> None:
    """Allow what a pipeline runs and sends."""
    root = project_root(console, args.arguments)
    consent = Consent.of(root, console.environ)
    if revoke:
        consent.grants.revoke()
        console.write_out(f"revoked all grants of {visible(str(consent.root))}\n")
        return
    if store_origin(root / STORE_NAME) == "foreign" or is_unproven(str(root / STORE_NAME)):
        trust_store(root / STORE_NAME)
        console.write_out(f"{visible(str(root / STORE_NAME))} is trusted from now on\n")
    project, _ = open_for_command(console, args, most_stages=0)
    grants = needed_grants(project)
    if not grants:
        console.write_out("this pipeline needs no consent\n")
    else:
        consent.store_grants(grants)
        console.write_out(f"allowed for {visible(str(consent.root))}:\n{grants_text(grants)}")
