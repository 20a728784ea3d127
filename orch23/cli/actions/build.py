"""Run `build`: all stages, or only those that an edit reaches. Run `accept`: verify what the user edited."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.cli.build_parts import BuildRequest
from orch23.cli.build_run import prepared_build, run_build
from orch23.cli.consent import ask_consent
from orch23.cli.console import Console, ignore_closed_pipe
from orch23.cli.idle_snapshot import IdleSnapshotWriter
from orch23.cli.opening import (
    cache_address,
    open_for_command,
    open_partial_project,
    open_stages,
    parse_budget,
    selection_of,
)
from orch23.cli.parameters import GivenOptions, PipelineArguments
from orch23.cli.project_loading import Project
from orch23.decide.dependency_index import OutdatedIndexError
from orch23.engine.build import Build
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConsentError, ExitCode, Orch23Error, SafetyError, UsageError
from orch23.model.event import Event, RunFinished
from orch23.model.event_data import RunStatus
from orch23.model.paths import LOGS_FOLDER
from orch23.model.pipeline import LOCAL_EXECUTOR, NO_CACHE
from orch23.plan.planner import Selection, unordered_plan
from orch23.report.formats import Format, Guarded, View
from orch23.report.live import PLAIN, LiveScreen
from orch23.report.registry import format_of, installed_formats, own_format
from orch23.snapshot.fast_path import StaleSnapshot
from orch23.store.safe_files import read_file

if TYPE_CHECKING:
    from orch23.cli.documents import Documents


def build_stages(  # noqa: PLR0913 - a command has as many parameters as options
    console: Console,
    *,
    args: PipelineArguments,
    given: GivenOptions,
    dry_run: bool,
    jobs: int | None,
    keep_going: bool,
    quiet: bool,
    verbose: bool,
    live: bool,
    wait: bool,
    replay: bool,
    allow_unsandboxed: bool,
    output: str,
    as_json: bool,
    junit: str | None,
    trace: str | None,
    otel: bool,
    plan_path: str | None,
    asks: bool,
) -> int:
    """Build stages that are not up to date."""
    _check_ask(console, asks=asks, has_answer=not (dry_run or as_json or plan_path))
    approve = None
    if plan_path is not None:
        from orch23.model.features import PLAN_FILES, load_feature  # noqa: PLC0415 - most builds have no plan file

        if dry_run:
            hint = "drop one of them; `orch23 plan` shows what a build would do"
            raise UsageError(Diagnostic("E641", "`--dry-run` and `--plan` contradict each other", hint=hint))
        approve, args, known = load_feature(PLAN_FILES["build"])(console, args, plan_path, given)
        given = GivenOptions(known.forced, given.resample, known.overwrite_edited, known.budget)
    _check_model_flags(replay=replay, offline=args.offline, resample=given.resample)
    if output == "auto" and console.is_in_github_actions and "github" in installed_formats():
        output = "github"
    summary = (console.environ.get("GITHUB_STEP_SUMMARY") or None) if output == "github" and not dry_run else None
    documents = _documents(console, {"junit": junit, "trace": trace, "summary": summary}, dry_run=dry_run, otel=otel)
    if dry_run:
        from orch23.cli.actions.plan import show_plan  # noqa: PLC0415 - a build does not need it

        return show_plan(console, args=args, given=given, verbose=verbose, as_json=as_json, exit_code=False, out=None)
    if as_json or quiet:
        output = "jsonl" if as_json else "quiet"
    builtin = own_format(output)
    console.progress.is_quiet = builtin is None or builtin.is_alone
    request = BuildRequest(
        args=replace(args, cache=cache_address(console.here, args.cache)),
        given=given,
        jobs=jobs,
        keep_going=keep_going,
        replay=replay,
        budget=parse_budget(given.budget),
        allow_unsandboxed=allow_unsandboxed,
        live=live,
        wait=wait,
        ask_consent=partial(ask_consent, console),
        approve=approve,
    )
    # Other formats, documents and --verbose list all stages; a partial build knows only those that an edit reaches.
    lists_all = (
        builtin is None or not builtin.in_a_line or verbose or documents is not None or approve is not None or asks
    )
    stale_snapshot = None if lists_all else console.stale_snapshot
    if builtin is not None and stale_snapshot is not None:
        code = _build_part(console, args, stale_snapshot, request, builtin)
        if code is not None:
            return code
    stale_snapshot = None if given.forced else stale_snapshot
    project, stages = open_for_command(console, args, stale_snapshot=stale_snapshot)
    form = builtin or format_of(output, project.pipeline.plugins)
    console.progress.is_quiet = form.is_alone
    selection = selection_of(args, stages)
    names = unordered_plan(project.pipeline)
    if named := (*given.forced, *given.resample):
        Selection(targets=named).nodes(names)
    selection.nodes(names)
    request = replace(request, selection=selection)
    run = partial(
        _run, console, request=request, form=form, documents=documents, verbose=verbose, of_plugin=builtin is None
    )
    try:
        code = run(project)
    except OutdatedIndexError:
        code = run(replace(project, earlier=None))
    return _ask(console, args, code, lambda: run(open_for_command(console, args)[0])) if asks else code


def _ask(console: Console, args: PipelineArguments, code: int, build: Callable[[], int]) -> int:
    from orch23.model.features import APPROVAL, load_feature  # noqa: PLC0415 - few builds ask

    number: int = load_feature(APPROVAL["ask"], "`--ask` needs")(console, args, code, build)
    return number


def _check_ask(console: Console, *, asks: bool, has_answer: bool) -> None:
    if asks and not (has_answer and console.is_interactive):
        hint = "without it, `orch23 approve STAGE` or `orch23 reject STAGE -m TEXT` answers after the build"
        text = "`--ask` needs a terminal, and cannot be combined with `--dry-run`, `--json` or `--plan`"
        raise UsageError(Diagnostic("E641", text, hint=hint))


def _build_part(
    console: Console, args: PipelineArguments, stale_snapshot: StaleSnapshot, request: BuildRequest, form: Format
) -> int | None:
    """Build only the stages that an edit reaches; None if the whole pipeline has to be decided."""
    project = open_partial_project(console, args, stale_snapshot, request.given.forced)
    if project is None:
        return None
    started = False

    def start() -> None:
        nonlocal started
        started = True

    try:
        return _run(console, project, replace(request, selection=project.selection), form, on_ready=start)
    except OutdatedIndexError:
        return None
    # The user has refused already: the whole build would ask again.
    except ConsentError:
        raise
    # Before the start nothing was written: the whole build finds the error again, and reports its place in the file.
    except Orch23Error:
        if started:
            raise
        return None


def _run(
    console: Console,
    project: Project,
    request: BuildRequest,
    form: Format,
    *,
    documents: "Documents | None" = None,
    verbose: bool = False,
    of_plugin: bool = False,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Run a build and show it. An error in a document, or in the format of a plugin, does not stop the build."""
    watched = console.watched
    if watched is not None:
        holds = not watched.begin(project.pipeline.stop.max_cost_usd)
        shared = None if holds else watched.budget
        request = replace(request, holds=holds, replay=holds, budget=watched.budget.given, shared_budget=shared)
    live: list[LiveScreen] = []
    view = replace(build_view(console, project, verbose=verbose), watch=live.append)
    screen = form.observer(view)
    if live:  # the format shows what runs, or has a sink that does
        # The frame shows what runs, and is painted over the line of progress.
        console.progress.is_quiet |= live[0].paints
        request = replace(request, watcher=live[0])
    guarded = Guarded(screen) if of_plugin else None
    screen = guarded or screen
    if documents is not None:
        screen = documents.beside(screen, view)
    idle_screen = None if verbose else lambda write: form.observer(replace(view, tell=write))
    writer = IdleSnapshotWriter(console=console, project=project, screen=screen, idle_screen=idle_screen)

    def end(build: Build) -> None:
        # A snapshot would answer the next build with this command line and environment: whatever its plan file says by
        # then, and without its documents.
        if form.in_a_line and request.approve is None and documents is None:
            writer.end(build)
        if watched is not None:
            read = None if writer.has_written else writer.states(build)
            is_whole = project.part is None
            watched.end(writer.run_id, read, has_snapshot=writer.has_written, is_whole=is_whole)

    on_signal = (lambda _: None) if watched is None else watched.on_signal
    code = run_build(project, request, writer, on_ready, end, on_signal)
    fault = next((one.fault for one in (guarded, documents) if one is not None and one.fault is not None), None)
    if fault is None:
        return code
    from orch23.cli.error_report import report_error  # noqa: PLC0415 - only for errors

    reported = report_error(fault, console)
    return code or reported or ExitCode.BUG


def _documents(console: Console, files: Mapping[str, str | None], *, dry_run: bool, otel: bool) -> "Documents | None":
    named = {name: file for name, file in files.items() if file is not None}
    if not named and not otel:
        return None
    from orch23.cli.documents import open_documents  # noqa: PLC0415 - most builds write none

    return open_documents(console, named, dry_run=dry_run, otel=otel)


def _check_model_flags(*, replay: bool, offline: bool, resample: tuple[str, ...]) -> None:
    """Check --replay, --offline and --resample. The last two go together: a model may run on this machine.

    Raises:
        UsageError: two of them contradict each other, or one has no effect.
    """
    if replay and resample:
        hint = "drop --replay to call the model again, or --resample to use recorded responses"
        raise UsageError(Diagnostic("E641", "`--replay` and `--resample` contradict each other", hint=hint))
    if replay and offline:
        hint = "--replay calls no model at all; --offline allows calls of models on this machine"
        raise UsageError(Diagnostic("E641", "`--replay` and `--offline` contradict each other", hint=hint))


def build_view(console: Console, project: Project, *, verbose: bool = False) -> View:
    """Return what a format needs to show a build."""
    return View(
        pipeline=project.pipeline,
        tell=console.write_err,
        answer=ignore_closed_pipe(console.write_out, sys.stdout),
        logs=project.settings.root / LOGS_FOLDER,
        style=console.err_style,
        clock=monotonic,
        verbose=verbose,
        area=console.area,
        columns=console.line_width,
        usual_s=partial(_usual_durations, project),
        at_end=console.resources.callback,
        redact=console.redact,
        folder=console.folder_in_repository(project.settings.root),
        read_source=partial(_source_text, project),
    )


def _source_text(project: Project, path: str) -> str:
    """Return the text of a file that a failure shows, such as the pipeline; an empty one if it cannot be read."""
    try:
        return (read_file(project.settings.root, path) or b"").decode("utf-8")
    except (OSError, SafetyError, UnicodeDecodeError):
        return ""


def _usual_durations(project: Project) -> Mapping[str, float]:
    """Return the median durations of stages in the last runs, by name; for items also by the name of their foreach."""
    from statistics import median  # noqa: PLC0415 - only for builds that take long

    from orch23.report.plan_view import model_names  # noqa: PLC0415 - as above
    from orch23.store.history import read_statistics  # noqa: PLC0415 - as above

    models = model_names(project.pipeline.stages)
    names = [stage.name for stage in project.pipeline.stages]
    past = read_statistics(project.store.logs, project.pipeline.file, names, models=models)
    return {name: median(one.durations_s) for name, one in past.items() if one.durations_s}


def accept_edits(console: Console, *, args: PipelineArguments, allow_unsandboxed: bool) -> int:
    """Accept outputs that the user edited."""
    from orch23.engine.accept import accept  # noqa: PLC0415 - a build does not need it

    project, stages = open_stages(console, args)
    # It verifies on this machine, wherever the stage runs.
    pipeline = replace(project.pipeline, pool_executors={})
    project = replace(project, loaded=replace(project.loaded, pipeline=pipeline))
    # Verification runs steps, but accepting an edit calls no model: `replay` refuses each call.
    local = PipelineArguments(cache=NO_CACHE, executor=LOCAL_EXECUTOR)
    request = BuildRequest(args=local, replay=True, allow_unsandboxed=allow_unsandboxed)
    with prepared_build(project, request, PLAIN.observer(build_view(console, project))) as build:
        code = accept(build, stages)
        status: RunStatus = "ok" if code == ExitCode.OK else "failed"
        build.observer.notice(Event(RunFinished(status=status, exit_code=int(code)), status))
    return code
