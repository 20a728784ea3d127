"""Run `build`: all stages, or only those that an edit reaches."""

import sys
from collections.abc import Callable
from functools import partial
from time import monotonic

from msgspec.structs import replace

from orch23.cli.build_run import BuildRequest, run_build
from orch23.cli.consent import ask_consent
from orch23.cli.console import Console, ignore_closed_pipe
from orch23.cli.declaration import PipelineArguments
from orch23.cli.idle_snapshot import IdleSnapshotWriter
from orch23.cli.opening import check_forced, open_for_command, open_partial_project, parse_budget, selection_of
from orch23.cli.project_loading import Project
from orch23.engine.dependency_index import OutdatedIndexError
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConsentError, ExitCode, Orch23Error, UsageError
from orch23.model.event import Observer
from orch23.model.paths import LOGS_FOLDER
from orch23.plan.planner import build_plan
from orch23.report.formats import Format, View
from orch23.report.observers import Guarded
from orch23.report.registry import FORMATS, format_of
from orch23.snapshot.fast_path import StaleSnapshot


def run(  # noqa: PLR0913 - a command has as many parameters as options
    console: Console,
    *,
    args: PipelineArguments,
    dry_run: bool,
    jobs: int | None,
    keep_going: bool,
    quiet: bool,
    verbose: bool,
    live: bool,
    replay: bool,
    offline: bool,
    resample: tuple[str, ...],
    forced: tuple[str, ...],
    overwrite_edited: bool,
    budget: str | None,
    allow_unsandboxed: bool,
    output: str,
    as_json: bool,
) -> int:
    """Build what is not up to date."""
    _check_asking(replay=replay, offline=offline, resample=resample)
    limit = parse_budget(budget)
    if dry_run:
        from orch23.cli.actions.plan import show_plan  # noqa: PLC0415 - a build needs none of it

        return show_plan(
            console,
            args,
            forced=(*forced, *resample),
            overwrite_edited=overwrite_edited,
            budget=limit,
            as_json=as_json,
            verbose=verbose,
        )
    form = "jsonl" if as_json else "quiet" if quiet else output
    own = FORMATS.get(form)
    console.progress.is_quiet = own is None or own.is_alone
    known = console.stale_snapshot if own is not None and own.in_a_line and not verbose else None
    asked = partial(
        BuildRequest,
        jobs=jobs,
        keep_going=keep_going,
        forced=forced,
        overwrite_edited=overwrite_edited,
        replay=replay,
        offline=offline,
        resample=resample,
        budget=limit,
        allow_unsandboxed=allow_unsandboxed,
        live=live,
        ask_consent=partial(ask_consent, console),
    )
    if own is not None and known is not None:
        code = _build_part(console, args, known, asked, own)
        if code is not None:
            return code
    project, stages = open_for_command(console, args)
    shown = own or format_of(form, project.pipeline.plugins)
    console.progress.is_quiet = shown.is_alone
    selection = selection_of(args, stages)
    plan, _ = build_plan(project.pipeline, cache=project.store.plans)
    if plan is not None:
        check_forced(plan, (*forced, *resample))
        selection.nodes(plan)
    return _run(console, project, asked(selection=selection), shown, verbose=verbose, of_plugin=own is None)


def _build_part(
    console: Console,
    args: PipelineArguments,
    stale_snapshot: StaleSnapshot,
    asked: Callable[..., BuildRequest],
    shown: Format,
) -> int | None:
    """Build what an edit reaches; None where all has to be decided, since something is otherwise, or wrong."""
    found = open_partial_project(console, args, stale_snapshot)
    if found is None:
        return None
    project, selection = found
    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True

    try:
        return _run(console, project, asked(selection=selection), shown, begin=begin)
    except OutdatedIndexError:
        return None
    except ConsentError:  # the user was asked: not twice
        raise
    except Orch23Error:
        if begun:
            raise
        return None


def _run(
    console: Console,
    project: Project,
    request: BuildRequest,
    shown: Format,
    *,
    verbose: bool = False,
    of_plugin: bool = False,
    begin: Callable[[], None] = lambda: None,
) -> int:
    """Run a build, shown in a form; a plugin's form that fails stops neither the build nor its record."""
    view = build_view(console, project, verbose=verbose)
    screen: Observer = shown.make(view)
    guarded = Guarded(screen) if of_plugin else None
    screen = guarded or screen
    at_rest = None if verbose else lambda write: shown.make(replace(view, tell=write))
    rest = IdleSnapshotWriter(console=console, project=project, screen=screen, screen_at_rest=at_rest)
    code = run_build(project, request, rest, begin, rest.end if shown.in_a_line else lambda _: None)
    if guarded is None or guarded.fault is None:
        return code
    from orch23.cli.error_report import report_error  # noqa: PLC0415 - where something went wrong

    reported = report_error(guarded.fault, console)
    return code or reported or ExitCode.BUG


def _check_asking(*, replay: bool, offline: bool, resample: tuple[str, ...]) -> None:
    """Hold the flags on who may be asked to each other. `--offline` and `--resample` go together: a model may be here.

    Raises:
        UsageError: two contradict each other, or one of them says nothing beside the other.

    """
    if replay and resample:
        hint = "leave out --replay to ask anew, or --resample to use what is recorded"
        raise UsageError(Diagnostic("E641", "`--replay` and `--resample` contradict each other", hint=hint))
    if replay and offline:
        hint = "--replay asks nobody at all; --offline lets models on this machine be asked"
        raise UsageError(Diagnostic("E641", "`--replay` and `--offline` together leave open what is meant", hint=hint))


def build_view(console: Console, project: Project, *, verbose: bool = False) -> View:
    """Return what a build of a project's pipeline is shown with."""
    return View(
        pipeline=project.pipeline,
        tell=ignore_closed_pipe(console.write_err, sys.stderr),
        answer=ignore_closed_pipe(console.write_out, sys.stdout),
        logs=project.settings.root / LOGS_FOLDER,
        style=console.err_style,
        clock=monotonic,
        verbose=verbose,
    )
