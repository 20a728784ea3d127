"""The command `build`."""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from orch23.cli.console import Console, lossy
from orch23.cli.flags import option
from orch23.cli.options import (
    Wanted,
    budget_option,
    complete_stage,
    hands_wanted,
    model_options,
    read_names,
    selection_options,
    stages_argument,
    unsandboxed_option,
    variable_options,
)
from orch23.cli.plan import show_plan
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConsentError, Orch23Error, UsageError
from orch23.report.registry import FORMATS

if TYPE_CHECKING:
    from orch23.cli.wiring import BuildRequest, Project
    from orch23.engine.build import Build
    from orch23.report.formats import Format, View
    from orch23.snapshot.reply import Unrest


@click.command()
@stages_argument
@option("-n", "--dry-run", is_flag=True, help="Say what would be done, like `plan`, and do nothing.")
@option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="So many stages at once.")
@option("-k", "--keep-going", is_flag=True, help="Go on with other stages when one has failed.")
@option("-q", "--quiet", is_flag=True, help="Only warnings and failures; as --output quiet.")
@option("-v", "--verbose", is_flag=True, help="Every stage, why it runs, and each attempt.")
@option("--live", is_flag=True, help="What steps print and models write, as it comes; in the journal too.")
@option("--replay", is_flag=True, help="Recorded answers only: a request without one is an error, not a call.")
@option("--offline", is_flag=True, help="Ask nobody beyond this machine; recorded answers are used.")
@option(
    "--resample",
    metavar="STAGE",
    multiple=True,
    callback=read_names,
    shell_complete=complete_stage,
    help="Ask this stage's model anew, although its answers are recorded. Repeatable.",
)
@selection_options
@variable_options
@model_options
@budget_option
@unsandboxed_option
@option(
    "--output",
    type=click.Choice([*FORMATS]),
    default="auto",
    help="How the build is shown: jsonl is the journal, junit an XML report.",
)
@option("--json", "as_json", is_flag=True, help="As --output jsonl; with -n the plan as one JSON document.")
@click.pass_obj
@hands_wanted
def build(  # noqa: PLR0913 - a command has as many parameters as options
    console: Console,
    *,
    wanted: Wanted,
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
    """Build what is not up to date.

    The whole pipeline, or the named stages with all they need. Without PIPELINE it is pipeline.yaml in this folder, or
    in the nearest above that has one.
    """
    from orch23.cli.consent import asked_consent  # noqa: PLC0415 - heavy
    from orch23.cli.opening import check_forced, open_wanted, read_budget, selection_of  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import BuildRequest  # noqa: PLC0415 - heavy
    from orch23.plan.graph import build_plan  # noqa: PLC0415 - heavy

    _check_asking(replay=replay, offline=offline, resample=resample)
    limit = read_budget(budget)
    if dry_run:
        return show_plan(
            console,
            wanted,
            forced=(*forced, *resample),
            overwrite_edited=overwrite_edited,
            budget=limit,
            as_json=as_json,
            verbose=verbose,
        )
    shown = FORMATS["jsonl" if as_json else "quiet" if quiet else output]
    console.progress.is_quiet = shown.is_alone
    known = console.unrest if shown.in_a_line and not verbose else None
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
        ask=partial(asked_consent, console),
    )
    if known is not None:
        code = _build_part(console, wanted, known, asked, shown)
        if code is not None:
            return code
    project, stages = open_wanted(console, wanted)
    selection = selection_of(wanted, stages)
    plan, _ = build_plan(project.pipeline, compiled=project.store.plans)
    if plan is not None:
        check_forced(plan, (*forced, *resample))
        selection.nodes(plan)
    return _run(console, project, asked(selection=selection), shown, verbose=verbose)


def _build_part(
    console: Console, wanted: Wanted, unrest: "Unrest", asked: Callable[..., "BuildRequest"], shown: "Format"
) -> int | None:
    """Build what an edit reaches; None where all has to be decided, since something is otherwise, or wrong."""
    from orch23.cli.opening import open_edited  # noqa: PLC0415 - heavy
    from orch23.engine.dependency_index import OutdatedIndexError  # noqa: PLC0415 - heavy

    found = open_edited(console, wanted, unrest)
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
    project: "Project",
    request: "BuildRequest",
    shown: "Format",
    *,
    verbose: bool = False,
    begin: Callable[[], None] = lambda: None,
) -> int:
    from orch23.cli.interrupts import interrupting  # noqa: PLC0415 - heavy
    from orch23.cli.resting import Rest  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import run_build  # noqa: PLC0415 - heavy

    view = view_of(console, project, verbose=verbose)
    screen = shown.make(view)
    at_rest = None if verbose else lambda write: shown.make(replace(view, tell=write))
    rest = Rest(console=console, project=project, screen=screen, screen_at_rest=at_rest)
    with contextlib.ExitStack() as handlers:

        def ready(build: "Build") -> None:
            begin()
            handlers.enter_context(interrupting(build.interrupt))

        return run_build(project, request, rest, ready, rest.end if shown.in_a_line else lambda _: None)


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


def view_of(console: Console, project: "Project", *, verbose: bool = False) -> "View":
    """Return what a build of a project's pipeline is shown with."""
    from orch23.model.own_files import LOGS  # noqa: PLC0415 - heavy
    from orch23.report.formats import View  # noqa: PLC0415 - heavy

    return View(
        pipeline=project.pipeline,
        tell=lossy(console.tell, sys.stderr),
        answer=lossy(console.answer, sys.stdout),
        logs=project.settings.root / LOGS,
        style=console.err_style,
        clock=monotonic,
        verbose=verbose,
    )
